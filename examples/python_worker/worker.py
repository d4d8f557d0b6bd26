"""A worker for agentq that speaks AMQP and JSON, and knows nothing else of agentq.

    pip install amqp
    python worker.py amqp://user:password@host:5672/ counter -- wc -w

It runs a command for each task of a role: the task's text goes to the command's standard input, and
what it prints becomes the result. Put your agent where the command is. docs/protocol.md says why
each step is as it is. When the broker goes away this program ends; let something start it again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import amqp

ANSWER_SECONDS, ANSWER_TRIES = 10.0, 3
#: When there is no room for what we say: how long to wait, and how often to say that we live.
AGAIN_SECONDS, BEAT_SECONDS = 60.0, 5.0
#: What an envelope may have at most; what is longer would go into the artifact store.
ENVELOPE_BYTES_MAX = 65_536
SUMMARY_CHARS_MAX = 500
CUT = "\n[the rest was cut off]"


class NoAnswer(Exception):
    """Nobody takes messages in: `agentq up` does not run, or the broker is cut off from it."""


class Worker:
    """One task at a time. Everything about the broker happens in the calling thread."""

    def __init__(self, url: str, role: str, command: list[str]) -> None:
        where = urlsplit(url)
        self.role, self.command = role, command
        self.name = f"python:{role}:{platform.node()}:{os.getpid()}"
        self.connection = amqp.Connection(
            f"{where.hostname}:{where.port or 5672}",
            userid=unquote(where.username or "guest"),
            password=unquote(where.password or "guest"),
            virtual_host=unquote(where.path[1:]) or "/",
            heartbeat=60,
            connect_timeout=10,
            confirm_publish=True,
        )
        self.connection.connect()
        self.channel = self.connection.channel()
        self.channel.basic_qos(0, 1, False)
        # Answers and words to stop come to a queue of our own, which goes when we go.
        self.own_queue = self.channel.queue_declare("", exclusive=True).queue
        self.channel.queue_bind(self.own_queue, f"agentq.control.{self.role}", f"stop.{self.name}")
        self.channel.basic_consume(self.own_queue, no_ack=True, callback=self._hear)
        #: The message that we wait for an answer to, and the answer. To others nobody listens.
        self.asked = ""
        self.answer: dict[str, Any] = {}
        self.offered: list[Any] = []
        self.holding: tuple[str, int] | None = None
        self.lost = self.leaving = False

    # -- listening ---------------------------------------------------------------------------------

    def _hear(self, message: Any) -> None:
        heard = json.loads(message.body)
        if self.asked and heard.get("in_reply_to") == self.asked:
            self.answer = heard
        named = (heard.get("task_id"), heard.get("epoch"))
        if named == self.holding and (heard.get("stop") or heard.get("code") == "stale"):
            self.lost = True  # cancelled, or in other hands: whatever we still do is refused

    def listen(self, seconds: float) -> None:
        try:
            self.connection.drain_events(timeout=seconds)
        except TimeoutError:
            self.connection.heartbeat_tick()

    def listen_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self.leaving:
            self.listen(min(0.5, seconds))

    # -- speaking ----------------------------------------------------------------------------------

    def envelope(self, status: str, task: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
        return {
            "v": 1, "message_id": uuid.uuid4().hex, "task_id": task["task_id"], "from": self.name,
            "status": status, "epoch": epoch,
        }  # fmt: skip

    def ask(self, status: str, task: dict[str, Any], epoch: int = 0, **fields: Any) -> Any:
        """Publish until it is answered; the same message each time, so it counts once."""
        message = {**self.envelope(status, task, epoch), **fields}
        while True:
            answer = self._answer_to(message)
            if answer.get("code") != "unavailable" or self.leaving:
                return answer
            # Nothing was recorded, and there is no room for it now. The task stays ours meanwhile.
            again_at = time.monotonic() + AGAIN_SECONDS
            while time.monotonic() < again_at and not self.leaving:
                self.publish(self.envelope("heartbeat", task, epoch))
                self.listen_for(min(BEAT_SECONDS, AGAIN_SECONDS))

    def _answer_to(self, message: dict[str, Any]) -> dict[str, Any]:
        self.asked, self.answer = message["message_id"], {}
        for _ in range(ANSWER_TRIES):
            self.publish(message)
            until = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < until and not self.answer:
                self.listen(0.5)
            if self.answer:
                self.asked = ""
                return self.answer
        raise NoAnswer(f"no answer about {message['task_id']}")

    def publish(self, message: dict[str, Any]) -> None:
        envelope = amqp.Message(
            in_json(message), content_type="application/json", delivery_mode=2,
            message_id=message["message_id"], reply_to=self.own_queue,
        )  # fmt: skip
        self.channel.basic_publish(envelope, "agentq.status", self.role)

    # -- working -----------------------------------------------------------------------------------

    def serve(self, idle_seconds: float) -> int:
        """Work until nothing has come for a while; how many tasks were completed."""
        done = 0
        while not self.leaving:
            offer = self._next_offer(idle_seconds)
            if offer is None:
                break
            task = json.loads(offer.body)
            answer = self.ask("started", task, edit=task.get("edit", 0))
            # In any case the hint has done its work. The ledger keeps the task ours, not the
            # broker: a message that is held for hours is taken back and given to somebody else.
            self.channel.basic_ack(offer.delivery_tag)
            if answer["status"] == "accepted":
                done += self._work(task, answer)
            else:
                print(f"{task['task_id']}: not ours: {answer['reason']}", flush=True)
        return done

    def _next_offer(self, idle_seconds: float) -> Any:
        """Consume only while there is nothing to do: what we have no hands for is for others."""
        until = time.monotonic() + idle_seconds
        self.channel.basic_consume(
            f"agentq.role.{self.role}", consumer_tag="tasks", callback=self.offered.append
        )
        while not self.offered and not self.leaving and time.monotonic() < until:
            self.listen(min(1.0, max(until - time.monotonic(), 0.01)))
        # With a prefetch of one there is at most one, and no next before it is acknowledged.
        self.channel.basic_cancel("tasks")
        return self.offered.pop() if self.offered else None

    def _work(self, task: dict[str, Any], answer: dict[str, Any]) -> bool:
        epoch, lease = answer["epoch"], answer["lease_seconds"]
        self.holding, self.lost = (task["task_id"], epoch), False
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
            given.write(text_of(task, answer).encode())
            given.seek(0)
            child = subprocess.Popen(
                self.command, stdin=given, stdout=printed, stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "TASK_ID": task["task_id"], "TASK_EPOCH": str(epoch)},
            )  # fmt: skip
            beat_at = 0.0
            try:
                while child.poll() is None and not self.lost and not self.leaving:
                    if time.monotonic() >= beat_at:
                        self.publish(self.envelope("heartbeat", task, epoch))
                        beat_at = time.monotonic() + lease / 3
                    self.listen(0.1)
            finally:  # the broker went away, too: nobody would hear of what it does
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)
                    child.wait()
            printed.seek(0)
            output = printed.read(2 * ENVELOPE_BYTES_MAX).decode("utf-8", "replace")
        return self._report(task, epoch, child.returncode, output.replace("\x00", ""))

    def _report(self, task: dict[str, Any], epoch: int, status: int, output: str) -> bool:
        self.holding = None
        last = output.strip().rpartition("\n")[2]
        if self.lost:
            print(f"{task['task_id']}: lost", flush=True)
            return False
        if self.leaving:
            answer = self.ask("released", task, epoch, summary="the worker was told to end")
        elif status:
            why = f"the command ended with {status}: {last}"
            answer = self.ask("failed", task, epoch, summary=why[:SUMMARY_CHARS_MAX])
        else:
            answer = self.ask("completed", task, epoch, **self._completed(task, epoch, output))
        said = answer.get("reason", answer["about"])
        print(f"{task['task_id']} attempt {epoch}: {said}", flush=True)
        return bool(answer["status"] == "accepted" and answer["about"] == "completed")

    def _completed(self, task: dict[str, Any], epoch: int, output: str) -> dict[str, Any]:
        """What is said of an attempt that went well: the same text as often as it is asked for."""
        names = task.get("expected_output", {}).get("artifacts", [])
        summary = output.strip().rpartition("\n")[2][:SUMMARY_CHARS_MAX]

        def saying(text: str) -> dict[str, Any]:
            files = [{"name": f"{name}.txt", "content": text} for name in names]
            return {"summary": summary, "result": text, "artifacts": files}

        bare = {**self.envelope("completed", task, epoch), **saying("")}
        room = ENVELOPE_BYTES_MAX - len(in_json(bare))
        return saying(beginning(output, room // (1 + len(names))))


def in_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def beginning(text: str, room: int) -> str:
    """The text, if it takes no more bytes in JSON; else what fits, and that it was cut."""
    if len(in_json(text)) <= room:
        return text
    room -= len(in_json(CUT))
    fit = bisect_right(range(len(text)), room, key=lambda length: len(in_json(text[:length])))
    return text[: max(fit - 1, 0)] + CUT


def text_of(task: dict[str, Any], answer: dict[str, Any]) -> str:
    """All that is asked: the context file if there is one, and what was said since."""
    text = str(task["instructions"])
    where = urlsplit(task.get("context_ref") or "")
    if where.scheme == "file":
        text = Path(url2pathname(where.path)).read_text("utf-8")
    notes = [f"{note['kind']} by {note['by']}: {note['text']}" for note in answer["notes"]]
    return "\n\n".join([text, *notes])


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a command for the tasks of a role.")
    parser.add_argument("url", help="amqp://user:password@host:port/vhost")
    parser.add_argument("role")
    parser.add_argument("command", nargs="+", help="what to run; after --")
    parser.add_argument("--idle", type=float, default=1e9, help="end after so many idle seconds")
    options = parser.parse_args()
    try:
        run(Worker(options.url, options.role, options.command), options.idle)
    except (NoAnswer, amqp.AMQPError, OSError) as trouble:
        sys.exit(f"error: {trouble}")


def run(worker: Worker, idle_seconds: float) -> None:
    def leave(*_: object) -> None:
        worker.leaving = True

    signal.signal(signal.SIGTERM, leave)
    print(f"ready: {worker.name}", flush=True)
    try:
        print(f"{worker.serve(idle_seconds)} done", flush=True)
    finally:
        with suppress(amqp.AMQPError, OSError):  # it is gone already
            worker.connection.close()


if __name__ == "__main__":
    main()
