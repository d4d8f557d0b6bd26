// Where everything begins: addresses to views, keys, the count in the title.

import { boardView } from "./board.js";
import { h, tagged } from "./dom.js";
import { brokenRoles, cards, start, state, waiting, watch } from "./live.js";
import { closeMenu } from "./menu.js";
import { roleList } from "./new_task.js";

const main = document.getElementById("main");
/** The views by the first part of their address; all but the board are fetched when they are needed. */
const VIEWS = {
  "": () => boardView,
  waiting: async () => (await import("./waiting.js")).waitingView,
  tasks: async () => (await import("./task.js")).taskView,
  runs: async () => (await import("./runs.js")).runsView,
  organisation: async () => (await import("./organisation.js")).organisationView,
  numbers: async () => (await import("./numbers.js")).numbersView,
  system: async () => (await import("./system.js")).systemView,
};
const KEYS = [
  ["/", "filter"], ["?", "this list"], ["n", "new task"], ["arrows, h j k l", "from card to card"], ["Enter", "open a card"],
  ["a", "approve"], ["r", "request changes, answer, requeue"], ["c", "cancel"], ["p", "priority"], ["w", "hold"], ["d", "dispatch"], ["e", "edit"], ["b", "bring a change into its branch (apply)"], ["m", "everything else"],
  ["x, X", "choose a card, choose all (twice: also those not shown)"], ["g then b w r o n s", "board, waiting for you, runs, organisation, numbers, system"], ["Esc", "close, go back"],
];

let current = null;
let shown = 0;

async function route() {
  closeMenu();
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const load = VIEWS[name] || VIEWS[""];
  const turn = ++shown;
  const make = await load();
  if (turn !== shown) return;
  current?.end();
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === (name === "tasks" ? "" : name)) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else link.removeAttribute("aria-current");
  }
  main.className = `view-${name || "board"}`;
  current = make(main, new URLSearchParams(query), go, rest.map(decodeURIComponent)) || { end: () => {} };
  window.scrollTo(0, 0);
}

function go(where) {
  if (location.hash === where) route();
  else location.hash = where;
}

// -- keys --------------------------------------------------------------------------------------------

let leader = 0;

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (leader && Date.now() - leader < 1500) {
    leader = 0;
    const view = { b: "", w: "waiting", r: "runs", o: "organisation", n: "numbers", s: "system" }[event.key];
    if (view !== undefined) { event.preventDefault(); go(`#/${view}`); return; }
  }
  if (event.key === "g") leader = Date.now();
  else if (event.key === "?") help();
  else if (event.key === "Escape" && location.hash.startsWith("#/tasks/")) history.back();
  else if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  else if (!current?.keys?.(event)) return;
  event.preventDefault();
});

function help() {
  const dialog = h("dialog", { "aria-label": "Keys" }, h("form", { method: "dialog" }, h("h2", {}, "Keys"),
    h("dl", { class: "keys" }, KEYS.flatMap(([key, words]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, words)])),
    h("label", { class: "row" }, h("input", { type: "checkbox", checked: localStorage.getItem("agentq tell") === "yes", onchange: tellOrNot }),
      "Tell me by a notification of this browser when something waits for me"),
    h("div", { class: "row end" }, h("button", { class: "primary" }, "Close"))));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

async function tellOrNot(event) {
  const wanted = event.target.checked && "Notification" in window && (await Notification.requestPermission()) === "granted";
  event.target.checked = wanted;
  localStorage.setItem("agentq tell", wanted ? "yes" : "no");
}

// -- how many wait for a person ------------------------------------------------------------------------

let known = null;

function countWaiting() {
  const found = waiting();
  const number = found.length + brokenRoles().length;
  const badge = document.querySelector("nav .count");
  badge.hidden = !number;
  badge.textContent = String(number);
  document.title = `${number ? `(${number}) ` : ""}agentq`;
  const ids = new Set(found.map((card) => `${card.id} ${card.decision}`));
  if (known && localStorage.getItem("agentq tell") === "yes" && Notification.permission === "granted") {
    for (const card of found) {
      if (!known.has(`${card.id} ${card.decision}`)) new Notification("agentq: waits for you", { body: card.title, tag: card.id });
    }
  }
  known = ids;
}

async function begin() {
  document.getElementById("keys").addEventListener("click", help);
  window.addEventListener("hashchange", route);
  await start();
  roleList();
  await route();
  watch(countWaiting);
  countWaiting();
  document.documentElement.dataset.ready = "yes";
}

begin();
// What a test or a person at the console may look at.
window.agentq = { cards, state, person: tagged("person") };
