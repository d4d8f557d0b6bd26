"use strict";
/*
A worker for agentq that speaks AMQP and JSON, and knows nothing else of agentq.

    npm ci
    node worker.js amqp://user:password@host:5672/ counter -- wc -w

It runs a command for each task of a role: the task's text goes to the command's standard input, and
what it prints becomes the result. Put your agent where the command is. docs/protocol.md says why
each step is as it is. When the broker goes away this program ends; let something start it again.
*/

const { spawn } = require("node:child_process");
const { randomUUID } = require("node:crypto");
const { readFileSync } = require("node:fs");
const { hostname } = require("node:os");
const amqp = require("amqplib");

const ANSWER_MS = 10_000;
const ANSWER_TRIES = 3;
// When there is no room for what we say: how long to wait, and how often to say that we live.
const AGAIN_MS = 60_000;
const BEAT_MS = 5_000;
// What an envelope may have at most; what is longer would go into the artifact store.
const ENVELOPE_BYTES_MAX = 65_536;
const SUMMARY_CHARS_MAX = 500;
const CUT = "\n[the rest was cut off]";

class Worker {
  constructor(role, command) {
    this.role = role;
    this.command = command;
    this.name = `js:${role}:${hostname()}:${process.pid}`;
    this.waiting = new Map(); // message id -> what to do with its answer
    this.holding = null; // the task and epoch that we work on
    this.leaving = false;
    this.closing = false;
  }

  async connect(url) {
    this.connection = await amqp.connect(url, { heartbeat: 60, timeout: 10_000 });
    this.channel = await this.connection.createConfirmChannel();
    this.connection.on("error", (error) => console.error(`error: ${error.message}`));
    this.channel.on("error", (error) => console.error(`error: ${error.message}`));
    this.connection.on("close", () => this.end("the broker has gone"));
    this.channel.on("close", () => this.end("the broker has closed the channel"));
    await this.channel.prefetch(1);
    // Answers and words to stop come to a queue of our own, which goes when we go.
    this.ownQueue = (await this.channel.assertQueue("", { exclusive: true })).queue;
    await this.channel.bindQueue(this.ownQueue, `agentq.control.${this.role}`, `stop.${this.name}`);
    await this.channel.consume(this.ownQueue, (message) => this.hear(message), { noAck: true });
  }

  /* Alive and deaf would be worse: nobody starts again what has not ended. */
  end(why) {
    if (this.closing) return;
    if (this.holding) this.holding.stop();
    console.error(`error: ${why}`);
    process.exit(1);
  }

  async close() {
    this.closing = true;
    await this.connection.close();
  }

  // -- listening ----------------------------------------------------------------------------------

  hear(message) {
    if (message === null) return this.end("our own queue has gone");
    const heard = JSON.parse(message.content);
    const held = this.holding;
    const named = held && heard.task_id === held.taskId && heard.epoch === held.epoch;
    if (named && (heard.stop || heard.code === "stale")) held.lose();
    const answered = this.waiting.get(heard.in_reply_to);
    if (answered) answered(heard);
  }

  // -- speaking -----------------------------------------------------------------------------------

  publish(message) {
    const properties = {
      contentType: "application/json",
      deliveryMode: 2,
      messageId: message.message_id,
      replyTo: this.ownQueue,
    };
    const body = Buffer.from(JSON.stringify(message));
    return new Promise((resolve, reject) => {
      this.channel.publish("agentq.status", this.role, body, properties, (error) =>
        error ? reject(error) : resolve());
    });
  }

  envelope(status, task, epoch, fields) {
    return {
      v: 1, message_id: randomUUID(), task_id: task.task_id, from: this.name, status, epoch,
      ...fields,
    };
  }

  /* Publish until it is answered; the same message each time, so it counts once. */
  async ask(status, task, epoch = 0, fields = {}) {
    const message = this.envelope(status, task, epoch, fields);
    for (;;) {
      const answer = await this.answerTo(message);
      if (answer.code !== "unavailable" || this.leaving) return answer;
      // Nothing was recorded, and there is no room for it now. The task stays ours meanwhile.
      const againAt = Date.now() + AGAIN_MS;
      while (Date.now() < againAt && !this.leaving) {
        await this.publish(this.envelope("heartbeat", task, epoch));
        await after(Math.min(BEAT_MS, AGAIN_MS));
      }
    }
  }

  async answerTo(message) {
    try {
      for (let attempt = 0; attempt < ANSWER_TRIES; attempt++) {
        const answer = new Promise((resolve) => this.waiting.set(message.message_id, resolve));
        await this.publish(message);
        const heard = await Promise.race([answer, after(ANSWER_MS)]);
        if (heard) return heard;
      }
    } finally {
      this.waiting.delete(message.message_id);
    }
    throw new Error(`no answer about ${message.task_id}: does agentq up run?`);
  }

  // -- working ------------------------------------------------------------------------------------

  /* Work until nothing has come for a while; how many tasks were completed. */
  async serve(idleMs) {
    let done = 0;
    while (!this.leaving) {
      const offer = await this.nextOffer(idleMs);
      if (!offer) break;
      const task = JSON.parse(offer.content);
      const answer = await this.ask("started", task, 0, { edit: task.edit || 0 });
      // In any case the hint has done its work. The ledger keeps the task ours, not the broker: a
      // message that is held for hours is taken back and given to somebody else.
      this.channel.ack(offer);
      if (answer.status === "accepted") done += await this.work(task, answer);
      else console.log(`${task.task_id}: not ours: ${answer.reason}`);
    }
    return done;
  }

  /* Consume only while there is nothing to do: what we have no hands for is for others. */
  async nextOffer(idleMs) {
    let taken;
    const offered = new Promise((resolve) => (taken = resolve));
    this.stopWaiting = () => taken(null);
    const timer = setTimeout(this.stopWaiting, idleMs);
    const queue = `agentq.role.${this.role}`;
    let came = null;
    const { consumerTag } = await this.channel.consume(queue, (message) => {
      if (message === null) return this.end(`${queue} has gone`);
      came = came || message;
      taken(message);
    });
    if (this.leaving) this.stopWaiting();
    await offered;
    clearTimeout(timer);
    // With a prefetch of one there is at most one, and no next before it is acknowledged.
    await this.channel.cancel(consumerTag);
    return came;
  }

  async work(task, answer) {
    const { epoch } = answer;
    let lost = false;
    const child = spawn(this.command[0], this.command.slice(1), {
      detached: true, // a group of its own, so that all of it can be stopped
      env: { ...process.env, TASK_ID: task.task_id, TASK_EPOCH: String(epoch) },
    });
    const stop = () => {
      try {
        process.kill(-child.pid, "SIGKILL");
      } catch (error) {
        if (error.code !== "ESRCH") throw error; // it has ended by itself
      }
    };
    this.holding = { taskId: task.task_id, epoch, stop, lose: () => { lost = true; stop(); } };
    let output = "";
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8");
      stream.on("data", (text) => {
        if (output.length < ENVELOPE_BYTES_MAX) output += text;
      });
    }
    child.stdin.on("error", () => {}); // a command need not read what it is given
    child.stdin.end(textOf(task, answer));
    const beat = () => this.publish(this.envelope("heartbeat", task, epoch)).catch(stop);
    const heart = setInterval(beat, (answer.lease_seconds * 1000) / 3);
    const status = await new Promise((resolve) => {
      child.on("error", (error) => { output += error.message; resolve(127); });
      child.on("close", (code, sign) => resolve(code === null ? sign : code));
    });
    clearInterval(heart);
    this.holding = null;
    return this.report(task, epoch, status, output.replaceAll("\0", ""), lost);
  }

  async report(task, epoch, status, output, lost) {
    const last = output.trim().split("\n").pop();
    if (lost) {
      console.log(`${task.task_id}: lost`);
      return 0;
    }
    let answer;
    if (this.leaving) {
      answer = await this.ask("released", task, epoch, { summary: "the worker was told to end" });
    } else if (status !== 0) {
      const why = `the command ended with ${status}: ${last}`;
      answer = await this.ask("failed", task, epoch, { summary: slice(why, SUMMARY_CHARS_MAX) });
    } else {
      const said = this.completed(task, epoch, slice(last, SUMMARY_CHARS_MAX), output);
      answer = await this.ask("completed", task, epoch, said);
    }
    console.log(`${task.task_id} attempt ${epoch}: ${answer.reason || answer.about}`);
    return answer.status === "accepted" && answer.about === "completed" ? 1 : 0;
  }

  /* What is said of an attempt that went well: the same text as often as it is asked for. */
  completed(task, epoch, summary, output) {
    const names = (task.expected_output || {}).artifacts || [];
    const saying = (text) => ({
      summary, result: text,
      artifacts: names.map((name) => ({ name: `${name}.txt`, content: text })),
    });
    const bare = this.envelope("completed", task, epoch, saying(""));
    const room = ENVELOPE_BYTES_MAX - bytesOf(bare);
    return saying(beginning(output, Math.floor(room / (1 + names.length))));
  }

  leave() {
    this.leaving = true;
    if (this.stopWaiting) this.stopWaiting();
    if (this.holding) this.holding.stop();
  }
}

function after(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms, null).unref());
}

function bytesOf(value) {
  return Buffer.byteLength(JSON.stringify(value));
}

/* Never through the middle of a character that has two halves: half of one is no text. */
function slice(text, length) {
  return text.slice(0, length).replace(/[\ud800-\udbff]$/, "");
}

/* The text, if it takes no more bytes in JSON; else what fits, and that it was cut. */
function beginning(text, room) {
  if (bytesOf(text) <= room) return text;
  let fits = 0;
  for (let above = text.length; above - fits > 1; ) {
    const middle = (fits + above) >> 1;
    if (bytesOf(slice(text, middle)) + bytesOf(CUT) <= room) fits = middle;
    else above = middle;
  }
  return slice(text, fits) + CUT;
}

/* All that is asked: the context file if there is one, and what was said since. */
function textOf(task, answer) {
  const where = task.context_ref || "";
  const text = where.startsWith("file:") ? readFileSync(new URL(where), "utf8") : task.instructions;
  const notes = answer.notes.map((note) => `${note.kind} by ${note.by}: ${note.text}`);
  return [text, ...notes].join("\n\n");
}

async function main(words) {
  const split = words.indexOf("--");
  const [url, role, option, seconds] = words.slice(0, split < 0 ? words.length : split);
  const command = split < 0 ? [] : words.slice(split + 1);
  if (!role || !command.length || (option && option !== "--idle")) {
    console.error("usage: node worker.js URL ROLE [--idle SECONDS] -- COMMAND...");
    process.exit(2);
  }
  const worker = new Worker(role, command);
  await worker.connect(url);
  process.on("SIGTERM", () => worker.leave());
  console.log(`ready: ${worker.name}`);
  console.log(`${await worker.serve(option ? Number(seconds) * 1000 : 2 ** 31 - 1)} done`);
  await worker.close();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(`error: ${error.message}`);
  process.exit(1);
});
