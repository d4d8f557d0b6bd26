// A card: what is known of a task, in five lines.

import { h } from "./dom.js";
import { cards, now, state } from "./live.js";
import { age, money, STATES, waitsFor } from "./words.js";

/** By which a card is drawn anew: everything that it shows. */
export function markOf(card, chosen) {
  const words = state.words.get(card.id);
  return `${card.version}|${card.moving || ""}|${chosen}|${words ? `${words.words}${words.cost.usd}` : ""}`;
}

export function cardElement(card, { chosen = false, draggable = true } = {}) {
  const running = state.words.get(card.id);
  // Of what has an event the card is newer: the overview is looked at once a second.
  const percent = card.state === "in_progress" ? card.percent : undefined;
  const words = lastWords(card, running);
  const waits = waitsFor(card, cards, now());
  const cost = money(running?.cost.usd || card.usd, card.estimated);
  const holder = card.state === "in_progress" ? card.holder?.split("@")[0] : "";
  return h("article", {
    class: `card p-${card.priority}${card.moving ? " moving" : ""}${chosen ? " chosen" : ""}`, role: "listitem", tabindex: "-1",
    draggable: draggable && !card.moving ? "true" : null, "data-id": card.id, "data-version": card.version,
    "aria-label": `${card.title}, ${card.role}, ${STATES[card.state].words}${card.waits?.held ? ", held" : ""}${card.decision ? ", waits for you" : ""}${card.change ? ", to be applied" : ""}`,
  },
    h("div", { class: "line first" },
      h("span", { class: `mark s-${card.state}`, title: STATES[card.state].words }, STATES[card.state].mark),
      h("span", { class: "title" }, card.title || card.id),
      card.irreversible && h("span", { class: "flag", title: "cannot be undone" }, "⚠")),
    h("div", { class: "line dim" },
      h("span", { class: "role" }, card.role),
      card.priority !== "normal" && h("span", { class: `tag ${card.priority}` }, card.priority),
      card.epoch > 1 && h("span", { class: "tag", title: "attempt" }, `attempt ${card.epoch}`),
      card.waits?.held && h("span", { class: "tag", title: `held by ${card.waits.held.by}` }, "held"),
      card.score !== undefined && h("span", { class: "tag", title: "the reviewer's score" }, `score ${card.score}`),
      card.applied && h("span", { class: "tag" }, "applied"), card.change && h("span", { class: "tag" }, "to apply")),
    h("div", { class: "line words" }, waits ? `waits for ${waits}` : words),
    h("div", { class: "line dim" },
      h("span", { class: "age", "data-since": card.at, title: "since it last changed" }, age(now() - card.at)),
      card.agent && h("span", { title: "its agent" }, card.agent),
      holder && h("span", { class: "holder" }, holder),
      cost && h("span", {}, cost),
      percent !== undefined && h("span", { class: "percent" }, `${percent} %`)),
    percent !== undefined && bar(percent));
}

/** What was said last: by the agent while it works, then why it stands, or what it did. */
function lastWords(card, running) {
  if (card.state === "in_progress") return running?.words || card.note || "";
  if (["complete", "review"].includes(card.state)) return card.summary || card.reason || "";
  return card.reason || card.note || card.summary || "";
}

function bar(percent) {
  const inside = h("span", {});
  inside.style.width = `${Math.max(0, Math.min(100, percent))}%`;
  return h("div", { class: "bar" }, inside);
}

/** Ages grow; nothing else of a card changes by itself. */
export function freshenAges(root) {
  for (const each of root.querySelectorAll(".age")) {
    const words = age(now() - Number(each.dataset.since));
    if (each.textContent !== words) each.textContent = words;
  }
}
