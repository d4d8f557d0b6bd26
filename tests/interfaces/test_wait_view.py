"""What `agentq wait` shows while it waits: live lines on a terminal, ends elsewhere."""

from __future__ import annotations

import signal

import pytest

from agentq import Queue
from tests.eventually import eventually
from tests.interfaces.conftest import Submit, run_here, run_on_terminal
from tests.interfaces.live_terminal import on_terminal

pytestmark = pytest.mark.both_ways


@pytest.mark.long
def test_a_line_for_each_task_and_each_end_above_it(queue: Queue, submit: Submit) -> None:
    first, second = submit("--id", "task-1"), submit("--id", "task-2")
    with on_terminal("wait", first, second) as terminal:
        eventually(lambda: terminal.shows("0 of 2 are over"))
        claim = queue.claim_task(first)
        claim.progress(40, "half way")
        eventually(lambda: terminal.shows("40") and terminal.shows("half way"))
        claim.complete("all done")
        eventually(lambda: terminal.shows("task-1 is complete: all done\r\n"))
        queue.cancel(second, by="ann")
        eventually(lambda: terminal.shows("1 cancelled, 1 complete after"))
        assert terminal.process.wait(30) == 0


@pytest.mark.long
def test_an_interrupt_ends_the_waiting_and_nothing_else(queue: Queue, submit: Submit) -> None:
    task = submit()
    with on_terminal("wait", task) as terminal:
        eventually(lambda: terminal.shows("ready"))
        terminal.process.send_signal(signal.SIGINT)
        eventually(lambda: terminal.shows("no longer waiting: the task goes on"))
        assert terminal.process.wait(30) == 130
    assert queue.task(task).state == "ready"


@pytest.mark.long
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(
    queue: Queue, submit: Submit
) -> None:
    for name in ("task-1", "task-2"):
        queue.claim_task(submit("--id", name)).complete("done")
    words = ["wait", "task-1", "task-2"]
    found = run_on_terminal(words, {"TERM": "dumb", "NO_COLOR": "1"}).ok().out
    assert "task-1 is complete: done\n" in found
    assert "\x1b" not in found


def test_elsewhere_only_ends_are_shown_and_summed_up(queue: Queue, submit: Submit) -> None:
    for name in ("task-1", "task-2"):
        queue.claim_task(submit("--id", name)).complete(f"{name} is \x1b[31mred")
    found = run_here("wait", "task-1", "task-2").ok()
    assert found.out.splitlines() == [
        "task-1 is complete: task-1 is \\x1b[31mred",
        "task-2 is complete: task-2 is \\x1b[31mred",
    ]
    assert "2 complete after" in found.err
    assert "after" not in run_here("wait", "task-1").ok().err
