"""`agentq logs`: what an agent says while it says it, what is left afterwards, and nothing that a
terminal would obey."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from agentq import Queue
from agentq.cli.logs import logs
from agentq.cli.session import Session
from agentq.client.conversations import follow_conversation
from agentq.client.logs import LogPart, follow_log, read_log
from agentq.core import access
from agentq.core.errors import AgentqError, NotFound
from tests.interfaces.conftest import Answer
from tests.ways import service_of_worker

pytestmark = pytest.mark.both_ways

LIVE_BYTES = 4096


def show(*words: str) -> Answer:
    """Run the command in this process."""
    done = CliRunner().invoke(logs, list(words), obj=Session())
    if isinstance(done.exception, AgentqError):
        raise done.exception
    return Answer(done.exit_code, done.stdout, done.stderr)


def claimed(queue: Queue, task_id: str = "task-1") -> None:
    queue.claim_task(task_id)


def say(queue: Queue, data: bytes, epoch: int = 1, keep_bytes: int = LIVE_BYTES) -> None:
    queue._client.artifacts.live_append("task-1", epoch, data, keep_bytes=keep_bytes)


def as_worker(queue: Queue, task_id: str, name: str, data: bytes, epoch: int = 1) -> None:
    who = access.worker("host:1")
    with service_of_worker(queue) as service:
        service.put_artifacts(who, task_id, epoch, [(name, data)])


def stored(queue: Queue, data: bytes, epoch: int = 1) -> None:
    """The worker makes an artifact of the log, and the live one goes."""
    as_worker(queue, "task-1", "output.log", data, epoch)
    queue._client.artifacts.live_end("task-1", epoch)


def texts(parts: Iterator[LogPart]) -> list[tuple[int, bytes]]:
    return [(part.epoch, part.data) for part in parts]


@pytest.fixture
def task(queue: Queue) -> str:
    return queue.submit("worker", "do it", id="task-1").id


# -- reading -------------------------------------------------------------------------------------


def test_live_first_and_then_the_artifact(queue: Queue, task: str) -> None:
    with pytest.raises(NotFound, match="task-1 has no recorded output") as refusal:
        show(task)
    assert "--follow" in refusal.value.remedy
    claimed(queue)
    say(queue, b"hello\n")
    assert show("task").ok().out == "hello\n"
    say(queue, b"again\n")
    assert show(task).ok().out == "hello\nagain\n"
    stored(queue, b"hello\nagain\n")
    assert show(task).ok().out == "hello\nagain\n"
    assert show(task, "--json").ok().json() == {
        "task_id": "task-1", "epoch": 1, "text": "hello\nagain\n", "entries": [],
    }  # fmt: skip


def test_the_newest_attempt_that_said_something(queue: Queue, task: str) -> None:
    claimed(queue)
    stored(queue, b"first\n")
    queue.release(task, epoch=1)
    claimed(queue)
    assert show(task).out == "first\n"
    say(queue, b"second\n", epoch=2)
    assert show(task).out == "second\n"
    assert show(task, "--attempt", "1").out == "first\n"
    with pytest.raises(NotFound, match="no recorded output of attempt 3"):
        show(task, "--attempt", "3")


def test_all_programs_of_an_attempt_in_order(queue: Queue, task: str) -> None:
    """The agent, the agent again, the check: live as one, and so are their artifacts."""
    claimed(queue)
    said = {"output.log": b"one\n", "output-2.log": b"two\n", "output-10.log": b"three\n"}
    for data in (*said.values(), b"checked\n"):
        say(queue, data)
    parts = follow_log(queue._client, task, timeout=30)
    live = next(parts).data
    assert live == b"one\ntwo\nthree\nchecked\n"
    for name, data in (*said.items(), ("verify.log", b"checked\nand more\n")):
        as_worker(queue, task, name, data)
    queue.put(task, "report.log", b"not of the worker\n", epoch=1)
    queue.complete(task, epoch=1)
    queue._client.artifacts.live_end(task, 1)
    assert show(task).ok().out.encode() == live + b"and more\n"
    assert texts(parts) == [(1, b"and more\n")]


def test_a_log_with_a_hole_says_so(queue: Queue, task: str) -> None:
    claimed(queue)
    for number in range(1000):
        say(queue, b"line %06d\n" % number)
    out = show(task).ok().out.splitlines()
    (note,) = [line for line in out if not line.startswith("line")]
    assert note == f"[agentq: {(1000 - len(out) + 1) * 12} bytes of output left out here]"
    assert out[0] == "line 000000" and out[-1] == "line 000999"


HOSTILE = (
    b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"
    b"\x1bPdevice\x1b\\ \x1b(B\x1bc\x9b2J\xc2\x9b2J caf\xc3\xa9 \x00\x07\x08\r\n"
    b"10 %\r20 %\r\n\x1b]0;never ended\n\xe2\x80\xaegnikcirt\n"
)


def test_a_terminal_is_told_nothing(queue: Queue, task: str) -> None:
    claimed(queue)
    stored(queue, HOSTILE)
    out = show(task).ok().out
    assert out == ("red link \ufffd2J café \\x00\\x07\\x08\n10 %\n20 %\n\n\\u202egnikcirt\n")
    assert show(task, "--json").json()["text"] == out
    raw = CliRunner().invoke(logs, [task, "--ansi"], obj=Session())
    assert raw.stdout_bytes == HOSTILE
    assert "\x1b[31m" in show(task, "--ansi", "--json").json()["text"]


# -- conversations -----------------------------------------------------------------------------

CODEX = b"".join(json.dumps(each).encode() + b"\n" for each in (
    {"type": "thread.started", "thread_id": "t-1"},
    {"type": "item.completed", "item": {"type": "agent_message", "text": "I \x1b[31mlook.\nThen"}},
    {"type": "item.started", "item": {"type": "command_execution", "command": "ls"}},
    {"type": "item.completed", "item": {
        "type": "command_execution", "command": "ls", "aggregated_output": "a\nb\n",
    }},
    {"type": "invented"},
    {"type": "turn.completed", "usage": {"input_tokens": 5, "output_tokens": 2}},
))  # fmt: skip
CONVERSATION = "I look.\nThen\n\n> ls\n    a\n    b\n\nspent: 7 tokens, 1 turn\n"


def test_events_of_a_tool_are_shown_as_a_conversation(queue: Queue, task: str) -> None:
    """While it runs, and from the artifact; --raw shows the lines, and --json both."""
    claimed(queue)
    say(queue, CODEX)
    assert show(task).ok().out == CONVERSATION
    assert show(task, "--raw").ok().out.encode() == CODEX
    stored(queue, CODEX + b"1 failed\n")
    assert show(task).ok().out == CONVERSATION + "1 failed\n"
    answer = show(task, "--json").ok().json()
    assert answer["text"].encode() == CODEX + b"1 failed\n"
    assert answer["entries"][0] == {"kind": "text", "text": "I look.\nThen"}
    kinds = [entry["kind"] for entry in answer["entries"]]
    assert kinds == ["text", "tool", "result", "cost", "output"]
    queue.complete(task, epoch=1)
    assert show(task, "-f").ok().out == CONVERSATION + "1 failed\n"
    lines = [json.loads(line) for line in show(task, "-f", "--json").ok().out.splitlines()]
    assert [line["line"] for line in lines] == (CODEX + b"1 failed\n").decode().splitlines()
    assert [len(line["entries"]) for line in lines] == [0, 1, 1, 1, 0, 1, 1]


def test_a_conversation_is_followed_as_it_comes(queue: Queue, task: str) -> None:
    claimed(queue)
    parts = follow_conversation(queue._client, task)
    seen = []
    for line in CODEX.splitlines(keepends=True):
        say(queue, line[:10])
        say(queue, line[10:])
        seen += [entry.text for entry in next(parts).entries]
    assert seen == ["I \x1b[31mlook.\nThen", "ls", "a\nb", "7 tokens, 1 turn"]
    queue.complete(task, epoch=1)
    assert [entry for part in parts for entry in part.entries] == []


# -- following -----------------------------------------------------------------------------------


def test_following_goes_along_until_the_task_is_over(queue: Queue, task: str) -> None:
    parts = follow_log(queue._client, task, timeout=30)
    claimed(queue)
    say(queue, b"one\n")
    assert next(parts) == LogPart(1, b"one\n")
    say(queue, b"two\n")
    assert next(parts) == LogPart(1, b"two\n")
    say(queue, b"three\n")
    queue.complete(task, epoch=1)
    assert texts(parts) == [(1, b"three\n")]


def test_following_goes_over_to_the_artifact_and_the_next_attempt(queue: Queue, task: str) -> None:
    claimed(queue)
    say(queue, b"one\n")
    parts = follow_log(queue._client, task, timeout=30)
    assert next(parts) == LogPart(1, b"one\n")
    # Between two looks the attempt says more, ends, and the next one begins and ends.
    stored(queue, b"one\ntwo\n")
    queue.release(task, epoch=1)
    assert next(parts) == LogPart(1, b"two\n")
    claimed(queue)
    queue.release(task, epoch=2)  # said nothing
    claimed(queue)
    say(queue, b"three\n", epoch=3)
    assert next(parts) == LogPart(3, b"three\n")
    queue.cancel(task, "bob")
    say(queue, b"stopping\n", epoch=3)
    assert next(parts) == LogPart(3, b"stopping\n")  # cancelled, but its holder has not let go
    with service_of_worker(queue) as service:
        service.stopped(access.worker("host:1"), task, 3)
    assert texts(parts) == []


def test_following_one_attempt_ends_with_it(queue: Queue, task: str) -> None:
    claimed(queue)
    say(queue, b"one\n")
    queue.release(task, epoch=1)
    assert texts(follow_log(queue._client, task, 1, timeout=30)) == [(1, b"one\n")]
    queue.cancel(task, "bob")
    assert texts(follow_log(queue._client, task, 7, timeout=30)) == []
    assert texts(follow_log(queue._client, task, timeout=30)) == [(1, b"one\n")]


def test_following_ends_by_timeout(queue: Queue, task: str) -> None:
    assert texts(follow_log(queue._client, task, timeout=0)) == []


@pytest.mark.parametrize("unseen", [0, 5, 40, 100, 170])
def test_a_log_cut_while_it_was_followed_goes_on_at_the_right_place(
    queue: Queue, task: str, unseen: int
) -> None:
    """The follower has seen almost all of it; the artifact has lost its middle."""
    claimed(queue)
    lines = [b"line %06d\n" % number for number in range(2000)]
    parts = follow_log(queue._client, task, timeout=30)
    seen = b""
    followed = len(lines) - unseen
    for start in range(0, followed, 50):
        say(queue, b"".join(lines[start : min(start + 50, followed)]))
        while len(seen) < 12 * min(start + 50, followed):
            seen += next(parts).data
    assert seen == b"".join(lines[:followed])
    if unseen:
        say(queue, b"".join(lines[followed:]))
    kept = b"".join(part.data for part in read_log(queue._client, task))
    stored(queue, kept)
    queue.complete(task, epoch=1)
    more = b"".join(part.data for part in parts)
    if unseen <= 100:
        assert seen + more == b"".join(lines)
    else:  # not all of it was kept
        assert more == kept.partition(b"left out here]\n")[2] and kept.endswith(lines[-1])


def test_following_on_the_command_line(queue: Queue, task: str) -> None:
    claimed(queue)
    say(queue, b"one\n\x1b[1mtwo\x1b[0m\n")
    queue.release(task, epoch=1)
    claimed(queue)
    say(queue, b"three\n", epoch=2)
    queue.complete(task, epoch=2)
    answer = show(task, "--follow").ok()
    assert answer.out == "three\n"
    lines = show(task, "-f", "--attempt", "1", "--json").ok().out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"task_id": "task-1", "epoch": 1, "line": "one", "entries": []},
        {"task_id": "task-1", "epoch": 1, "line": "two", "entries": []},
    ]
