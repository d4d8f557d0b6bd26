// Runs of workflows: a list, and one of them drawn as a graph that is alive.

import { act } from "./actions.js";
import { board, decide, part, Refused, trying } from "./api.js";
import { fill, h, worded } from "./dom.js";
import { graph } from "./graph.js";
import { cards, now, watch } from "./live.js";
import { panel, table } from "./table.js";
import { age, duration, money, standingOf, STATES } from "./words.js";

export function runsView(main, query, go, [id]) {
  return id ? oneRun(main, id) : allRuns(main);
}

function allRuns(main) {
  const place = h("div", {});
  fill(main, h("h1", {}, "Runs"), place);
  const update = () => {
    const runs = [...cards.values()].filter((card) => card.workflow).sort((a, b) => b.since - a.since);
    fill(place, table([
      ["run", (run) => h("a", { href: `#/runs/${part(run.id)}` }, run.title)],
      ["workflow", (run) => run.workflow],
      ["state", (run) => [h("span", { class: `mark s-${run.state}` }, STATES[run.state].mark), " ", STATES[run.state].words]],
      [">age", (run) => age(now() - run.since)],
      [">cost", (run) => money(run.usd)],
      ["", (run) => run.reason || run.note || run.summary || ""],
    ], runs, "No runs yet. `agentq run NAME` starts one.", "Runs"));
  };
  update();
  const unwatch = watch((ids) => { if ([...ids].some((each) => !each || cards.get(each)?.workflow)) update(); });
  return { end: unwatch };
}

function oneRun(main, id) {
  const head = h("header", { class: "task-head" });
  const picture = h("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": "The graph of the run" });
  const steps = h("div", {});
  const meter = h("div", {});
  fill(main, head, panel("Graph", picture), h("div", { class: "panels" }, panel("Steps", steps), panel("Coordination", meter)));
  let timer = 0;
  let ended = false;
  const known = new Set([id]);
  const load = async () => {
    timer = 0;
    try {
      const found = await board("run", { id });
      if (ended) return;
      const tasks = found.steps.flatMap((step) => [...step.tasks, ...step.below]);
      for (const task of tasks) known.add(task.id);
      showHead(head, found);
      const overhead = tasks.length ? await decide("lookups/overhead", { ids: [id, ...tasks.map((task) => task.id)] }).catch(quiet) : null;
      if (ended) return;
      fill(picture, graph(found.steps, new Set(overhead?.path || [])));
      showSteps(steps, found.steps);
      showMeter(meter, overhead);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      fill(head, h("h1", {}, id), h("p", {}, worded(`${error.message} ${error.remedy}`)));
    }
  };
  load();
  const unwatch = watch((ids) => { if (!timer && [...ids].some((each) => known.has(each) || known.has(cards.get(each)?.parent))) timer = setTimeout(load, 250); });
  return { end: () => { ended = true; unwatch(); clearTimeout(timer); } };
}

const quiet = (error) => { if (error instanceof Refused) return null; throw error; };

function showHead(head, { run, problem, usd }) {
  fill(head, h("p", { class: "dim" }, h("a", { href: "#/runs" }, "Runs"), " / ", h("code", {}, run.id)), h("h1", {}, run.title),
    h("div", { class: "line" }, h("span", { class: `badge s-${run.state}` }, STATES[run.state].mark, " ", STATES[run.state].words),
      h("span", {}, run.workflow), h("span", { class: "dim" }, age(now() - run.since)), h("span", { class: "dim" }, money(usd)),
      h("a", { href: `#/tasks/${part(run.id)}` }, "its task")),
    problem && h("p", { class: "unproved" }, problem),
    h("div", { class: "row" },
      ["failed", "expired"].includes(run.state) && h("button", { type: "button", class: "primary", title: `agentq runs retry ${run.id}`, onclick: () => act("requeue", run) }, "Retry"),
      !["complete", "failed", "expired", "cancelled"].includes(run.state) && h("button", { type: "button", class: "danger", title: `agentq runs cancel ${run.id}`,
        onclick: () => trying(() => decide(`tasks/${part(run.id)}/cancel`, { reason: "", tree: true }), "Cancelled, with all its open steps.") }, "Cancel")));
}

function showSteps(place, steps) {
  fill(place, table([
    ["step", (step) => (step.tasks[0] ? h("a", { href: `#/tasks/${part(step.tasks[0].id)}` }, step.id) : step.id)],
    ["role", (step) => step.role],
    ["state", (step) => standingOf(step).replaceAll("_", " ")],
    [">attempts", (step) => step.tasks.reduce((sum, task) => sum + (task.epoch || 0), 0) || ""],
    [">cost", (step) => money([...step.tasks, ...step.below].reduce((sum, task) => sum + (task.usd || 0), 0))],
    ["", (step) => step.why || step.tasks[0]?.reason || step.tasks[0]?.summary || ""],
  ], steps, "No steps yet.", "Steps"));
}

function showMeter(place, overhead) {
  if (!overhead) { fill(place, h("p", { class: "dim" }, "Nothing to measure yet.")); return; }
  const phases = overhead.phases.filter((each) => each.span_ms);
  const longest = Math.max(...phases.map((each) => each.span_ms), 1);
  fill(place,
    h("p", {}, `${duration(overhead.wall_ms)} in all, ${duration(overhead.critical_path_ms)} of it on the critical path, ${duration(overhead.work_ms)} of work.`),
    overhead.bottleneck && h("p", { class: "say" }, worded(overhead.bottleneck.text)),
    table([["", (each) => each.phase.replaceAll("_", " ")], [">time", (each) => duration(each.span_ms)], [">cost", (each) => money(each.cost?.usd)],
      ["", (each) => { const bar = h("span", {}); bar.style.width = `${(100 * each.span_ms) / longest}%`; return h("div", { class: "meter" }, bar); }]],
    phases, "Nothing took any time yet.", "Phases"));
}

