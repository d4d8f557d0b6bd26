"""On a terminal a command says what usually comes next; nowhere else is there a line more."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from agentq import Queue
from agentq.cli import next_steps, screen
from agentq.cli.main import COMMANDS
from agentq.core.states import State
from agentq.settings import FILE_NAME
from tests.interfaces.conftest import run_here, run_on_terminal
from tests.tiers import long_but

GIT_ROLE = '\n[roles.coder]\ncommand = "true"\nworkspace = "git"\nrepo = "."\n'

Next = Callable[..., str]


@pytest.fixture
def next_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> Next:
    """Run a command as on a terminal; the step that it tells."""
    monkeypatch.setattr(screen, "is_terminal", lambda err=False: True)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: str) -> str:
        answer = run_here(*words).ok()
        lines = [line for line in answer.err.splitlines() if line.startswith("next: ")]
        assert len(lines) <= 1
        assert "next: " not in answer.out
        return lines[0].removeprefix("next: ") if lines else ""

    return run


def submitted(next_of: Next, *words: str, to: str = "w", task: str = "task-a") -> str:
    return next_of("submit", "--to", to, "--id", task, "--instructions", "Do it.", *words)


@pytest.mark.both_ways
def test_each_state_has_its_step(next_of: Next) -> None:
    nobody = "no worker has ever asked for role w: `agentq worker w` starts one"
    assert submitted(next_of, "--review") == nobody
    assert next_of("status", "task-a") == nobody
    run_here("claim", "--as", "w").ok()
    assert next_of("status", "task-a") == "`agentq logs -f task-a` follows its agent"
    run_here("complete", "task-a", "--epoch", "1").ok()
    assert "`agentq approve task-a` or `agentq reject task-a`" in next_of("status", "task-a")
    assert next_of("approve", "task-a", "--by", "kim") == (
        "`agentq result task-a` prints what came of it"
    )
    assert next_of("result", "task-a") == "`agentq artifacts ls task-a` lists its files"
    assert submitted(next_of, task="task-b") == "`agentq wait task-b` waits until it is over"
    assert next_of("comment", "task-b", "hello") == "", "no command of the usual way"


@pytest.mark.long
@pytest.mark.both_ways
def test_what_waits_for_a_person(next_of: Next) -> None:
    assert "`agentq approve task-a" in submitted(next_of, "--requires-approval")
    submitted(next_of, task="task-b")
    run_here("claim", "task-b", "--as", "w").ok()
    run_here("block", "task-b", "--epoch", "1", "--reason", "Which\x1b[2J one?").ok()
    step = next_of("status", "task-b")
    assert "`agentq answer task-b" in step
    assert "\x1b" not in step
    submitted(next_of, task="task-c")
    run_here("claim", "task-c", "--as", "w").ok()
    run_here("fail", "task-c", "--epoch", "1", "--kind", "invalid", "--reason", "no").ok()
    assert next_of("status", "task-c") == "`agentq logs task-c` shows what its agent said"
    assert "`agentq worker w`" in next_of("requeue", "task-c", "--reason", "again")


def test_work_in_a_repository_is_a_change(next_of: Next) -> None:
    with Path(FILE_NAME).open("a") as file:
        file.write(GIT_ROLE)
    submitted(next_of, to="coder")
    run_here("claim", "--as", "coder").ok()
    run_here("complete", "task-a", "--epoch", "1").ok()
    assert next_of("status", "task-a") == (
        "`agentq diff task-a` shows what it changed, `agentq apply task-a` takes the change into"
        " your branch"
    )
    with Queue() as queue:
        queue._client.service.mark_applied(queue.who, "task-a", "0" * 40, "main")
    assert next_of("status", "task-a") == "`git show 000000000000` shows the commit that it became"


@pytest.mark.long
@pytest.mark.both_ways
def test_what_is_run_again_is_another_task(next_of: Next) -> None:
    submitted(next_of)
    assert next_of("cancel", "task-a") == (
        "`agentq rerun task-a` does the same once more, as a new task"
    )
    step = next_of("rerun", "task-a")
    assert step.startswith("no worker has ever asked for role w")


@pytest.mark.parametrize("name", long_but(["-q"], ["-q", "--quiet", "--json"]))
def test_who_wants_none_gets_none(next_of: Next, name: str) -> None:
    submitted(next_of)
    assert next_of("status", "task-a", name) == ""
    assert next_of(name, "status", "task-a") == ""


def test_none_by_variable_nor_inside_an_attempt(
    next_of: Next, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submitted(next_of)
    monkeypatch.setenv("AGENTQ_TASK_ID", "task-a")
    monkeypatch.setenv("AGENTQ_EPOCH", "1")
    assert next_of("status", "task-a") == ""
    monkeypatch.delenv("AGENTQ_EPOCH")
    assert next_of("status", "task-a") != ""
    monkeypatch.setenv("AGENTQ_QUIET", "1")
    assert next_of("status", "task-a") == ""


def test_none_in_a_pipe(home: Path) -> None:
    answer = run_here("submit", "--to", "w", "--instructions", "Do it.").ok()
    assert answer.err == ""


@pytest.mark.long
def test_none_after_an_error(home: Path) -> None:
    shown = run_on_terminal(["status", "task-none"])
    assert "next:" not in shown.out and shown.status == 3


@pytest.mark.long
def test_a_terminal_shows_it_below_the_answer(home: Path) -> None:
    shown = run_on_terminal(["submit", "--to", "w", "--id", "task-a", "--instructions", "Do it."])
    lines = shown.out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("\x1b[90mnext: no worker has ever asked for role w")


def test_steps_name_commands_that_exist() -> None:
    known = {name for section in COMMANDS.values() for name in section}
    tables = [*next_steps.OF_TASK.values(), *next_steps.OF_CHANGE.values(), next_steps.AFTER]
    steps = [step for table in tables for step in table.values()]
    named = {name for step in steps for name in re.findall(r"`agentq ([a-z-]+)", step)}
    assert named <= known
    assert all("{id}" in step for table in tables[:-1] for step in table.values())
    assert set(next_steps.OF_TASK) | {State.REVIEW, State.BLOCKED} == set(State)
