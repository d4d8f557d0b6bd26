"""`agentq up` on a terminal: log lines whole, and a block of what its workers do below them."""

from __future__ import annotations

import io
import re
import signal
from pathlib import Path
from typing import cast

import pytest

from agentq import Queue
from agentq.cli.fleet import LinesAbove
from tests.eventually import eventually
from tests.interfaces.conftest import Submit
from tests.interfaces.live_terminal import on_terminal

UP = ("up", "--no-http", "--grace", "1s")


@pytest.fixture
def served_role(home: Path) -> Path:
    settings = home / "agentq.toml"
    role = '[roles.worker]\ncommand = ["/bin/sh", "-c", "sleep 600"]\n'
    settings.write_text(settings.read_text() + role)
    return home


@pytest.mark.long
def test_the_block_shows_the_fleet_and_leaves_log_lines_whole(
    served_role: Path, queue: Queue, submit: Submit
) -> None:
    submit("--id", "task-1", "--title", "Build it")
    submit("--id", "task-2", "--requires-approval")
    with on_terminal(*UP, cwd=served_role) as terminal:
        eventually(lambda: terminal.shows("agentq up · Ctrl-C ends it"))
        eventually(lambda: terminal.shows("1/1 slots busy"))
        eventually(lambda: terminal.shows("Build it"))
        eventually(lambda: terminal.shows("waiting for you: 1 approval: `agentq status`"))
        terminal.resize(50)
        submit("--id", "task-3", "--requires-approval")
        eventually(lambda: terminal.shows("2 approvals"))
        terminal.process.send_signal(signal.SIGINT)
        eventually(lambda: terminal.shows("ends when its agents have"))
        assert terminal.process.wait(60) == 0
        lines = terminal.lines()
    logged = [line for line in lines if re.search("worker worker: started, process [0-9]+", line)]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d [\d:,]+  worker worker: started, process \d+", logged[0])
    started = r"[\d :-]+  task-1  attempt 1 of worker started"
    assert any(re.fullmatch(started, line) for line in lines), "of the worker"
    assert queue.task("task-1").state == "ready"


@pytest.mark.long
def test_a_terminal_that_cannot_move_its_cursor_gets_the_log_alone(
    served_role: Path, queue: Queue, submit: Submit
) -> None:
    submit("--id", "task-1")
    with on_terminal(*UP, cwd=served_role, term="dumb") as terminal:
        eventually(lambda: terminal.shows("task-1  attempt 1 of worker started"))
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(60) == 0
        assert not terminal.shows("Ctrl-C ends it\x1b")
        assert "\x1b[2K" not in terminal.written


def test_lines_come_above_the_block_whole_and_harmless() -> None:
    from rich.console import Console
    from rich.live import Live

    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=20, color_system=None)
    with Live(console=console, auto_refresh=False) as live:
        above = LinesAbove(live, file)
        above.write("one")
        assert "one" not in file.getvalue(), "a line is written when it has ended"
        above.write(" line\nand a long one that is wider than the terminal\nnot [bold]ended")
        above.write(" \x1b]0;title\x07")
        above.finish()
        above.finish()
        above.write("x" * 20_000)
    shown = file.getvalue()
    assert "one line\n" in shown
    assert "and a long one that is wider than the terminal\n" in shown
    assert "not [bold]ended \\x1b]0;title\\x07\n" in shown
    assert "x" * 20_000 in shown
    stream = cast("io.TextIOBase", above)
    assert stream.isatty() and stream.writable() and stream.errors == "backslashreplace"
