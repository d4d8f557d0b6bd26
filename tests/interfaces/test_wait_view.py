"""What `agentq wait` shows while it waits: live lines on a terminal, ends elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from agentq import Queue
from tests.eventually import eventually
from tests.interfaces.conftest import (
    PROGRAM,
    Submit,
    clean_environment,
    run_here,
    run_on_terminal,
)

pytestmark = pytest.mark.both_ways


class LiveTerminal:
    """A terminal that a command runs on, and what it has written there."""

    def __init__(self, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self._ours, False)
        self.process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=clean_environment(),
            start_new_session=True,
        )
        os.close(theirs)
        self.written = ""

    def shows(self, words: str) -> bool:
        """Whether it has written this by now."""
        try:
            while data := os.read(self._ours, 65536):
                self.written += data.decode("utf-8", "replace")
        except OSError:
            pass  # nothing at the moment, or nothing ever again
        return words in re.sub(r"\x1b\[[0-9;]*m", "", self.written)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def on_terminal(*words: str) -> Iterator[LiveTerminal]:
    terminal = LiveTerminal(*words)
    try:
        yield terminal
    finally:
        terminal.close()


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
