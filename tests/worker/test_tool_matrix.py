"""Each tool's dialect through what `make test-agents` tries with the tools themselves.

Handing in under every word of permissions, denials, a bad key, an overload, a crash after which the
next attempt has conversation and work. The stand-in agent plays the tools, so this runs anywhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from agentq.worker import readiness
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet
from tests.worker.repositories import new_repo

pytestmark = [
    pytest.mark.long,
    pytest.mark.beside("rehearsals take every dialect through a server, and this the tools' words"),
]

TOOLS = ("claude", "codex", "gemini", "opencode")
WORDS = ("read", "edit", "run", "full")

every_tool = pytest.mark.parametrize("tool", TOOLS)


def played(fleet: Fleet, tool: str, steps: str) -> dict[str, Any]:
    """The role of a stand-in that plays these steps."""
    folder = fleet.folder / "played"  # which a sandbox must let through
    folder.mkdir(exist_ok=True)
    file = folder / "script.yaml"
    file.write_text(steps)
    words = ("-m", "agentq", "fake-agent", "--dialect", tool, "--script", str(file))
    return {"agent": tool, "command": (sys.executable, *words), "writable": (str(folder),)}


@pytest.fixture
def task_id(fleet: Fleet) -> str:
    return fleet.queue.submit(to=ROLE, instructions="Look for risks.", max_attempts=3).id


@pytest.mark.usefixtures("bubblewrap")
@pytest.mark.parametrize("word", WORDS)
@every_tool
def test_work_is_handed_in_under_every_word(
    fleet: Fleet, task_id: str, tool: str, word: str
) -> None:
    steps = (
        "steps:\n  - write: {path: .agentq-task/result.md, text: by the file}\n"
        "  - write: {path: .agentq-task/artifacts/notes.md, text: seen}\n  - result: said\n"
    )
    fleet.work(**played(fleet, tool, steps), permissions=word, sandbox="bwrap")
    done = fleet.queue.task(task_id)
    assert done.state is State.COMPLETE, done.reason
    assert fleet.queue.result(task_id).text() == "by the file"
    assert "notes.md" in {each.name for each in fleet.queue.artifacts(task_id)}


@every_tool
def test_an_answer_alone_is_the_result(fleet: Fleet, task_id: str, tool: str) -> None:
    fleet.work(**played(fleet, tool, "steps: [{result: said}]\n"), permissions="read")
    assert fleet.queue.result(task_id).text().strip() == "said"


@every_tool
def test_denials_are_shown(fleet: Fleet, task_id: str, tool: str) -> None:
    steps = "steps: [{ask-permission: git commit}, {result: said}]\n"
    fleet.work(**played(fleet, tool, steps))
    task = fleet.queue.task(task_id)
    assert task.state is State.COMPLETE and task.details.denied == 1
    assert "git commit" in str(fleet.queue.explain(task_id))


@every_tool
def test_a_bad_key_harms_no_task(
    fleet: Fleet, task_id: str, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_AGAIN_SECONDS", 0.1)
    steps = "steps: [{api-error: {status: 401, message: bad key}}]\n"
    with fleet.worker(fleet.settings(**played(fleet, tool, steps))):
        eventually(lambda: [each.role for each in fleet.queue.admin.circuits()] == [ROLE])
        eventually(lambda: fleet.verdicts)
    task = fleet.queue.task(task_id)
    assert not task.details.failures and task.details.interruptions == 1
    assert fleet.verdicts[0].outcome is AttemptOutcome.SURROUNDINGS


@every_tool
def test_an_overload_harms_no_task(fleet: Fleet, task_id: str, tool: str) -> None:
    # opencode serves many providers: its role names the one.
    role = {**played(fleet, tool, "steps: [{api-error: 529}]\n"), "provider": "somebody"}
    with fleet.worker(fleet.settings(**role)):
        eventually(lambda: [each.provider for each in fleet.queue.admin.circuits()] == ["somebody"])
        eventually(lambda: fleet.verdicts)
    task = fleet.queue.task(task_id)
    assert not task.details.failures and task.details.interruptions == 1
    assert fleet.verdicts[0].outcome is AttemptOutcome.OVERLOADED


@every_tool
def test_after_a_crash_the_next_attempt_has_conversation_and_work(
    fleet: Fleet, task_id: str, tool: str, tmp_path: Path
) -> None:
    repo = new_repo(tmp_path / "code")
    steps = (
        "tasks:\n  - attempt: 1\n    steps:\n      - say: hello\n"
        "      - write: {path: half.txt, text: half}\n      - crash: KILL\n"
        "steps:\n  - write: {path: rest.txt, text: rest}\n  - result: done\n"
    )
    role = {**played(fleet, tool, steps), "workspace": "git", "repo": str(repo.path)}
    assert fleet.work(**role).outcome is AttemptOutcome.CRASHED
    fleet.queue.wait(task_id, 30, until=(State.READY,))
    assert fleet.work(**role).outcome is AttemptOutcome.COMPLETED
    files = {(each.name, each.epoch): each for each in fleet.queue.artifacts(task_id)}
    session = files["agentq/session.txt", 1].read()
    assert session and session in files["output.log", 2].read(), "the conversation went on"
    changed = repo.git("diff", "--name-only", "main", f"agentq/{task_id}-2").split()
    assert changed == ["half.txt", "rest.txt"], "and nothing of the work is missing"
