// What a person can do with a task, and how: the same verbs as the command line, and its words.

import { decide, part, Refused, trying } from "./api.js";
import { apply, applyCommand, isApplying, planOf } from "./applying.js";
import { ask, toast } from "./dom.js";
import { cards, expect } from "./live.js";
import { PRIORITIES, shell } from "./words.js";

const OPEN = ["pending", "ready", "in_progress", "review", "blocked"];
const at = (card, verb) => `tasks/${part(card.id)}/${verb}`;
const text = (label, required = true) => ({ name: "text", label, lines: 4, required });

/** Whether only somebody's hold, or a delay, is there for a dispatch to end. */
const isKeptBack = (card) => Boolean(card.waits?.held || card.waits?.until);
/** Whether it waits for more than that. */
const waitsForOthers = (card) => card.decision === "approval" || ["after", "children", "signals"].some((name) => card.waits?.[name]);

/** Each: what it is called, when it can be done, what it asks (`plan` looks first), where the card goes
 *  meanwhile, the request, the command. The ledger decides; what is offered here is only what makes sense. */
export const ACTIONS = {
  approve: {
    label: "Approve", key: "a", primary: true, fits: (card) => ["approval", "review"].includes(card.decision) || (card.state === "review"),
    to: (card) => (card.state === "review" ? "complete" : "ready"),
    send: (card) => decide(at(card, "approve"), {}, { version: card.version }),
    command: (card) => `agentq approve ${card.id}`,
  },
  changes: {
    label: "Request changes", key: "r", fits: (card) => card.state === "review", to: () => "ready",
    asks: () => [text("What should be different?")],
    send: (card, given) => decide(at(card, "reject"), { reason: given.text, changes: true }, { version: card.version }),
    command: (card, given) => `agentq reject ${card.id} --changes --reason ${shell(given?.text || "…")}`,
  },
  reject: {
    label: "Reject", danger: true, fits: (card) => ["approval", "review"].includes(card.decision), to: () => "failed",
    asks: () => [text("Why?")],
    send: (card, given) => decide(at(card, "reject"), { reason: given.text }, { version: card.version }),
    command: (card, given) => `agentq reject ${card.id} --reason ${shell(given?.text || "…")}`,
  },
  answer: {
    label: "Answer", key: "r", primary: true, fits: (card) => card.state === "blocked", to: () => "ready",
    asks: (card) => [{ ...text("Your answer", false), label: card.reason ? `Your answer to: ${card.reason}` : "Your answer" },
      { name: "resolution", label: "Then", options: ["retry", "done", "give_up"] }],
    send: (card, given) => decide(at(card, "answer"), { text: given.text, resolution: given.resolution }, { version: card.version }),
    command: (card, given) => `agentq answer ${card.id} ${shell(given?.text || "…")}`,
  },
  budget: {
    label: "Raise budget", fits: (card) => card.state === "blocked", to: () => "ready",
    asks: () => [{ name: "usd", label: "US dollars more", type: "number", step: "0.01", min: "0", required: true, value: "1" }],
    send: (card, given) => decide(at(card, "answer"), { text: "The budget was raised.", extra_budget: { usd: Number(given.usd) } }, { version: card.version }),
    command: (card, given) => `agentq answer ${card.id} "The budget was raised." --extra-usd ${given?.usd || "1"}`,
  },
  requeue: {
    label: "Requeue", key: "r", primary: true, fits: (card) => ["failed", "expired"].includes(card.state), to: () => "ready",
    send: (card) => decide(at(card, "requeue"), { reason: "" }, { version: card.version }),
    command: (card) => `agentq requeue ${card.id}`,
  },
  apply: {
    label: "Apply", key: "b", primary: true, done: "Applying has begun.", fits: (card) => card.change === "here" && !isApplying(card),
    plan: planOf, send: (card, given) => apply(card, given.how), command: (card, given) => applyCommand(card, given?.how),
  },
  rerun: {
    label: "Run again", fits: (card) => ["complete", "cancelled"].includes(card.state),
    send: (card) => decide(at(card, "rerun"), { new_id: newId() }),
    command: (card) => `agentq rerun ${card.id}`,
  },
  tell: {
    label: "Tell the agent", fits: (card) => OPEN.includes(card.state), asks: () => [text("Message")],
    send: (card, given) => decide(at(card, "messages"), { message: given.text }),
    command: (card, given) => `agentq tell ${card.id} ${shell(given?.text || "…")}`,
  },
  comment: {
    label: "Comment", fits: () => true, asks: () => [text("Comment")],
    send: (card, given) => decide(at(card, "comments"), { text: given.text }),
    command: (card, given) => `agentq comment ${card.id} ${shell(given?.text || "…")}`,
  },
  priority: {
    label: "Priority", key: "p", fits: (card) => ["pending", "ready", "blocked"].includes(card.state),
    asks: (card) => [{ name: "priority", label: "How urgent is it?", options: PRIORITIES, value: card.priority }],
    send: (card, given) => decide(at(card, "edit"), { priority: given.priority }, { version: card.version }),
    command: (card, given) => `agentq priority ${card.id} ${given?.priority || "high"}`,
  },
  dispatch: {
    label: "Dispatch", key: "d", fits: (card) => card.state === "pending" && isKeptBack(card),
    to: (card) => (waitsForOthers(card) ? "" : "ready"),
    send: (card) => decide(at(card, "dispatch"), {}, { version: card.version }),
    command: (card) => `agentq dispatch ${card.id}`,
  },
  hold: {
    label: "Hold", key: "w", fits: (card) => ["pending", "ready"].includes(card.state) && !card.waits?.held, to: () => "pending",
    asks: () => [text("Why? (may stay empty)", false)],
    send: (card, given) => decide(at(card, "hold"), { reason: given.text || "" }, { version: card.version }),
    command: (card, given) => `agentq hold ${card.id}${given?.text ? ` --reason ${shell(given.text)}` : ""}`,
  },
  reassign: {
    label: "Give to another role", fits: (card) => ["pending", "ready", "blocked"].includes(card.state),
    asks: (card) => [{ name: "to", label: "Role", required: true, value: card.role, list: "roles" }],
    send: (card, given) => decide(at(card, "edit"), { to: given.to }, { version: card.version }),
    command: (card, given) => `agentq reassign ${card.id} --to ${shell(given?.to || "ROLE")}`,
  },
  edit: {
    label: "Edit", key: "e", fits: (card) => ["pending", "ready"].includes(card.state),
    asks: (card) => [{ name: "title", label: "Title", value: card.title }, { name: "instructions", label: "Instructions (empty: as they are)", lines: 8 }],
    send: (card, given) => decide(at(card, "edit"), { title: given.title, instructions: given.instructions }, { version: card.version }),
    command: (card) => `agentq edit ${card.id}`,
  },
  cancel: {
    label: "Cancel", key: "c", danger: true, fits: (card) => OPEN.includes(card.state), to: () => "cancelled",
    asks: () => [text("Why? (may stay empty)", false)],
    send: (card, given) => decide(at(card, "cancel"), { reason: given.text }, { version: card.version }),
    command: (card, given) => `agentq cancel ${card.id}${given?.text ? ` --reason ${shell(given.text)}` : ""}`,
  },
};

export const newId = () => `task-${crypto.randomUUID().replaceAll("-", "").slice(0, 16)}`;

/** What makes sense for this card now, the most likely first. */
export function actionsFor(card) {
  return Object.entries(ACTIONS).filter(([, action]) => action.fits(card));
}

/** Whether something is being looked at before a person is asked: a key pressed twice asks once. */
let planning = false;

/** What is asked before an action; null if it was refused. */
async function planFor(action, card) {
  let plan = { fields: action.asks ? action.asks(card) : [] };
  if (!action.plan) return plan;
  if (planning) return null;
  planning = true;
  const found = await trying(async () => { plan = await action.plan(card); });
  planning = false;
  return found ? plan : null;
}

/** By then the stream has the event of what was decided, or is broken, and all is read again. */
const EVENT_MS_MAX = 5000;

/** Ask what there is to ask, and do it. The card is shown where it is meant to go, and springs back
 *  with the ledger's own sentence if that is refused. Whether it was done. */
export async function act(name, card, given = null) {
  const action = ACTIONS[name];
  if (!given) {
    const plan = await planFor(action, card);
    if (!plan) return false;
    if (plan.fields.length || plan.words) {
      given = await ask({ title: `${action.label}: ${card.title}`, fields: plan.fields, words: plan.words, danger: action.danger,
        submit: plan.blocked ? "" : plan.submit || action.label, command: plan.command || action.command(card) });
      if (!given) return false;
    }
  }
  const to = action.to?.(card);
  if (to) expect(card.id, to);
  const shown = cards.get(card.id);
  const back = () => { if (shown?.moving && cards.get(card.id) === shown) expect(card.id, ""); };
  const done = await trying(() => action.send(card, given || {}), action.done || `${action.label}: done.`);
  // The answer may come before the event does: in between the card stays where it will be.
  if (done) setTimeout(back, EVENT_MS_MAX);
  else back();
  return done;
}

/** The verb that brings a card into a column; "" if there is none, and then why. */
export function verbFor(card, column) {
  if (column === "cancelled") return ["cancel", ""];
  const by = {
    "pending>ready": card.decision === "approval" ? "approve" : isKeptBack(card) ? "dispatch" : "", "ready>pending": "hold",
    "blocked>ready": "answer", "review>complete": "approve", "review>ready": "changes", "review>failed": "reject",
    "failed>ready": "requeue", "expired>ready": "requeue", "cancelled>ready": "rerun",
  };
  const verb = by[`${card.state}>${column}`] || (card.decision === "approval" && column === "failed" ? "reject" : "");
  if (verb) return [verb, ""];
  if (column === "in_progress") return ["", "Nobody puts a task in progress by hand: a worker of its role claims it as soon as it is ready."];
  if (column === "complete") return ["", "A task completes by the report of whoever works on it, once its gates have accepted that."];
  return ["", `No decision leads from ${card.state} to ${column}.`];
}

/** Requests that are under way at once when many are decided. */
const AT_ONCE = 4;
/** Refused for good, whatever task is next: nobody answers, the login has ended, not permitted, too much. */
const HOPELESS = [0, 401, 403, 429];

/** The same for many. One that is refused stays as it is, and the others go on. `tell` hears how many
 *  are decided, and ends it by answering false. How many were done. */
export async function actOnAll(name, chosen, tell = () => true) {
  const action = ACTIONS[name];
  const fitting = chosen.filter((card) => action.fits(card));
  if (!fitting.length) {
    toast(`${action.label}: it fits none of the ${chosen.length} that are chosen.`, { error: true });
    return 0;
  }
  const fields = action.asks ? action.asks(fitting[0]) : [];
  const given = await ask({ title: `${action.label}: ${fitting.length} tasks`, fields, submit: action.label,
    danger: action.danger, words: fitting.length < chosen.length ? `${chosen.length - fitting.length} of those chosen cannot be decided so, and stay as they are.` : "" });
  if (!given) return 0;
  const refused = [];
  let done = 0;
  let goOn = true;
  const left = fitting.values();
  const decideSome = async () => {
    for (const card of left) {
      try {
        await action.send(card, given);
        done += 1;
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        refused.push(error);
        goOn &&= !HOPELESS.includes(error.status);
      }
      goOn &&= tell(done + refused.length, fitting.length) !== false;
      if (!goOn) return;
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, decideSome));
  toast(`${action.label}: ${done} of ${fitting.length} done.`);
  if (refused.length) toast(`${refused.length} refused. ${refused[0].message}`, { error: true, remedy: refused[0].remedy });
  return done;
}
