"""An attempt under the word of its role: told to the tool, checked with it, held by the sandbox."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from agentq.worker import denials, workspaces
from agentq.worker.denials import described
from agentq.worker.prompt import prompt_for
from tests.eventually import eventually
from tests.worker.fleet import ROLE, Fleet, script
from tests.worker.repositories import Repo, new_repo

pytestmark = pytest.mark.both_ways(in_turn="tests")


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
    """As when a setting of the machine, or a new release, makes something else of the mode: that is
    so for every task, which the check of the role finds, and so no task is used up by it."""
    command = fake_claude(fleet, "mode: bypassPermissions\nsteps: [{work: 1h}, {result: done}]\n")
    verdict = fleet.work(agent="claude", command=command)
    assert verdict.outcome is AttemptOutcome.SURROUNDINGS
    (circuit,) = fleet.queue.admin.circuits()
    assert circuit.role == ROLE and "--permission-mode acceptEdits" in circuit.reason
    assert "bypassPermissions is in effect" in circuit.reason
    task = fleet.queue.task(task_id)
    assert not task.is_terminal
    assert (task.details.failures, task.details.interruptions) == (0, 1)


#: Says that another mode is in effect, unless it is the check of the role that asks.
OTHER_MODE = script(
    "mode = 'acceptEdits' if 'single word OK' in sys.stdin.read() else 'bypassPermissions'",
    "print(json.dumps({'type': 'system', 'subtype': 'init', 'permissionMode': mode}), flush=True)",
    "print(json.dumps({'type': 'result', 'is_error': False, 'result': 'OK'}))",
)


@pytest.mark.long
def test_other_permissions_for_one_task_alone_fail_that_task(fleet: Fleet, task_id: str) -> None:
    verdict = fleet.work(agent="claude", command=OTHER_MODE)
    assert verdict.outcome is AttemptOutcome.INVALID
    failed = fleet.queue.task(task_id)
    assert (failed.state, failed.details.reason_kind) == (State.FAILED, "invalid")
    assert "bypassPermissions is in effect" in failed.reason and "alone" in failed.reason
    assert not fleet.queue.admin.circuits()


def git_role(fleet: Fleet, repo: Repo) -> dict[str, Any]:
    fleet.environment = {**fleet.environment, "GIT_CONFIG_NOSYSTEM": "1"}
    return {"agent": "gemini", "command": NEVER, "workspace": "git", "repo": str(repo.path)}


NEVER = script("sys.exit('it was started')")


@pytest.mark.long
def test_a_tree_with_settings_of_the_tool_fails_its_task_alone(
    fleet: Fleet, task_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No model is asked for that: what stands in the way is known, and it is in this tree."""
    repo = new_repo(tmp_path / "repo-home")
    real = workspaces.Workspaces.open

    def with_settings(*given: Any) -> Any:
        made = real(*given)
        (made.path / ".env").write_text("GEMINI_API_KEY=another")
        return made

    monkeypatch.setattr(workspaces.Workspaces, "open", with_settings)
    verdict = fleet.work(**git_role(fleet, repo))
    assert verdict.outcome is AttemptOutcome.INVALID
    failed = fleet.queue.task(task_id)
    assert (failed.state, failed.details.reason_kind) == (State.FAILED, "invalid")
    assert "brings .env, which Gemini CLI obeys" in failed.reason
    assert not fleet.queue.admin.circuits()


def test_a_repository_with_settings_of_the_tool_keeps_the_role_from_claiming(
    fleet: Fleet, task_id: str, tmp_path: Path
) -> None:
    repo = new_repo(tmp_path / "repo-home")
    repo.commit(".gemini/settings.json", "{}")
    with fleet.worker(fleet.settings(**git_role(fleet, repo))) as worker:
        eventually(fleet.queue.admin.circuits)
        assert "every worktree has .gemini/settings.json" in worker.readiness.problem
    assert fleet.queue.task(task_id).epoch == 0, "nobody has claimed it"


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


def test_what_an_agent_was_denied_is_known_though_it_reports_by_itself(
    fleet: Fleet, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report ends the attempt, and nobody can add to it. Before that the rest is recorded,
    which else would come together with more, after a pause."""
    monkeypatch.setattr(denials, "_PAUSE_SECONDS", 3600.0)
    command = script(
        "import subprocess",
        "print(json.dumps({'agentq': {'denied': 'git commit'}}), flush=True)",
        "print(json.dumps({'agentq': {'denied': 'git push'}}), flush=True)",
        "subprocess.run(['.agentq-task/agentq', 'complete', '--summary', 'mine'], check=True)",
    )
    fleet.work(command=command)
    task = fleet.queue.task(task_id)
    assert (task.state, task.summary, task.details.denied) == (State.COMPLETE, "mine", 2)
    told = [note.text for note in task.details.notes if note.kind == "denied"]
    assert told == ["2 tool calls were not allowed: git commit; git push"]


def test_what_an_agent_is_denied_is_in_the_ledger_while_it_runs(
    fleet: Fleet, task_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is there if the worker is killed. One note tells of all, whenever it came."""
    monkeypatch.setattr(denials, "_PAUSE_SECONDS", 0.05)
    go_on = fleet.folder / "go-on"
    deny = "print(json.dumps({'agentq': {'denied': %r}}), flush=True)"
    command = script(
        deny % "a", deny % "b", deny % "c",
        f"while not os.path.exists({str(go_on)!r}): time.sleep(0.01)",
        deny % "d", "print('done')",
    )  # fmt: skip
    with fleet.worker(fleet.settings(command=command), tasks=1):
        eventually(lambda: fleet.queue.task(task_id).details.denied == 3)
        assert fleet.queue.task(task_id).state is State.IN_PROGRESS
        go_on.touch()
    task = fleet.queue.task(task_id)
    assert task.details.denied == 4
    told = [note.text for note in task.details.notes if note.kind == "denied"]
    assert told == ["4 tool calls were not allowed: a; b; c; d"]
