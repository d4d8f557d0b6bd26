// All cards, as new as the ledger: read once, then followed by one stream.

import { board, Refused } from "./api.js";

export const cards = new Map();
export const state = { overview: null, counts: {}, more: false, moreEnded: false, offset: 0, words: new Map(), applying: new Map() };

const listeners = new Set();
let changed = new Set();
let scheduled = false;
let source = null;
let brokenSince = 0;
let retry = 0;

/** Call this with the ids that have changed, at most once per frame. The way to stop it. */
export function watch(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The ledger's clock, in milliseconds. */
export function now() {
  return Date.now() + state.offset;
}

/** Show a card elsewhere until the ledger has decided. */
export function expect(id, where) {
  const card = cards.get(id);
  if (!card) return;
  if (where) card.moving = where;
  else delete card.moving;
  tell(id);
}

/** Resolves to a card as the ledger has it, once a decision about it has come back; null if it has gone. */
export function settled(id) {
  return new Promise((resolve) => {
    const stop = watch(() => {
      if (cards.get(id)?.moving) return;
      stop();
      resolve(cards.get(id) || null);
    });
  });
}

function tell(id) {
  changed.add(id);
  if (scheduled) return;
  scheduled = true;
  // Not by frames alone: a page in the background has none, and counts in its title still matter.
  const run = () => {
    if (!scheduled) return;
    scheduled = false;
    const ids = changed;
    changed = new Set();
    for (const listener of [...listeners]) listener(ids);
  };
  if (document.hidden) setTimeout(run, 50);
  else requestAnimationFrame(run);
}

export async function start() {
  try {
    const found = await board("cards");
    state.offset = found.now - Date.now();
    cards.clear();
    state.applying.clear();
    for (const card of found.cards) cards.set(card.id, card);
    Object.assign(state, { counts: found.counts, more: found.more, moreEnded: found.more_ended });
    takeOverview(found.overview);
    follow(found.position);
    retry = 0;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) {
      location.assign("login");
      return;
    }
    broken();
    retry = Math.min(retry + 1, 5);
    setTimeout(start, 500 * 2 ** retry);
  }
}

function follow(position) {
  source?.close();
  source = new EventSource(`board/stream?position=${position}`);
  source.addEventListener("open", () => {
    brokenSince = 0;
    show("live", "live");
    tell("");
  });
  source.addEventListener("cards", (event) => {
    const found = JSON.parse(event.data);
    state.offset = found.now - Date.now();
    for (const card of found.cards) {
      const known = cards.get(card.id);
      if (!known || known.version <= card.version) cards.set(card.id, card);
      tell(card.id);
    }
    for (const id of found.gone) {
      cards.delete(id);
      tell(id);
    }
  });
  source.addEventListener("applying", (event) => takeApplying(JSON.parse(event.data)));
  source.addEventListener("overview", (event) => takeOverview(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    // All is read again: whatever was missed meanwhile is there then.
    source.close();
    broken();
    retry = Math.min(retry + 1, 5);
    setTimeout(start, 250 * 2 ** retry);
  });
}

function takeOverview(overview) {
  state.overview = overview;
  const proved = document.getElementById("proved");
  proved.hidden = !overview.seal;
  proved.textContent = provedWords(overview);
  const before = state.words;
  state.words = new Map(overview.running.map((each) => [each.task_id, each]));
  for (const id of new Set([...before.keys(), ...state.words.keys()])) {
    if (JSON.stringify(before.get(id)) !== JSON.stringify(state.words.get(id))) tell(id);
  }
  tell("");
}

/** Up to where the log is proved, in words; nothing before the first seal. */
export function provedWords(overview) {
  return overview?.seal ? `proved at position ${overview.proved_position}, seal ${overview.seal.slice(0, 12)}…` : "";
}

/** How bringing changes into branches stands, by task: what the server has said of it since it began. */
function takeApplying(jobs) {
  for (const job of jobs) {
    if (state.applying.get(job.task_id)?.number === job.number) continue;
    state.applying.set(job.task_id, job);
    tell(job.task_id);
  }
}

function broken() {
  if (!brokenSince) brokenSince = Date.now();
  show("broken", `reconnecting since ${new Date(brokenSince).toLocaleTimeString()}`);
}

function show(kind, words) {
  const link = document.getElementById("link");
  link.className = `link ${kind}`;
  if (link.textContent !== words) link.textContent = words;
}

/** What a person is asked for: cards, and roles that cannot work. */
export function waiting() {
  return [...cards.values()].filter((card) => card.decision);
}

/** Changes that nobody has brought into a branch yet, the newest first. */
export function changes() {
  return [...cards.values()].filter((card) => card.change).sort((a, b) => b.at - a.at);
}

/** Roles whose circuit needs a person. */
export function brokenRoles() {
  return (state.overview?.circuits || []).filter((each) => each.role);
}
