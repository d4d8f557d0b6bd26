// "Waiting for you": what a person has to decide, with the evidence beside it.

import { act, actionsFor } from "./actions.js";
import { decide, part, trying } from "./api.js";
import { applyStanding } from "./applying.js";
import { freshenAges } from "./cards.js";
import { fill, h } from "./dom.js";
import { evidence } from "./evidence.js";
import { brokenRoles, cards, changes, now, state, waiting, watch } from "./live.js";
import { age, DECISIONS, money, STATES } from "./words.js";

/** What cannot be undone first, then the newest. */
const byRisk = (a, b) => Boolean(b.irreversible) - Boolean(a.irreversible) || (a.decision === "dead_letter") - (b.decision === "dead_letter") || b.at - a.at;

const VERBS = ["approve", "changes", "reject", "answer", "budget", "requeue", "apply", "comment", "cancel"];
const CHANGES_MAX = 50;

export function waitingView(main) {
  const roles = h("div", {});
  const asked = new Decisions(() => waiting().sort(byRisk).slice(0, 200), 3);
  const left = new Decisions(() => changes().slice(0, CHANGES_MAX), 1);
  const number = h("span", { class: "number" });
  const toApply = h("section", { class: "to-apply", "aria-label": "To bring into a branch" }, h("h2", {}, "To bring into a branch ", number), left.list);
  fill(main, h("h1", {}, "Waiting for you"), roles, asked.list, toApply);
  const update = () => {
    showRoles(roles);
    if (!asked.update()) fill(asked.list, h("li", { class: "empty" }, "Nothing waits for a person."));
    else asked.list.querySelector(".empty")?.remove();
    toApply.hidden = !left.update();
    number.textContent = String(changes().length);
  };
  update();
  const unwatch = watch(update);
  const ages = setInterval(() => freshenAges(main), 5000);
  return { end: () => { unwatch(); clearInterval(ages); }, keys: (event) => key(event, main) };
}

/** A list of cards to decide about, which stays where it is while they change. */
class Decisions {
  constructor(find, open) {
    this.find = find;
    this.open = open;
    this.items = new Map();
    this.list = h("ol", { class: "decisions" });
  }

  /** Show what there is now; how many. */
  update() {
    const wanted = this.find();
    const ids = new Set(wanted.map((card) => card.id));
    const focused = document.activeElement?.closest(".decision");
    const place = [...this.list.children].indexOf(focused);
    for (const [id, item] of this.items) if (!ids.has(id)) { item.element.remove(); this.items.delete(id); }
    for (const [number, card] of wanted.entries()) {
      let item = this.items.get(card.id);
      if (!item || item.version !== card.version) {
        const element = decision(card);
        // The first are those that a person came for.
        if (!item && this.items.size < this.open) element.querySelector("details").open = true;
        if (item) { element.querySelector("details").open = item.element.querySelector("details").open; item.element.replaceWith(element); }
        item = { element, version: card.version };
        this.items.set(card.id, item);
      }
      showVerbs(item, card);
      if (this.list.children[number] !== item.element) this.list.insertBefore(item.element, this.list.children[number] || null);
    }
    // What was decided goes, or is drawn anew: the keyboard goes on where it was.
    if (focused && place >= 0 && !focused.isConnected) this.list.children[Math.min(place, wanted.length - 1)]?.focus({ preventScroll: true });
    return wanted.length;
  }
}

function decision(card) {
  const details = h("details", {}, h("summary", {}, "Evidence"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) evidence(card.id, card.decision || "review").then((found) => details.append(found));
  });
  const asks = DECISIONS[card.decision] || "bring its change into the branch";
  return h("li", { class: "decision", tabindex: "0", "data-id": card.id, "aria-label": `${asks}: ${card.title}` },
    h("div", { class: "line first" },
      h("span", { class: `mark s-${card.state}` }, STATES[card.state].mark),
      h("a", { href: `#/tasks/${part(card.id)}`, class: "title" }, card.title || card.id),
      card.irreversible && h("span", { class: "tag urgent" }, "cannot be undone"),
      h("span", { class: "dim" }, asks)),
    h("div", { class: "line dim" }, h("span", {}, card.role), h("span", {}, "from ", card.sender || "somebody"),
      h("span", { class: "age", "data-since": card.at }, age(now() - card.at)),
      card.usd && h("span", {}, money(card.usd, card.estimated)), card.score !== undefined && h("span", {}, `score ${card.score}`)),
    (card.reason || card.summary) && h("p", { class: "say" }, card.reason || card.summary),
    h("div", { class: "row verbs" }), h("div", { class: "holds-standing" }),
    details);
}

/** What can be done, and how applying stands: that changes while the task does not. */
function showVerbs(item, card) {
  const number = state.applying.get(card.id)?.number || 0;
  if (item.element.dataset.applying === String(number)) return;
  item.element.dataset.applying = number;
  const verbs = actionsFor(card).filter(([name]) => VERBS.includes(name));
  const row = item.element.querySelector(".verbs");
  const hadFocus = row.contains(document.activeElement);
  fill(row, verbs.map(([name, action]) => h("button", {
    type: "button", class: action.primary ? "primary" : action.danger ? "danger" : "", title: action.command(card),
    onclick: () => act(name, cards.get(card.id) || card),
  }, action.label)));
  fill(item.element.querySelector(".holds-standing"), applyStanding(card));
  if (hadFocus) item.element.focus({ preventScroll: true });
}

function showRoles(place) {
  const found = brokenRoles();
  const mark = JSON.stringify(found);
  if (place.dataset.mark === mark) return;
  place.dataset.mark = mark;
  fill(place, found.map((circuit) => h("div", { class: "decision" },
    h("div", { class: "line first" }, h("span", { class: "mark s-failed" }, "⚡"), h("strong", {}, `${circuit.role} cannot work`)),
    h("p", { class: "say" }, circuit.reason),
    h("div", { class: "row" }, h("button", { type: "button", class: "primary", title: `agentq circuits close ${circuit.role}`,
      onclick: () => trying(() => decide(`roles/${part(circuit.role)}/circuit/close`), `${circuit.role} is tried again.`) }, "It is mended: try again")))));
}

function key(event, main) {
  const rows = [...main.querySelectorAll(".decisions .decision")];
  const at = rows.indexOf(document.activeElement?.closest?.(".decision"));
  if (["j", "ArrowDown"].includes(event.key)) rows[Math.min(at + 1, rows.length - 1)]?.focus();
  else if (["k", "ArrowUp"].includes(event.key)) rows[Math.max(at - 1, 0)]?.focus();
  else if (at < 0) return false;
  else {
    const card = cards.get(rows[at].dataset.id);
    if (event.key === "Enter") rows[at].querySelector("details").open = true;
    else {
      const found = card && actionsFor(card).find(([, action]) => action.key === event.key);
      if (!found) return false;
      act(found[0], card);
    }
  }
  return true;
}

