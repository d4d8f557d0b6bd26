"""Python functions as workers: what a handler may do, how it ends, and how soon it is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentq import Block, Claim, Fail, Invalid, Leave, Queue, Retry, Stale, State, Task
from agentq.core.triggers import LogEntry
from tests.architecture.files import ROOT
from tests.ways import LEDGERS, ledger_address

PATIENCE = 20.0


@pytest.fixture(params=LEDGERS)
def url(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The address of a ledger, on each database and behind a server."""
    monkeypatch.setenv("AGENTQ_HOME", str(tmp_path / "home"))
    with ledger_address(request, tmp_path, monkeypatch) as address:
        yield address


@pytest.fixture
def queue(url: str) -> Iterator[Queue]:
    """A queue; at the end its log still tells what its rows say."""
    with Queue(url) as made:
        yield made
        assert [problems for _, problems in made.admin.verify() if problems] == []


@contextmanager
def serving(
    queue: Queue, function: Callable[[Claim], str | None], **options: Any
) -> Iterator[None]:
    """Serve the role `w` in a thread while the block runs."""
    thread = threading.Thread(target=queue.serve, args=("w", function), kwargs=options)
    thread.start()
    try:
        yield
    finally:
        # It may be about to begin: `stop` ends what runs.
        while thread.is_alive():
            queue.stop()
            thread.join(0.05)


def first_end(queue: Queue, task: Task) -> LogEntry:
    """How the first attempt ended."""
    claimed = [entry.event.kind for entry in queue.history(task)].index("claimed")
    later = queue.history(task)[claimed:]
    return next(entry for entry in later if entry.event.state is not State.IN_PROGRESS)


def test_a_function_does_the_tasks_of_a_role(queue: Queue) -> None:
    def count(claim: Claim) -> str:
        claim.progress(50, "read it")
        claim.put("words.txt", claim.context())
        return f"{len(claim.context().split())} words\n\nSee words.txt."

    early = queue.submit("w", "one two")
    with serving(queue, count, slots=2):
        late = queue.submit("w", "one two three")
        for task in queue.wait([early, late], PATIENCE):
            assert task.state is State.COMPLETE
    assert queue.task(late).summary == "3 words"
    assert queue.result(late).text() == "3 words\n\nSee words.txt."
    assert [each.name for each in queue.artifacts(early)] == ["result.md", "words.txt"]


def test_slots_are_how_many_run_at_once(queue: Queue) -> None:
    together = threading.Barrier(3)
    running, most = [], 0
    lock = threading.Lock()

    def meet(claim: Claim) -> None:
        nonlocal most
        with lock:
            running.append(claim.id)
            most = max(most, len(running))
        together.wait(PATIENCE)
        with lock:
            running.remove(claim.id)

    tasks = queue.submit_many([{"to": "w", "instructions": str(n)} for n in range(6)])
    with serving(queue, meet, slots=3):
        queue.wait(tasks, PATIENCE)
    assert most == 3


def test_a_handler_leaves_until_its_children_are_over(queue: Queue) -> None:
    def divide(claim: Claim) -> str:
        match claim.context():
            case "whole" if not claim.task.details.ended_children:
                for half in ("left", "right"):
                    claim.submit(to="w", instructions=half)
                raise Leave("two halves")
            case "whole":
                return f"{len(claim.task.details.ended_children)} halves: {claim.notes[-1].text}"
            case "idle":
                raise Leave("for nothing")
        return claim.context()

    whole, idle = queue.submit("w", "whole"), queue.submit("w", "idle", max_attempts=1)
    with serving(queue, divide):  # one slot: it is free while the children run
        assert queue.wait(whole, PATIENCE).summary == "2 halves: two halves"
        assert "nothing to yield for" in queue.wait(idle, PATIENCE).reason
    assert queue.task(whole).details.failures == 0


def test_typed_failures_and_what_follows(queue: Queue) -> None:
    def act(claim: Claim) -> str | None:
        match claim.context():
            case "retry":
                raise Retry("the line was busy")
            case "later":
                raise Retry("not there yet", delay="1h")
            case "block":
                raise Block("which of the two?")
            case "fail":
                raise Fail("no such file")
            case "poor":
                raise Fail("half of it is missing", "bad_output")
            case "raise":
                raise ZeroDivisionError("by zero")
            case "odd":
                return 7  # type: ignore[return-value]
            case "said":
                claim.complete("said by itself", "its own result")
        return None

    words = ["retry", "later", "block", "fail", "poor", "raise", "odd", "said", "gated"]
    tasks = {word: queue.submit("w", word, max_attempts=9) for word in words if word != "gated"}
    tasks["gated"] = queue.submit("w", "gated", expect="patch", max_attempts=9)
    with serving(queue, act, slots=4):
        ended = [state for state in State if state not in (State.READY, State.IN_PROGRESS)]
        queue.wait(tasks.values(), PATIENCE, until=ended)
    # What may be tried again may have been by now: only the first attempt counts here
    first = {word: first_end(queue, task) for word, task in tasks.items()}
    assert {word: entry.event.state.value for word, entry in first.items()} == {
        "retry": "pending", "later": "pending", "block": "blocked", "fail": "failed",
        "poor": "pending", "raise": "pending", "odd": "pending", "said": "complete",
        "gated": "pending",
    }  # fmt: skip
    assert queue.task(tasks["retry"]).details.failures >= 1
    assert queue.task(tasks["later"]).details.failures == 0
    assert queue.task(tasks["raise"]).reason == "ZeroDivisionError: by zero"
    assert "expected text or None" in queue.task(tasks["odd"]).reason
    assert "patch" in queue.task(tasks["gated"]).reason
    assert queue.result(tasks["said"]).text() == "its own result"


def test_a_cancel_is_seen_within_a_second(queue: Queue, url: str) -> None:
    """It once was at the next renewal: a third of a lease of a minute."""
    began, seen, after = threading.Event(), threading.Event(), []

    def work(claim: Claim) -> None:
        token = claim.cancel_token
        began.set()
        if token.wait(PATIENCE):
            seen.set()
        with pytest.raises(Stale):
            claim.progress(90)
        after.append(claim.id)
        token.check()

    task = queue.submit("w", "x", lease="10m")
    with serving(queue, work):
        assert began.wait(PATIENCE)
        with Queue(url) as other:  # as another process would
            started = time.monotonic()
            other.cancel(task, by="ann")
            assert seen.wait(PATIENCE)
            assert time.monotonic() - started < 1
    assert after == [task.id]
    # Its holder has said that it stopped: nobody waits for the end of the lease
    assert queue.task(task).state is State.CANCELLED and queue.task(task).holder == ""


def test_a_claim_in_a_with_is_told_as_soon(queue: Queue) -> None:
    task = queue.submit("w", "x", lease="10m")

    def work() -> None:
        with queue.claim_task(task, holder="me") as claim:
            token = claim.cancel_token
            started = time.monotonic()
            queue.cancel(task, by="ann")
            assert token.wait(PATIENCE) and time.monotonic() - started < 1
            token.check()

    with pytest.raises(Stale):
        work()
    assert queue.task(task).holder == ""


def test_leases_are_renewed_while_a_handler_works(queue: Queue) -> None:
    def outlive(claim: Claim) -> str:
        lost = claim.cancel_token.wait(2.5)
        return "lost" if lost else "held"

    task = queue.submit("w", "x", lease=1)
    with serving(queue, outlive):
        assert queue.wait(task, PATIENCE).epoch == 1
    assert queue.result(task).text() == "held"


def test_stop_lets_what_runs_finish(queue: Queue) -> None:
    began, go = threading.Event(), threading.Event()

    def work(claim: Claim) -> str:
        began.set()
        assert go.wait(PATIENCE)
        return "finished"

    running = queue.submit("w", "x")
    with serving(queue, work):
        assert began.wait(PATIENCE)
        queue.stop()
        waiting = queue.submit("w", "y")
        go.set()
    assert queue.task(running).state is State.COMPLETE
    assert queue.task(waiting).state is State.READY


def test_what_does_not_finish_in_time_is_given_back(queue: Queue) -> None:
    began, told = threading.Event(), threading.Event()

    def work(claim: Claim) -> None:
        began.set()
        if claim.cancel_token.wait(PATIENCE):
            told.set()

    task = queue.submit("w", "x")
    with serving(queue, work, grace=0.1):
        assert began.wait(PATIENCE)
        queue.stop()
    assert told.wait(PATIENCE)
    assert queue.task(task).state is State.READY
    assert queue.task(task).details.failures == 0


def test_handlers_are_registered_and_run_together(queue: Queue) -> None:
    @queue.handler("greeter")
    def greet(claim: Claim) -> str:
        return f"hello {claim.context()}"

    @queue.handler("counter", slots=2)
    def count(claim: Claim) -> str:
        return str(len(claim.context()))

    first, second = queue.submit("greeter", "ann"), queue.submit("counter", "four")
    queue.run(idle=0.1)
    assert queue.result(first).text() == "hello ann"
    assert queue.result(second).text() == "4"
    assert (greet.__name__, count.__name__) == ("greet", "count")


def test_idle_means_that_no_role_has_anything_left(queue: Queue) -> None:
    """The end of one task makes one of another role ready: that is not idle."""
    for role in ("a", "b", "c"):
        queue.handler(role)(lambda claim: claim.task.to)
    first = queue.submit("a", "x")
    second = queue.submit("b", "x", after=first)
    last = queue.submit("c", "x", after=second)
    queue.run(idle=0)
    assert queue.task(last).state is State.COMPLETE


async def coroutine(claim: Claim) -> None:
    """What only an AsyncQueue can run."""


def test_what_cannot_be_served_is_refused_at_once(queue: Queue) -> None:
    with pytest.raises(Invalid, match="nothing to serve"):
        queue.run()
    with pytest.raises(Invalid, match="slots"):
        queue.serve("w", lambda claim: None, slots=0)
    with pytest.raises(Invalid, match="is a coroutine"):
        queue.serve("w", coroutine)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="a function"):
        queue.serve("w", "not a function")  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="role"):
        queue.serve("no role\n", lambda claim: None)


PROGRAM = """
import sys
from agentq import Queue

with Queue(sys.argv[1]) as queue:
    def work(claim):
        print("began", flush=True)
        claim.cancel_token.wait(60 if claim.context() == "long" else 0.5)
        return "finished"

    queue.serve("w", work, grace=float(sys.argv[2]))
    print("ended well", flush=True)
"""


#: Says when it was told to stop.
TELLING = """
from agentq.client.serving import Server

def stop(self, before=Server.stop):
    before(self)
    print("told", flush=True)

Server.stop = stop
"""


def test_a_second_signal_ends_it_quickly(queue: Queue, url: str) -> None:
    task = queue.submit("w", "long")
    program = subprocess.Popen(
        [sys.executable, "-c", TELLING + PROGRAM, url, "60"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "began\n"
    program.send_signal(signal.SIGTERM)
    assert program.stdout.readline() == "told\n"
    program.send_signal(signal.SIGTERM)
    assert program.communicate(timeout=PATIENCE)[0].endswith("ended well\n")
    assert queue.task(task).state is State.READY


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("words", "grace", "state"), [("short", "30", "complete"), ("long", "0.1", "ready")]
)
def test_signals_end_it_in_good_order(
    queue: Queue, url: str, number: int, words: str, grace: str, state: str
) -> None:
    task = queue.submit("w", words)
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url, grace], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=dict(os.environ),
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "began\n"
    program.send_signal(number)
    assert program.communicate(timeout=PATIENCE)[0] == "ended well\n"
    assert program.returncode == 0
    assert queue.task(task).state.value == state
