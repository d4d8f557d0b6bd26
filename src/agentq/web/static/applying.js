// Bringing a change into its branch, beside the server: what is asked before, and how it goes on.

import { begin, board } from "./api.js";
import { h, toast, worded } from "./dom.js";
import { state, watch } from "./live.js";

const HOW = [["squash", "squash: one commit"], ["merge", "merge: a merge that keeps its commits"], ["cherry-pick", "cherry-pick: each commit once more"]];
const STOPPED = [["continue", "go on: it is solved there"], ["abort", "give it up: the branch stays as it is"]];

/** What was asked for on this page and has not ended, by task: the number it began with. */
const mine = new Map();

export const isApplying = (card) => state.applying.get(card.id)?.state === "running";

/** What a person has to know and may choose before a change is applied. */
export async function planOf(card) {
  const found = await board("apply", { task: card.id });
  const { stopped } = found;
  if (found.problem) return { blocked: true, fields: [], words: `${found.problem} ${found.remedy}` };
  if (stopped && stopped.task_id !== card.id) {
    return { blocked: true, fields: [], command: "agentq apply --abort", words: `Applying ${stopped.task_id} has stopped (${stopped.why}) and waits in ${stopped.folder}. Go on with that one, or give it up: then this one can be applied.` };
  }
  if (stopped) {
    return { fields: [{ name: "how", label: "Then", options: STOPPED }], submit: "Do it", command: "agentq apply --continue",
      words: `Applying it has stopped (${stopped.why}) and waits in ${stopped.folder}: edit the files there and \`git add\` them, then go on.` };
  }
  const where = found.branch ? `the branch ${found.branch}` : "HEAD, which is on no branch,";
  return { fields: [{ name: "how", label: "As", options: HOW }],
    words: `It comes into ${where} in ${found.folder}. What is not committed there stays as it is; where that is in the way, nothing is changed.` };
}

/** Begin it. How it ends is said when it ends. */
export async function apply(card, how) {
  const job = await begin("apply", { task: card.id, how });
  mine.set(card.id, job.number);
  sayWhatEnded();
}

export function applyCommand(card, how = "squash") {
  return ["continue", "abort"].includes(how) ? `agentq apply --${how}` : `agentq apply ${card.id}${how === "squash" ? "" : ` --${how}`}`;
}

function sayWhatEnded() {
  for (const [id, number] of mine) {
    const job = state.applying.get(id);
    if (!job || job.state === "running" || job.number <= number) continue;
    mine.delete(id);
    toast(job.words, { error: job.state === "refused", remedy: job.remedy });
  }
}

watch(sayWhatEnded);

/** How applying a change stands: who is at it, why it was refused; or that it cannot be done from here. */
export function applyStanding(card) {
  if (card.change === "elsewhere") return elsewhere(card);
  const job = state.applying.get(card.id);
  // What was refused here may have been applied by the command meanwhile.
  if (!job || (card.applied && job.state === "refused")) return null;
  if (job.state === "running") return h("p", { class: "standing", role: "status" }, `${job.by} is applying it: ${job.words} …`);
  if (job.state === "done") return h("p", { class: "standing done" }, "✓ ", worded(job.words), job.remedy && h("span", { class: "remedy" }, " ", worded(job.remedy)));
  const next = ["conflicts", "check_failed"].includes(job.code) && " The same from here: Apply asks how to go on.";
  return h("p", { class: "standing refused" }, h("strong", {}, "✕ Not applied. "), worded(job.words), h("span", { class: "remedy" }, " ", worded(job.remedy), next));
}

function elsewhere(card) {
  const command = applyCommand(card);
  return h("p", { class: "standing" }, `The repository of ${card.role} is not checked out on the server's machine. In a checkout of it: `, h("code", {}, command), " ",
    h("button", { type: "button", class: "quiet", "aria-label": `Copy ${command}`, onclick: () => navigator.clipboard.writeText(command) }, "copy"));
}
