// One task: how it stands and why, everything that happened to it, what it left, what can be done.

import { act, actionsFor } from "./actions.js";
import { board, decide, look, part, Refused, trying } from "./api.js";
import { applyStanding } from "./applying.js";
import { freshenAges } from "./cards.js";
import { conversation } from "./conversation.js";
import { fill, h, worded } from "./dom.js";
import { fileList, shown } from "./evidence.js";
import { cards, now, watch } from "./live.js";
import { attemptsOf, timeline } from "./timeline.js";
import { age, DECISIONS, money, moment, STATES } from "./words.js";

export function taskView(main, query, go, [id]) {
  fill(main, h("h1", {}, id || "Which task?"));
  const view = new TaskPage(main, id);
  view.load();
  const unwatch = watch((ids) => { if (ids.has(view.id)) view.soon(); });
  const ages = setInterval(() => freshenAges(main), 5000);
  return { end: () => { unwatch(); clearInterval(ages); view.end(); }, keys: (event) => view.key(event) };
}

class TaskPage {
  constructor(main, id) {
    this.main = main;
    this.id = id;
    this.parts = {};
    this.talk = null;
  }

  /** At once, then at most four times a second: a running task changes often. */
  soon() {
    if (this.timer) return;
    this.timer = setTimeout(() => { this.timer = 0; this.load(); }, this.loaded ? 250 : 0);
  }

  end() {
    clearTimeout(this.timer);
    this.talk?.end();
    this.ended = true;
  }

  async load() {
    const at = `tasks/${part(this.id)}`;
    try {
      const [task, explained, history, files, instructions] = await Promise.all([
        look(at), look(`${at}/explanation`), look(`${at}/events`), look(`${at}/artifacts`),
        this.parts.context ? null : board("preview", { task: this.id, what: "context" })]);
      if (this.ended) return;
      this.id = task.spec.id;
      this.task = task;
      this.loaded = true;
      if (!this.parts.context) this.frame(instructions);
      this.show(task, explained, history, files);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (!this.loaded) fill(this.main, h("h1", {}, this.id), h("p", {}, worded(`${error.message} ${error.remedy}`)), h("p", {}, h("a", { href: "#/" }, "Back to the board")));
    }
  }

  frame(instructions) {
    const section = (name, title, ...more) => {
      this.parts[name] = h("div", {});
      return h("section", { class: `part part-${name}`, "aria-label": title }, h("h2", {}, title), ...more, this.parts[name]);
    };
    this.parts.head = h("header", { class: "task-head" });
    const left = h("div", { class: "side-a" }, section("why", "How it stands"), section("talk", "Conversation"), section("files", "Evidence"),
      section("attempts", "Attempts"), section("timeline", "Timeline"));
    const right = h("div", { class: "side-b" }, section("context", "Instructions"), section("around", "Around it"), section("comments", "Comments"), section("proof", "Proof"), section("commands", "In a terminal"));
    fill(this.main, this.parts.head, h("div", { class: "two" }, left, right));
    fill(this.parts.context, shown(instructions, this.id));
    fill(this.parts.proof, h("p", { class: "dim" }, "Its state is what its log gives. Prove it: the log is replayed and compared."),
      h("button", { type: "button", onclick: () => this.prove() }, "Prove it"));
  }

  show(task, explained, history, files) {
    const card = cards.get(this.id) || cardFrom(task);
    this.card = card;
    const { spec, details } = task;
    fill(this.parts.head,
      h("p", { class: "dim" }, h("a", { href: "#/" }, "Board"), " / ", h("code", {}, spec.id)),
      h("h1", {}, spec.title || card.title),
      h("div", { class: "line" },
        h("span", { class: `badge s-${task.state}` }, STATES[task.state].mark, " ", STATES[task.state].words),
        h("span", {}, spec.to), h("span", { class: `tag ${spec.priority}` }, spec.priority),
        spec.irreversible && h("span", { class: "tag urgent" }, "cannot be undone"),
        h("span", { class: "dim" }, `attempt ${task.epoch} of ${spec.max_attempts}`),
        task.holder && h("span", { class: "dim" }, task.holder),
        h("span", { class: "dim" }, money(details.spent?.usd, details.spent?.estimated_usd)),
        h("span", { class: "dim age", "data-since": task.updated_at }, age(now() - task.updated_at))),
      h("div", { class: "row" }, actionsFor(card).map(([name, action]) => h("button", {
        type: "button", class: action.primary ? "primary" : action.danger ? "danger" : "", title: action.command(card),
        onclick: () => act(name, cards.get(this.id) || card) }, action.label))),
      applyStanding(card));
    fill(this.parts.why, h("p", { class: "say" }, worded(explained.headline)),
      h("ul", {}, explained.causes.map(([cause, remedy]) => h("li", {}, worded(cause), remedy && h("span", { class: "remedy" }, " ", worded(remedy))))),
      card.decision && h("p", {}, h("strong", {}, `It waits for you: ${DECISIONS[card.decision]}.`)));
    fill(this.parts.attempts, attemptsOf(history));
    fill(this.parts.timeline, timeline(history));
    this.showFiles(task, files);
    this.showTalk(task);
    this.showAround(task);
    this.showComments(history);
    fill(this.parts.commands, h("ul", { class: "commands" }, [`agentq status ${this.id}`, `agentq logs ${this.id}`, `agentq diff ${this.id}`,
      ...(task.state === "complete" && card.change !== "here" ? [`agentq apply ${this.id}`] : []), ...actionsFor(card).map(([, action]) => action.command(card))]
      .map((command) => h("li", {}, h("code", {}, command), h("button", { type: "button", class: "quiet", "aria-label": `Copy ${command}`,
        onclick: () => navigator.clipboard.writeText(command) }, "copy")))));
  }

  showFiles(task, files) {
    const mark = JSON.stringify([files, task.details.report, task.state]);
    if (this.parts.files.dataset.mark === mark) return;
    this.parts.files.dataset.mark = mark;
    fill(this.parts.files, fileList(this.id, files));
    board("preview", { task: this.id, what: "result" }).then((report) => {
      if (report.size) this.parts.files.prepend(shown(report, this.id));
    }).catch((error) => { if (!(error instanceof Refused)) throw error; });
  }

  showTalk(task) {
    if (this.talk?.epoch === task.epoch) return;
    this.talk?.end();
    if (!task.epoch) { fill(this.parts.talk, h("p", { class: "dim" }, "Nobody has begun.")); return; }
    this.talk = conversation(this.parts.talk, this.id, task.epoch);
  }

  showAround(task) {
    const { spec, details } = task;
    const link = (id) => h("a", { href: `#/tasks/${part(id)}` }, cards.get(id)?.title || id);
    const rows = [["Submitted", `${moment(task.submitted_at)} by ${spec.sender}`], ["Parent", spec.parent && link(spec.parent)],
      ["Comes after", spec.after?.length && list(spec.after.map(link))],
      ["Children", [...(details.children || []), ...(details.ended_children || []).map(([id]) => id)].length
        && list([...(details.children || []).map(link), ...(details.ended_children || []).map(([id, how]) => [link(id), ` ${how}`])])],
      ["Reviewed by", details.review_task && link(details.review_task)], ["Reviews", spec.reviews && link(spec.reviews)],
      ["Labels", Object.entries(spec.labels || {}).map(([name, value]) => `${name}=${value}`).join(", ")],
      ["Gates", gates(spec)], ["Budget", money(spec.budget?.usd)],
      ["Applied", details.applied_commit && `${details.applied_commit.slice(0, 12)} in ${details.applied_branch} by ${details.applied_by}`]];
    fill(this.parts.around, h("dl", {}, rows.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  }

  showComments(history) {
    if (!this.comment) {
      this.comment = h("textarea", { rows: 2, "aria-label": "A comment", placeholder: "A comment; @name tells somebody" });
      this.commentList = h("ul", { class: "comments" });
      fill(this.parts.comments, this.commentList, h("form", { onsubmit: (event) => this.say(event) }, this.comment, h("button", { type: "submit" }, "Comment")));
    }
    fill(this.commentList, history.filter((entry) => entry.kind === "comment" || entry.kind === "commented").map((entry) => h("li", {},
      h("span", { class: "dim" }, `${entry.data?.by || ""} ${moment(entry.at)}`), h("p", {}, entry.data?.text || ""))));
  }

  async say(event) {
    event.preventDefault();
    const text = this.comment.value.trim();
    if (text && await trying(() => decide(`tasks/${part(this.id)}/comments`, { text }))) this.comment.value = "";
  }

  async prove() {
    const found = await look(`tasks/${part(this.id)}/replay`).catch((error) => { if (error instanceof Refused) return error; throw error; });
    const good = !(found instanceof Refused) && !found.problems.length;
    fill(this.parts.proof, h("p", { class: good ? "proved" : "unproved", role: "status" },
      good ? `✓ Proved from ${found.steps.length} events, at ${moment(Date.now())}.` : `✕ ${found.message || found.problems.map((each) => each.what).join("; ")}`),
      h("button", { type: "button", onclick: () => this.prove() }, "Prove it again"));
  }

  key(event) {
    const found = this.card && actionsFor(this.card).find(([, action]) => action.key === event.key);
    if (!found) return false;
    act(found[0], cards.get(this.id) || this.card);
    return true;
  }
}

const list = (items) => h("ul", {}, items.map((item) => h("li", {}, item)));

function gates(spec) {
  const found = spec.gates || {};
  return [found.verify && `check: ${found.verify}`, found.reviewer && `reviewer: ${found.reviewer}`, (found.person || spec.review) && "a person",
    spec.expected_output?.artifacts?.length && `files: ${spec.expected_output.artifacts.join(", ")}`].filter(Boolean).join("; ");
}

/** A task that is not on the board is shown all the same. */
function cardFrom(task) {
  return { id: task.spec.id, title: task.spec.title || task.spec.instructions?.slice(0, 80), role: task.spec.to, state: task.state,
    priority: task.spec.priority, version: task.version, epoch: task.epoch, at: task.updated_at, since: task.submitted_at,
    reason: task.details?.reason, applied: task.details?.applied_commit, waits: task.state === "pending" ? { held: task.details?.held, until: task.details?.not_before } : {},
    decision: { blocked: "question", review: "review", failed: "dead_letter", expired: "dead_letter" }[task.state] || "" };
}

