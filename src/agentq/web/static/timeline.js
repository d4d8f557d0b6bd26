// The log of a task: every event, and its attempts side by side.

import { h } from "./dom.js";
import { age, money, moment, STATES } from "./words.js";

/** What an event says, in one line. */
function saying(entry) {
  const data = entry.data || {};
  const words = data.reason || data.text || data.summary || data.note || data.feedback || data.message || data.name || "";
  const by = data.by || data.holder || data.author || "";
  return [by && `by ${by}`, typeof words === "string" ? words : ""].filter(Boolean).join(": ");
}

export function timeline(history) {
  return h("ol", { class: "timeline" }, [...history].reverse().map((entry) => h("li", {},
    h("time", { class: "dim" }, moment(entry.at)),
    h("span", { class: `mark s-${entry.state}`, title: STATES[entry.state].words }, STATES[entry.state].mark),
    h("span", { class: "kind" }, entry.kind.replaceAll("_", " ")),
    h("span", { class: "words" }, saying(entry)))));
}

/** Each attempt: who, how long, what it cost, how it ended. */
export function attemptsOf(history) {
  const attempts = new Map();
  let current = null;
  for (const entry of history) {
    if (entry.trigger === "Claim") {
      current = { epoch: entry.epoch, by: entry.data?.holder || "", from: entry.at, to: 0, usd: 0, end: "", words: "" };
      attempts.set(entry.epoch, current);
      continue;
    }
    if (!current) continue;
    if (entry.trigger === "Spend") current.usd += entry.data?.cost?.usd || 0;
    if (entry.trigger === "Report") current.usd += entry.data?.cost?.usd || 0;
    if (entry.state !== "in_progress" && !current.to) Object.assign(current, { to: entry.at, end: entry.kind.replaceAll("_", " "), words: saying(entry) });
  }
  if (!attempts.size) return h("p", { class: "dim" }, "None yet.");
  return h("div", { class: "attempts", tabindex: "0", role: "region", "aria-label": "Attempts" }, [...attempts.values()].map((each) => h("div", { class: "attempt" },
    h("h3", {}, `Attempt ${each.epoch}`),
    h("p", { class: "dim" }, each.by),
    h("p", {}, each.to ? `${each.end} after ${age(each.to - each.from)}` : "under way", each.usd ? `, ${money(each.usd)}` : ""),
    h("p", { class: "words" }, each.words))));
}
