"""An attempt under the word of its role: told to the tool, checked with it, held by the sandbox."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways


def fake_claude(fleet: Fleet, text: str) -> tuple[str, ...]:
    file = fleet.folder / "script.yaml"
    file.write_text(text)
    words = ("-m", "agentq", "fake-agent", "--dialect", "claude", "--script", str(file))
    return (sys.executable, *words)


@pytest.fixture
def task_id(fleet: Fleet) -> str:
    return fleet.queue.submit(to=ROLE, instructions="Look for risks.").id


def test_a_tool_with_other_permissions_than_it_was_told_is_stopped(
    fleet: Fleet, task_id: str
) -> None:
    """As when a setting of the machine, or a new release, makes something else of the mode."""
    command = fake_claude(fleet, "mode: bypassPermissions\nsteps: [{work: 1h}, {result: done}]\n")
    verdict = fleet.work(agent="claude", command=command)
    assert verdict.outcome is AttemptOutcome.INVALID
    failed = fleet.queue.task(task_id)
    assert failed.state is State.FAILED
    assert "--permission-mode acceptEdits" in failed.reason
    assert "bypassPermissions is in effect" in failed.reason


def test_a_tool_says_that_what_it_was_told_is_in_effect(fleet: Fleet, task_id: str) -> None:
    command = fake_claude(fleet, "steps: [{result: nothing to worry about}]\n")
    verdict = fleet.work(agent="claude", command=command, permissions="read")
    assert verdict.outcome is AttemptOutcome.COMPLETED


WRITING = script(
    "def tried(path):",
    "    try: open(path, 'w').write('x'); return 'yes'",
    "    except OSError: return 'no'",
    "print(json.dumps({'type': 'result', 'is_error': False, 'result':",
    "    tried('a.py') + ' ' + tried('.agentq-task/result.md') + ' ' + tried('/etc/agentq-was')}))",
)


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize(("word", "written"), [("read", "no yes no"), ("edit", "yes yes no")])
def test_a_sandbox_holds_any_tool_to_reading(
    fleet: Fleet, task_id: str, tmp_path: Path, word: str, written: str
) -> None:
    fleet.work(agent="claude", command=WRITING, permissions=word, sandbox="bwrap")
    done = fleet.queue.task(task_id)
    assert (done.state, done.summary) == (State.COMPLETE, written)
