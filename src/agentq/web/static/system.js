// Workers, circuits, limits, hooks, plugins, settings: what a person looks at when something stands.

import { act, actOnAll } from "./actions.js";
import { board, decide, part, Refused, trying } from "./api.js";
import { fill, h, worded } from "./dom.js";
import { cards, now, provedWords, state, watch } from "./live.js";
import { panel, table } from "./table.js";
import { age, moment } from "./words.js";

export function systemView(main) {
  const place = h("div", { class: "panels" });
  const dead = h("div", {});
  fill(main, h("h1", {}, "System"), place);
  let ended = false;
  let timer = 0;
  const load = async () => {
    timer = 0;
    try {
      const found = await board("system");
      if (!ended) fill(place, panels(found, dead, load));
      showDead(dead);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(place, h("p", {}, error.message));
    }
  };
  load();
  const unwatch = watch((ids) => { if (!timer) timer = setTimeout(load, 2000); if (ids.size) showDead(dead); });
  return { end: () => { ended = true; unwatch(); clearTimeout(timer); } };
}

function panels(found, dead, load) {
  const close = (each) => trying(() => decide(each.role ? `roles/${part(each.role)}/circuit/close` : `circuits/${part(each.provider)}/close`), "Closed.").then(load);
  return [
    panel("Workers", table([
      ["role", (each) => each.role], ["agent", (each) => each.agent], ["machine", (each) => `${each.machine} ${each.pid || ""}`],
      [">slots", (each) => (each.slots ? `${each.running.length} / ${each.slots}` : each.running.length || "")],
      [">heartbeat", (each) => (each.seen_at ? age(now() - each.seen_at) : "")],
      ["", (each) => each.problem || (each.is_gone ? "gone" : each.is_ending ? "ending" : each.running[0]?.words || "")],
    ], found.workers, "Nobody claims tasks here: `agentq up` or `agentq worker` does.", "Workers")),
    panel("Circuits", table([
      ["of", (each) => each.role || each.provider], ["since", (each) => moment(each.opened_at)], ["until", (each) => (each.role ? "somebody closes it" : moment(each.open_until))],
      ["why", (each) => each.reason], ["", (each) => h("button", { type: "button", onclick: () => close(each) }, "Close")],
    ], found.circuits, "All are closed: claims go on.", "Circuits")),
    panel("Dead letters", dead),
    panel("Proof", ...proof(state.overview)),
    panel("Hooks", table([
      ["hook", (each) => each.name], ["health", (each) => each.health], [">done", (each) => each.counts.done || ""], [">failed", (each) => each.counts.failed || ""],
      ["last", (each) => moment(each.last_at)], ["", (each) => each.error],
    ], found.hooks, "None: files hooks/NAME.md take webhooks in.", "Hooks")),
    panel("Plugins in use", table([
      ["lane", (each) => each.lane], ["plugin", (each) => each.plugin], [">waiting", (each) => each.backlog], ["breaker", (each) => each.breaker], [">calls", (each) => each.calls],
      ["", (each) => each.problem || each.last_error || ""],
    ], found.plugins, "The settings use none.", "Plugins")),
    panel("Limits", table([
      ["role", ([name]) => name], [">running", ([, each]) => each.max_running || ""], [">review", ([, each]) => each.max_review || ""],
      ["", ([, each]) => (each.paused ? "paused" : "")],
    ], Object.entries(found.limits).filter(([, each]) => each.max_running || each.max_review || each.paused), "No role has any.", "Limits")),
    panel("Settings", table([["setting", (each) => h("code", {}, each.name)], ["value", (each) => each.value], ["from", (each) => each.from]],
      found.settings, "Nothing is set.", "Settings")),
  ];
}

/** Up to where the log is proved and sealed, and how to prove it again. */
function proof(overview) {
  if (!overview?.seal) return [h("p", { class: "dim" }, worded("Nothing is sealed yet: `agentq up` does it every ten minutes, `agentq seal` at once."))];
  return [
    h("p", {}, `${provedWords(overview)}, ${moment(overview.proved_at)}.`),
    h("p", { class: "dim" }, "Keep this digest elsewhere; with it anybody can prove that nothing before was changed, removed or added:"),
    h("p", {}, h("code", { class: "wraps" }, `agentq verify --seal ${overview.seal}`)),
  ];
}

function showDead(place) {
  const found = [...cards.values()].filter((card) => card.decision === "dead_letter").sort((a, b) => b.at - a.at);
  const mark = found.map((card) => `${card.id}${card.version}`).join();
  if (place.dataset.mark === mark && place.children.length) return;
  place.dataset.mark = mark;
  fill(place, found.length > 1 && h("button", { type: "button", class: "primary", onclick: () => actOnAll("requeue", found) }, `Requeue all ${found.length}`),
    table([["task", (card) => h("a", { href: `#/tasks/${part(card.id)}` }, card.title)], ["role", (card) => card.role], [">age", (card) => age(now() - card.at)],
      ["why", (card) => card.reason], ["", (card) => h("button", { type: "button", onclick: () => act("requeue", card) }, "Requeue")]], found.slice(0, 200), "None.", "Dead letters"));
}
