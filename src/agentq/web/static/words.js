// How things are said: states, ages, money. One place, so that every view says the same.

export const STATES = {
  pending: { mark: "○", words: "Pending" },
  ready: { mark: "◔", words: "Ready" },
  in_progress: { mark: "●", words: "In progress" },
  blocked: { mark: "■", words: "Blocked" },
  review: { mark: "◆", words: "Review" },
  complete: { mark: "✓", words: "Complete" },
  failed: { mark: "✕", words: "Failed" },
  expired: { mark: "⌛", words: "Expired" },
  cancelled: { mark: "–", words: "Cancelled" },
};
export const PRIORITIES = ["urgent", "high", "normal", "low"];
export const DECISIONS = { approval: "approve before it starts", review: "judge the report",
  question: "answer a question", dead_letter: "failed for good" };
export const TERMINAL = new Set(["complete", "failed", "expired", "cancelled"]);

export function age(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

/** How long something took, with two digits: it may have been a moment. */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  for (const [unit, size] of [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000]]) {
    if (ms >= size) return `${+(ms / size).toPrecision(2)} ${unit}`;
  }
  return `${+(ms / 1000).toPrecision(2)} s`;
}

export function money(usd, estimated = false) {
  if (!usd) return "";
  return `${estimated ? "~" : ""}$${usd < 0.1 ? usd.toFixed(3) : usd.toFixed(2)}`;
}

export function moment(ms) {
  return ms ? new Date(ms).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" }) : "";
}

export function size(count) {
  if (count < 1000) return `${count} B`;
  if (count < 1e6) return `${(count / 1000).toFixed(1)} kB`;
  return `${(count / 1e6).toFixed(1)} MB`;
}

/** What a card waits for, in a few words. */
export function waitsFor(card, cards, now) {
  const waits = card.waits || {};
  const title = (id) => cards.get(id)?.title || id;
  if (card.decision === "approval") return "an approval";
  if (waits.held) return `a dispatch: held by ${waits.held.by}${waits.held.reason ? `, ${waits.held.reason}` : ""}`;
  if (waits.after?.length) return `${title(waits.after[0])}${waits.after.length > 1 ? ` and ${waits.after.length - 1} more` : ""}`;
  if (waits.children?.length) return `${waits.children.length} of its children`;
  if (waits.signals?.length) return `the signal ${waits.signals.join(", ")}`;
  if (waits.review) return "its reviewer";
  if (waits.until > now) return `${age(waits.until - now)} more`;
  return "";
}

/** How a step of a run stands: while it is open, as the task of it that is furthest. */
export function standingOf(step) {
  if (step.state !== "open") return step.state;
  return ["in_progress", "blocked", "review", "ready", "pending"].find((state) => step.tasks.some((task) => task.state === state)) || step.state;
}

/** A word as a shell takes it. */
export function shell(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
