"""`agentq stats` and `agentq top`: how work goes, for people and for programs."""

from __future__ import annotations

import os

import pytest

from agentq import Queue, Usage
from agentq.core.states import State
from tests.eventually import eventually
from tests.interfaces.conftest import Submit, run_here
from tests.interfaces.live_terminal import LiveTerminal, on_terminal

pytestmark = pytest.mark.both_ways


@pytest.fixture
def worked(queue: Queue, submit: Submit) -> Queue:
    """One task done, one failed for good, one that waits for an approval, one that runs."""
    for number in range(3):
        submit("--to", "builder", "--id", f"task-{number}")
    queue.claim_task("task-0").complete("done", cost=Usage(usd=0.5))
    queue.claim_task("task-1").fail("it cannot be built", kind="invalid")
    queue.claim_task("task-2").progress(40, "half of it")
    submit("--to", "writer", "--id", "ask-1", "--requires-approval")
    return queue


def test_stats_say_how_work_went(worked: Queue) -> None:
    found = run_here("stats", "--json").ok().json()
    assert found["period"] == "24h"
    builder = found["work"]["roles"]["builder"]
    assert (builder["started"], builder["completed"], builder["failed"]) == (3, 1, 1)
    assert builder["failure_rate"] == 0.5 and builder["failures"] == {"invalid": 1}
    assert builder["waiting_p50_seconds"] <= builder["waiting_p99_seconds"]
    assert builder["cost"] == {"usd": 0.5}
    shown = run_here("stats", "--period", "1h").ok().out
    assert "in the last hour:" in shown
    lines = [line.split() for line in shown.splitlines() if line.startswith("builder")]
    assert lines[1][:5] == ["builder", "3", "1", "1", "50%"]
    assert worked.admin.numbers("total").by_role()["builder"].dead == 1


def test_stats_of_nothing_are_short(queue: Queue) -> None:
    assert run_here("stats").ok().out.strip() == ""


def test_top_is_written_once_where_there_is_no_terminal(worked: Queue) -> None:
    shown = run_here("top").ok().out
    assert "1 running" in shown and "last hour: 1 done, 1 failed (50% of attempts)" in shown
    assert "Waiting for you: 1 approval, 1 dead letter" in shown
    assert "ask-1  approval  writer" in shown
    assert "half of it" in shown
    found = run_here("top", "--json").ok().json()
    assert found["hour"]["completed"] == 1 and found["roles"]


def test_keys_open_approve_and_cancel(worked: Queue) -> None:
    with on_terminal("top") as terminal:
        eventually(lambda: terminal.shows("> ask-1"))
        press(terminal, "a")
        eventually(lambda: terminal.shows("$ agentq approve ask-1"))
        press(terminal, "y\n")
        eventually(lambda: worked.task("ask-1").state is State.READY)
        eventually(lambda: terminal.shows("any key goes back"))
        press(terminal, " ")
        eventually(lambda: terminal.shows("> task-1"))
        press(terminal, "j")
        eventually(lambda: terminal.shows("Running"))
        press(terminal, "c")
        eventually(lambda: terminal.shows("Cancel task-2?"))
        press(terminal, "y\n")
        eventually(lambda: worked.task("task-2").state is State.CANCELLED)
        eventually(lambda: went_back(terminal) == 2)
        press(terminal, " ")
        # What is typed while one screen follows another is forgotten: it is typed again.
        eventually(lambda: ended_by(terminal, "q"))
        assert terminal.process.returncode == 0


def went_back(terminal: LiveTerminal) -> int:
    terminal.shows("")
    return terminal.written.count("any key goes back")


def ended_by(terminal: LiveTerminal, keys: str) -> bool:
    if terminal.process.poll() is None:
        press(terminal, keys)
    return terminal.process.poll() is not None


def press(terminal: LiveTerminal, keys: str) -> None:
    os.write(terminal._ours, keys.encode())
