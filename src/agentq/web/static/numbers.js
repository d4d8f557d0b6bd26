// Numbers: what was done, how long it took, what failed and what it cost, over time.

import { board, Refused } from "./api.js";
import { chart } from "./chart.js";
import { fill, h, worded } from "./dom.js";
import { watch } from "./live.js";
import { duration } from "./words.js";

const RANGES = { "1h": "1 hour, by minute", "24h": "24 hours, by quarter", "30d": "30 days (UTC)" };
/** Up to where the charts of lengths of time go, in seconds: halves of these are short to say, too. */
const LENGTHS = [0.1, 1, 2, 4, 10, 20, 60, 120, 240, 600, 1200, 2400, 3600, 7200, 14_400, 28_800, 57_600, 86_400, 172_800];
/** Something may happen many times a second; the numbers are asked for again this often at most. */
const AGAIN_MS = 5000;
const COLUMNS = ["submitted", "started", "completed", "dead", "cancelled", "failed", "crashed", "retried", "failure_rate",
  "waiting_p50_seconds", "waiting_p95_seconds", "processing_p50_seconds", "processing_p95_seconds", "usd", "estimated_usd", "tokens"];
/** What a sample has under this name; its costs are below `cost`, and nothing where there are none. */
const valueOf = (sample, name) => (["usd", "estimated_usd", "tokens"].includes(name) ? sample.cost[name] || 0 : sample[name]);

export function numbersView(main, query, go) {
  const range = query.get("range") in RANGES ? query.get("range") : "24h";
  const role = query.get("role") || "";
  const head = h("div", { class: "tools" });
  const place = h("div", { class: "charts" });
  const table = h("div", { class: "by-role", tabindex: "0" });
  const note = h("p", { class: "dim", role: "status" }, "…");
  fill(main, h("h1", {}, "Numbers"), head, note, place, table);
  let found = null, ended = false, busy = false, again = 0, shown = "";

  const address = (to) => {
    const words = new URLSearchParams({ range, role, ...to });
    if (!words.get("role")) words.delete("role");
    return `#/numbers?${words}`;
  };
  const names = () => [...new Set([role, ...(found?.sums || []).map((each) => each.role)])].filter(Boolean).sort();
  const draw = () => {
    fill(head,
      h("div", { class: "row", role: "group", "aria-label": "Range" }, Object.entries(RANGES).map(([name, words]) =>
        h("a", { href: address({ range: name }), class: "choice", "aria-current": name === range ? "true" : null, title: words }, name))),
      h("label", { class: "row" }, "Role", roleChoice(names(), role, (name) => go(address({ role: name })))),
      h("button", { type: "button", onclick: () => download(found, range, role) }, "CSV"));
    fill(note, found.behind ? "Older events are still being counted: these numbers will grow." : `${RANGES[range]}. Percentiles are estimated from buckets.`);
    fill(place, charts(found, role));
    fill(table, sums(found, address));
  };
  const load = async () => {
    if (busy || ended) return;
    busy = true;
    try {
      const answer = await board("numbers", { period: range });
      const mark = JSON.stringify([answer.since, answer.points]);
      found = answer;
      // Nothing moves without reason: whoever looks at a value keeps it until there is news.
      if (!ended && mark !== shown) { shown = mark; draw(); }
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (!ended) fill(note, worded(`${error.message} ${error.remedy}`));
    } finally {
      busy = false;
    }
  };
  load();
  const unwatch = watch(() => {
    if (again) return;
    again = setTimeout(() => { again = 0; load(); }, AGAIN_MS);
  });
  return { end: () => { ended = true; clearTimeout(again); unwatch(); }, keys: (event) => keys(event, range, address, go) };
}

function keys(event, range, address, go) {
  const ranges = Object.keys(RANGES);
  const move = { "[": -1, "]": 1 }[event.key];
  if (!move) return false;
  const next = ranges[ranges.indexOf(range) + move];
  if (next) go(address({ range: next }));
  return true;
}

function roleChoice(names, role, choose) {
  const select = h("select", { onchange: (event) => choose(event.target.value) },
    h("option", { value: "" }, "all"), names.map((name) => h("option", { value: name }, name)));
  select.value = role;
  return select;
}

function charts(found, role) {
  const times = [];
  for (let at = found.since; at <= found.until; at += found.span_ms) times.push(at);
  const points = new Map(found.points.filter((each) => each.role === role).map((each) => [each.at, each]));
  const values = (name, none) => times.map((at) => { const point = points.get(at); return (point && valueOf(point, name)) ?? none; });
  const make = (title, say, ...series) => chart({ title, times, span: found.span_ms, say, series, roofs: say === seconds ? LENGTHS : [] });
  return [
    make("Throughput", count, { name: "completed", kind: "bar", values: values("completed", 0), mark: 0 },
      { name: "submitted", kind: "line", adds: true, values: values("submitted", 0), mark: 1 }),
    make("Failures", count, { name: "failed attempts", kind: "bar", values: values("failed", 0), mark: 2 },
      { name: "dead letters", kind: "line", adds: true, values: values("dead", 0), mark: 1 }),
    make("Waiting, from ready to claimed", seconds, { name: "p95", kind: "line", values: values("waiting_p95_seconds", null), mark: 1 },
      { name: "p50", kind: "line", values: values("waiting_p50_seconds", null), mark: 0 }),
    make("Processing, from claimed to left", seconds, { name: "p95", kind: "line", values: values("processing_p95_seconds", null), mark: 1 },
      { name: "p50", kind: "line", values: values("processing_p50_seconds", null), mark: 0 }),
    make("Cost", usd, { name: "spent", kind: "bar", values: values("usd", 0), mark: 0 }),
    make("Tokens", count, { name: "tokens", kind: "bar", values: values("tokens", 0), mark: 0 }),
  ];
}

function sums(found, address) {
  const heads = ["role", "submitted", "completed", "dead", "failed", "of attempts", "retried", "waits p50", "p95", "runs p50", "p95", "cost"];
  const kinds = (each) => Object.entries(each.failures).map(([kind, number]) => `${kind} ${number}`).join(", ");
  return h("table", { class: "sums" }, h("caption", {}, "By role"),
    h("thead", {}, h("tr", {}, heads.map((words) => h("th", { scope: "col" }, words)))),
    h("tbody", {}, found.sums.map((each) => h("tr", {},
      h("th", { scope: "row" }, h("a", { href: address({ role: each.role }) }, each.role || "all")),
      h("td", {}, count(each.submitted)), h("td", {}, count(each.completed)), h("td", {}, count(each.dead)),
      h("td", { title: kinds(each) || null }, count(each.failed)),
      h("td", {}, each.failure_rate === null ? "" : `${(each.failure_rate * 100).toFixed(1)} %`), h("td", {}, count(each.retried)),
      ["waiting_p50_seconds", "waiting_p95_seconds", "processing_p50_seconds", "processing_p95_seconds"].map((name) =>
        h("td", {}, each[name] === null ? "" : seconds(each[name]))),
      h("td", {}, (each.cost.estimated_usd ? "~" : "") + usd(each.cost.usd || 0))))));
}

// -- words ---------------------------------------------------------------------------------------------

function count(value) {
  if (value >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  return value >= 1e4 ? `${+(value / 1e3).toPrecision(3)} k` : String(+value.toPrecision(4));
}

function usd(value) {
  return `$${value >= 100 ? value.toFixed(0) : value.toFixed(2)}`;
}

const seconds = (value) => duration(value * 1000);

// -- a file --------------------------------------------------------------------------------------------

/** What a spreadsheet would take for a formula is kept text by an apostrophe. */
function cell(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(found, range, role) {
  const points = found.points.filter((each) => each.role && (!role || each.role === role))
    .sort((a, b) => a.at - b.at || (a.role < b.role ? -1 : 1));
  const lines = [["at", "seconds", "role", ...COLUMNS], ...points.map((each) =>
    [new Date(each.at).toISOString(), found.span_ms / 1000, each.role, ...COLUMNS.map((name) => valueOf(each, name))])];
  const link = h("a", { download: `agentq-${role ? `${role}-` : ""}${range}.csv`,
    href: URL.createObjectURL(new Blob([lines.map((line) => line.map(cell).join(",")).join("\r\n"), "\r\n"], { type: "text/csv" })) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
