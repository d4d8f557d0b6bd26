// The board: columns by state. It decides nothing: cards move when the ledger says so.

import { act, ACTIONS, actionsFor, actOnAll, verbFor } from "./actions.js";
import { Refused } from "./api.js";
import { cardElement, freshenAges, markOf } from "./cards.js";
import { Choice } from "./choice.js";
import { Column } from "./column.js";
import { ask, fill, h, toast } from "./dom.js";
import { FIELD_NAMES, GROUPS, parse, passes } from "./filters.js";
import { cards, settled, state, watch } from "./live.js";
import { openMenu } from "./menu.js";
import { newTask } from "./new_task.js";
import { dropView, savedViews, saveView } from "./saved_views.js";
import { PRIORITIES } from "./words.js";

const COLUMNS = [
  ["pending", "Pending"], ["ready", "Ready"], ["in_progress", "In progress"], ["blocked", "Blocked"],
  ["review", "Review"], ["complete", "Complete"], ["failed", "Failed"], ["cancelled", "Cancelled"],
];
const columnOf = (card) => { const where = card.moving || card.state; return where === "expired" ? "failed" : where; };
const RANK = Object.fromEntries(PRIORITIES.map((name, number) => [name, number]));

export function boardView(main, query, go) {
  const view = new Board(main, query, go);
  const unwatch = watch(() => view.update());
  const ages = setInterval(() => freshenAges(main), 5000);
  return { keys: (event) => view.key(event), end: () => { unwatch(); clearInterval(ages); } };
}

class Board {
  constructor(main, query, go) {
    this.go = go;
    this.query = { q: query.get("q") || "", group: query.get("group") || "" };
    this.tests = parse(this.query.q);
    this.chosen = new Choice();
    this.current = "";
    this.columns = new Map();
    this.search = h("input", { type: "search", id: "search", placeholder: "role:build -label:area=web words …  ( / )",
      "aria-label": "Filter cards", value: this.query.q, list: "fields", oninput: () => this.changed() });
    this.group = h("select", { "aria-label": "Group by", onchange: () => this.changed() },
      Object.keys(GROUPS).map((name) => h("option", { value: name }, name ? `by ${name}` : "no groups")));
    this.group.value = GROUPS[this.query.group] ? this.query.group : "";
    this.views = h("span", { class: "views" });
    this.bulk = h("div", { class: "bulk", role: "toolbar", "aria-label": "For all that are chosen", hidden: true });
    this.count = h("span", { class: "dim", role: "status" });
    const bar = h("div", { class: "tools" }, this.search, this.group,
      h("button", { type: "button", class: "primary", onclick: () => newTask() }, "New task"),
      h("button", { type: "button", onclick: () => this.save() }, "Save view"), this.views, this.count);
    this.lanes = h("div", { class: "columns" }, COLUMNS.map(([name, words]) => this.column(name, words)));
    fill(main, h("h1", { class: "unseen" }, "Board"), bar, this.bulk, this.lanes,
      h("datalist", { id: "fields" }, FIELD_NAMES.map((name) => h("option", { value: `${name}:` }))));
    this.showViews();
    this.update();
  }

  column(name, words) {
    const scroller = h("div", { class: "scroller", tabindex: "-1" });
    const number = h("span", { class: "number" });
    const section = h("section", { class: `column c-${name}`, "data-column": name, "aria-label": words },
      h("h2", {}, words, " ", number), scroller);
    const column = new Column(scroller, (row) => this.draw(row));
    this.columns.set(name, { column, number, section });
    section.addEventListener("dragover", (event) => { event.preventDefault(); section.classList.add("over"); });
    section.addEventListener("dragleave", () => section.classList.remove("over"));
    section.addEventListener("drop", (event) => {
      event.preventDefault();
      section.classList.remove("over");
      this.drop(cards.get(event.dataTransfer.getData("text/plain")), name, event.target.closest("[data-key]"));
    });
    return section;
  }

  draw(row) {
    if (row.head !== undefined) return h("div", { class: "group", role: "listitem" }, row.head, h("span", { class: "number" }, row.count));
    const element = cardElement(row.card, { chosen: this.chosen.has(row.card.id) });
    element.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) this.choose(row.card.id);
      else this.go(`#/tasks/${encodeURIComponent(row.card.id)}`);
    });
    element.addEventListener("contextmenu", (event) => { event.preventDefault(); this.menu(row.card, element); });
    element.addEventListener("focus", () => { this.current = row.card.id; });
    element.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", row.card.id));
    return element;
  }

  // -- what is shown ------------------------------------------------------------------------------

  visible() {
    return [...cards.values()].filter((card) => passes(card, this.tests));
  }

  update() {
    const by = new Map(COLUMNS.map(([name]) => [name, []]));
    const focused = document.activeElement?.dataset?.id;
    const shown = this.visible();
    for (const card of shown) by.get(columnOf(card))?.push(card);
    for (const [name, found] of by) {
      found.sort(name === "ready" || name === "pending"
        ? (a, b) => RANK[a.priority] - RANK[b.priority] || a.since - b.since : (a, b) => b.at - a.at);
      const { column, number, section } = this.columns.get(name);
      const limit = this.limit(name);
      const words = limit ? `${found.length} / ${limit}` : String(found.length);
      if (number.textContent !== words) number.textContent = words;
      section.classList.toggle("full", Boolean(limit) && found.length >= limit);
      section.classList.toggle("empty-column", !found.length);
      column.set(this.rows(found));
    }
    const all = state.more || state.moreEnded ? ` of the newest ${cards.size}; older ones are in \`agentq list\`` : "";
    const words = `${shown.length} cards${all}`;
    if (this.count.textContent !== words) this.count.textContent = words;
    // The focus goes where its card goes.
    if (focused && document.activeElement === document.body && cards.has(focused)) {
      this.columns.get(columnOf(cards.get(focused)))?.column.focus(focused);
    }
    this.ensureEntry();
    this.showBulk(shown);
  }

  rows(found) {
    const row = (card) => ({ key: card.id, mark: markOf(card, this.chosen.has(card.id)), card });
    const group = GROUPS[this.group.value];
    if (!this.group.value) return found.map(row);
    const by = new Map();
    for (const card of found) {
      const name = group(card, cards);
      if (!by.has(name)) by.set(name, []);
      by.get(name).push(card);
    }
    return [...by.keys()].sort((a, b) => RANK[a] - RANK[b] || (a < b ? -1 : 1)).flatMap((name) => [
      { key: `group ${name}`, mark: `${by.get(name).length}`, head: name, count: by.get(name).length }, ...by.get(name).map(row)]);
  }

  /** How many may be there at once, by the limits of the roles that are shown; 0 for any number. */
  limit(name) {
    const field = { in_progress: "max_running", review: "max_review" }[name];
    if (!field || !state.overview) return 0;
    const roles = state.overview.roles.filter((role) => this.tests.every(({ not, name: what, value }) => what !== "role" || (role.name === value) !== not));
    const limits = roles.map((role) => role.limits[field]);
    return limits.length && limits.every(Boolean) ? limits.reduce((sum, each) => sum + each, 0) : 0;
  }

  changed() {
    this.tests = parse(this.search.value);
    const query = new URLSearchParams();
    if (this.search.value) query.set("q", this.search.value);
    if (this.group.value) query.set("group", this.group.value);
    history.replaceState(null, "", `#/${query.size ? `?${query}` : ""}`);
    this.update();
  }

  // -- deciding -----------------------------------------------------------------------------------

  async drop(card, column, onto) {
    if (!card) return;
    if (columnOf(card) === column) { await this.rank(card, onto?.dataset.key || ""); return; }
    const [verb, why] = verbFor(card, column);
    if (!verb) toast(why, { error: true });
    else await act(verb, card, verb === "hold" ? {} : null); // whoever drags has no more to say
  }

  /** Within its column a card gets the priority of what it is dropped on: a card, or the head of a group. */
  async rank(card, onto) {
    const head = this.group.value === "priority" && onto.startsWith("group ") ? onto.slice("group ".length) : "";
    const priority = cards.get(onto)?.priority || head;
    if (priority && priority !== card.priority && ACTIONS.priority.fits(card)) await act("priority", card, { priority });
  }

  menu(card, element) {
    openMenu(element, [
      ...actionsFor(card).map(([name, action]) => ({ words: action.label, key: action.key, run: () => act(name, card) })),
      { words: this.chosen.has(card.id) ? "Leave out" : "Choose", key: "x", run: () => this.choose(card.id) },
      { words: "Copy its id", run: () => navigator.clipboard.writeText(card.id) },
    ]);
  }

  choose(id) {
    this.chosen.toggle(id);
    this.update();
  }

  /** All cards that pass the filter; asked once more, also the tasks that this board does not hold. */
  chooseAll() {
    const shown = this.visible();
    if (this.hasMore() && shown.every((card) => this.chosen.has(card.id))) return this.chooseBeyond();
    this.chosen.addAll(shown);
    return this.update();
  }

  hasMore() {
    return state.more || state.moreEnded;
  }

  async chooseBeyond() {
    await this.atWork(async (tell) => {
      const all = await this.chosen.addMatching(this.search.value, (number) => tell(`Looking for all that match: ${number} …`));
      if (!all) toast(`There are more: the first ${this.chosen.size} are chosen.`);
    });
  }

  /** Show what goes on in place of the bulk actions, with a way to stop it. */
  async atWork(work) {
    let stopped = false;
    const words = h("strong", { role: "status" }, "…");
    this.working = true;
    this.bulk.hidden = false;
    fill(this.bulk, words, h("button", { type: "button", onclick: () => { stopped = true; } }, "Stop"));
    try {
      await work((text) => { words.textContent = text; return !stopped; });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      toast(error.message, { error: true, remedy: error.remedy });
    } finally {
      this.working = false;
      this.bulk.dataset.mark = "";
      this.update();
    }
  }

  showBulk(shown) {
    if (this.working) return;
    this.chosen.prune();
    const number = this.chosen.size;
    this.bulk.hidden = !number;
    const mark = `${number} ${shown.length} ${this.hasMore()}`;
    if (!number || this.bulk.dataset.mark === mark) return;
    this.bulk.dataset.mark = mark;
    const button = (words, run, kind = "") => h("button", { type: "button", class: kind, onclick: run }, words);
    fill(this.bulk, h("strong", {}, `${number} chosen`),
      number < shown.length && button(`Choose all ${shown.length}`, () => { this.chosen.addAll(this.visible()); this.update(); }),
      this.hasMore() && button("Choose all that match, also those not shown", () => this.chooseBeyond()),
      ["approve", "requeue", "hold", "dispatch", "priority", "reassign", "cancel"].map((name) => button(name, () => this.many(name), name === "cancel" ? "danger" : "")),
      button("Choose none", () => { this.chosen.clear(); this.update(); }, "quiet"));
  }

  async many(name) {
    await this.atWork(async (tell) => {
      const done = await actOnAll(name, this.chosen.tasks(), (decided, all) => tell(`${name}: ${decided} of ${all} …`));
      if (done) this.chosen.clear();
    });
  }

  // -- views that were kept -----------------------------------------------------------------------

  async save() {
    const where = location.hash; // of what was seen when it was asked for
    const given = await ask({ title: "Save this view", fields: [{ name: "name", label: "Name", required: true }], submit: "Save" });
    if (!given) return;
    saveView(given.name, where);
    this.showViews();
  }

  showViews() {
    fill(this.views, savedViews().map(([name, where]) => h("span", { class: "view" },
      h("a", { href: where }, name),
      h("button", { type: "button", class: "quiet", "aria-label": `Forget the view ${name}`, onclick: () => { dropView(name); this.showViews(); } }, "×"))));
  }

  // -- the keyboard -------------------------------------------------------------------------------

  /** One card can be reached by Tab: where one was, else the first. */
  ensureEntry() {
    const shown = this.lanes.querySelector(`[data-id="${CSS.escape(this.current)}"]`) || this.lanes.querySelector(".card");
    for (const each of this.lanes.querySelectorAll('.card[tabindex="0"]')) if (each !== shown) each.tabIndex = -1;
    if (shown) shown.tabIndex = 0;
  }

  key(event) {
    const card = cards.get(document.activeElement?.dataset?.id);
    const moves = { ArrowDown: [0, 1], j: [0, 1], ArrowUp: [0, -1], k: [0, -1], ArrowRight: [1, 0], l: [1, 0], ArrowLeft: [-1, 0], h: [-1, 0] };
    if (event.key === "/") this.search.focus();
    else if (event.key === "n") newTask();
    else if (event.key === "X") this.chooseAll();
    else if (moves[event.key]) this.move(card, ...moves[event.key]);
    else if (!card) return false;
    else if (event.key === "Enter") this.go(`#/tasks/${encodeURIComponent(card.id)}`);
    else if (event.key === "x") this.choose(card.id);
    else if (event.key === "m") this.menu(card, document.activeElement);
    else if (card.moving) settled(card.id).then((found) => found && this.press(found, event.key));
    else return this.press(card, event.key);
    return true;
  }

  press(card, key) {
    const found = actionsFor(card).find(([, action]) => action.key === key);
    if (found) act(found[0], card);
    return Boolean(found);
  }

  move(card, right, down) {
    const names = COLUMNS.map(([name]) => name);
    const ids = (name) => this.columns.get(name).column.rows.filter((row) => row.card).map((row) => row.key);
    let at = card ? names.indexOf(columnOf(card)) : names.findIndex((name) => ids(name).length);
    if (at < 0) return;
    let place = card ? ids(names[at]).indexOf(card.id) : 0;
    if (card && right) {
      let next = at + right;
      while (names[next] && !ids(names[next]).length) next += right;
      if (!names[next]) return;
      at = next;
      place = Math.min(place, ids(names[at]).length - 1);
    } else if (card) {
      place = Math.max(0, Math.min(ids(names[at]).length - 1, place + down));
    }
    const { column, section } = this.columns.get(names[at]);
    section.scrollIntoView({ block: "nearest", inline: "nearest" });
    column.focus(ids(names[at])[place]);
    this.ensureEntry();
  }
}
