// "Waiting for you": what a person has to decide, with the evidence beside it.

import { act, actionsFor } from "./actions.js";
import { decide, part, trying } from "./api.js";
import { freshenAges } from "./cards.js";
import { fill, h } from "./dom.js";
import { evidence } from "./evidence.js";
import { brokenRoles, cards, now, waiting, watch } from "./live.js";
import { age, DECISIONS, money, STATES } from "./words.js";

/** What cannot be undone first, then the newest. */
const byRisk = (a, b) => Boolean(b.irreversible) - Boolean(a.irreversible) || (a.decision === "dead_letter") - (b.decision === "dead_letter") || b.at - a.at;

export function waitingView(main) {
  const list = h("ol", { class: "decisions" });
  const roles = h("div", {});
  fill(main, h("h1", {}, "Waiting for you"), roles, list);
  const items = new Map();
  const update = () => {
    showRoles(roles);
    const wanted = waiting().sort(byRisk).slice(0, 200);
    const ids = new Set(wanted.map((card) => card.id));
    for (const [id, item] of items) if (!ids.has(id)) { item.element.remove(); items.delete(id); }
    for (const [place, card] of wanted.entries()) {
      let item = items.get(card.id);
      if (!item || item.version !== card.version) {
        const element = decision(card);
        // The first are those that a person came for.
        if (!item && items.size < 3) element.querySelector("details").open = true;
        if (item) { element.querySelector("details").open = item.element.querySelector("details").open; item.element.replaceWith(element); }
        item = { element, version: card.version };
        items.set(card.id, item);
      }
      if (list.children[place] !== item.element) list.insertBefore(item.element, list.children[place] || null);
    }
    if (!wanted.length && !list.querySelector(".empty")) list.replaceChildren(h("li", { class: "empty" }, "Nothing waits for a person."));
    else if (wanted.length) list.querySelector(".empty")?.remove();
  };
  update();
  const unwatch = watch(update);
  const ages = setInterval(() => freshenAges(main), 5000);
  return { end: () => { unwatch(); clearInterval(ages); }, keys: (event) => key(event, items) };
}

function decision(card) {
  const details = h("details", {}, h("summary", {}, "Evidence"));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) evidence(card.id, card.decision).then((found) => details.append(found));
  });
  const verbs = actionsFor(card).filter(([name]) => ["approve", "changes", "reject", "answer", "budget", "requeue", "comment", "cancel"].includes(name));
  return h("li", { class: "decision", tabindex: "0", "data-id": card.id, "aria-label": `${DECISIONS[card.decision]}: ${card.title}` },
    h("div", { class: "line first" },
      h("span", { class: `mark s-${card.state}` }, STATES[card.state].mark),
      h("a", { href: `#/tasks/${part(card.id)}`, class: "title" }, card.title || card.id),
      card.irreversible && h("span", { class: "tag urgent" }, "cannot be undone"),
      h("span", { class: "dim" }, DECISIONS[card.decision])),
    h("div", { class: "line dim" }, h("span", {}, card.role), h("span", {}, "from ", card.sender || "somebody"),
      h("span", { class: "age", "data-since": card.at }, age(now() - card.at)),
      card.usd && h("span", {}, money(card.usd, card.estimated)), card.score !== undefined && h("span", {}, `score ${card.score}`)),
    (card.reason || card.summary) && h("p", { class: "say" }, card.reason || card.summary),
    h("div", { class: "row" }, verbs.map(([name, action]) => h("button", {
      type: "button", class: action.primary ? "primary" : action.danger ? "danger" : "", title: action.command(card),
      onclick: () => act(name, cards.get(card.id) || card),
    }, action.label))),
    details);
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

function key(event, items) {
  const rows = [...items.values()].map((item) => item.element).sort((a, b) => (a.compareDocumentPosition(b) & 4 ? -1 : 1));
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

