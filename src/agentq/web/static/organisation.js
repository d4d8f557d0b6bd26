// The organisation: who reports to whom, how each is doing, when each wakes; schedules.

import { board, decide, part, Refused, trying } from "./api.js";
import { fill, h } from "./dom.js";
import { newTask } from "./new_task.js";
import { now, state, watch } from "./live.js";
import { panel, table } from "./table.js";
import { age, money, moment } from "./words.js";

export function organisationView(main) {
  const chart = h("div", {});
  const schedules = h("div", {});
  fill(main, h("h1", {}, "Organisation"), panel("Agents", chart), panel("Schedules", schedules));
  let ended = false;
  let timer = 0;
  const load = async () => {
    timer = 0;
    try {
      const found = await board("organisation");
      if (ended) return;
      fill(chart, found.agents.length ? tree(found.agents) : h("p", { class: "dim" }, "No agents: files agents/NAME.md say who is there."));
      showSchedules(schedules, found.schedules, load);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(chart, h("p", {}, error.message));
    }
  };
  load();
  // Files and inboxes change slowly: once in five seconds at most, and only if something happened.
  const unwatch = watch((ids) => { if (ids.size && !timer) timer = setTimeout(load, 5000); });
  return { end: () => { ended = true; unwatch(); clearTimeout(timer); } };
}

function tree(agents) {
  const known = new Set(agents.map((each) => each.name));
  const below = new Map();
  for (const each of agents) {
    const manager = known.has(each.manager) ? each.manager : "";
    if (!below.has(manager)) below.set(manager, []);
    below.get(manager).push(each);
  }
  const seen = new Set();
  const branch = (each) => {
    seen.add(each.name);
    const under = (below.get(each.name) || []).filter((child) => !seen.has(child.name));
    return h("li", {}, agent(each), under.length ? h("ul", {}, under.map(branch)) : null);
  };
  const roots = (below.get("") || []).map(branch);
  return h("ul", { class: "tree" }, roots, agents.filter((each) => !seen.has(each.name)).map(branch));
}

function agent(each) {
  if (each.error) return h("div", { class: "line" }, h("strong", {}, each.name), h("span", { class: "unproved" }, each.error));
  const roles = new Set(each.roles);
  const running = (state.overview?.running || []).filter((task) => roles.has(task.role));
  const held = (state.overview?.roles || []).find((role) => roles.has(role.name))?.held_back;
  const wakes = each.wakes;
  const counts = [["ready", "ready"], ["in_progress", "running"], ["blocked", "blocked"]]
    .filter(([name]) => each.tasks[name]).map(([name, words]) => `${each.tasks[name]} ${words}`).join(", ");
  return h("div", { class: "line agent" },
    h("span", { class: running.length ? "mark s-in_progress" : "mark s-pending", title: running.length ? "works" : "rests" }, running.length ? "●" : "○"),
    h("a", { href: `#/?q=${encodeURIComponent(`role:${each.roles[0]}`)}` }, each.name),
    h("span", { class: "dim about" }, each.description || each.tool),
    running[0] && h("span", {}, running[0].words || running[0].note || running[0].title),
    counts && h("span", { class: "dim" }, counts),
    each.inbox ? h("span", { class: "tag high" }, `inbox ${each.inbox}`) : null,
    each.seen_at ? h("span", { class: "dim" }, `heartbeat ${age(now() - each.seen_at)} ago`) : null,
    each.budget_usd ? h("span", { class: "dim" }, `budget ${money(each.budget_usd)}`) : null,
    wakes && h("span", { class: "dim" }, wakes.next_at ? `wakes in ${age(wakes.next_at - now())}` : "wakes by events",
      wakes.skipped ? `, ${wakes.skipped} skipped` : "", wakes.not_spent_usd ? `, ${money(wakes.not_spent_usd)} not spent` : ""),
    held && h("span", { class: "unproved" }, held),
    h("button", { type: "button", class: "quiet", "aria-label": `New task for ${each.name}`, onclick: () => newTask(each.roles[0]) }, "+"));
}

function showSchedules(place, schedules, load) {
  const change = (each, what) => trying(() => decide(`schedules/${part(each.name)}`, { change: what }), "Done.").then(load);
  fill(place, table([
    ["schedule", (each) => each.name], ["when", (each) => each.rule.replace(` ${each.zone}`, "")], ["zone", (each) => each.zone],
    ["next", (each) => (each.paused ? "paused" : moment(each.next_at))], [">fired", (each) => each.fired || ""], [">skipped", (each) => each.skipped || ""],
    ["", (each) => each.problem || each.note || ""],
    ["", (each) => h("button", { type: "button", onclick: () => change(each, each.paused ? "resume" : "pause") }, each.paused ? "Resume" : "Pause")],
  ], schedules, "No schedules: files schedules/NAME.md say what occurs when.", "Schedules"));
}
