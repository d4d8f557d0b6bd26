"""An attempt under the word of its role: told to the tool, checked with it, held by the sandbox."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from agentq.worker.denials import described
from agentq.worker.prompt import prompt_for
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


def test_what_was_denied_stands_in_status_explain_reason_and_the_next_prompt(
    fleet: Fleet, task_id: str
) -> None:
    steps = "[{ask-permission: git commit}, {ask-permission: git commit}, {fail: I gave up.}]"
    verdict = fleet.work(agent="claude", command=fake_claude(fleet, f"steps: {steps}\n"))
    assert len(verdict.denials) == 2, "each tool call counts once, and each try is one"
    task = fleet.queue.task(task_id)
    named = "2 tool calls were not allowed: Bash: git commit (2 times)"
    assert task.details.denied == 2 and named in task.reason
    assert [note.text for note in task.details.notes if note.kind == "denied"] == [named]
    assert any(cause == named for cause, _ in fleet.queue._client.explain(task_id).causes)
    prompt = prompt_for(task, "", task.details.notes)
    assert "An earlier attempt was not allowed something, and neither are you" in prompt
    assert f": {named}\n" in prompt


def test_denials_are_named_once_shortened_and_without_secrets(fleet: Fleet, task_id: str) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    lines = [
        f"print(json.dumps({{'agentq': {{'denied': 'cmd {n} {secret}'}}}}))" for n in range(12)
    ]
    fleet.work(command=script(*lines, "print('done')"))
    task = fleet.queue.task(task_id)
    (note,) = (note for note in task.details.notes if note.kind == "denied")
    assert task.state is State.COMPLETE and task.details.denied == 12
    assert note.text.startswith("12 tool calls were not allowed: cmd 0 ")
    assert note.text.endswith("and 2 more") and secret not in note.text
    assert described([]) == "" and described(["a"]) == "1 tool call was not allowed: a"


def test_an_agent_that_has_reported_by_itself_loses_nothing_by_its_denials(
    fleet: Fleet, task_id: str
) -> None:
    """Its attempt is over when the worker has something to add."""
    command = script(
        "import subprocess",
        "print(json.dumps({'agentq': {'denied': 'git commit'}}), flush=True)",
        "subprocess.run(['.agentq-task/agentq', 'complete', '--summary', 'mine'], check=True)",
    )
    fleet.work(command=command)
    task = fleet.queue.task(task_id)
    assert (task.state, task.summary, task.details.denied) == (State.COMPLETE, "mine", 0)
    assert "that was not recorded" in fleet.output.getvalue()
