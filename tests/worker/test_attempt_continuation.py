"""Attempts that go on from each other, with real processes and a real repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.states import State
from agentq.worker.workspace_locks import WorkspaceLock
from tests.worker.fleet import ROLE, Fleet, script
from tests.worker.repositories import Repo, new_repo

pytestmark = [pytest.mark.both_ways(in_turn="tests"), pytest.mark.long]

#: Commits, leaves more uncommitted and fails at first; then it hands in what it found and was told.
AGENT = script(
    "import subprocess",
    "git = lambda *words: subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b',"
    " *words], check=True)",
    "if os.environ['AGENTQ_EPOCH'] == '1':",
    "    open('committed.txt', 'w').write('one')",
    "    git('add', '.')",
    "    git('commit', '-qm', 'one')",
    "    open('left.txt', 'w').write('two')",
    "    sys.exit(int(os.environ.get('CODE', '75')))",
    "open('done.txt', 'w').write('three')",
    "found = [name for name in ('committed.txt', 'left.txt') if os.path.exists(name)]",
    "print(os.getcwd(), found, sys.stdin.read())",
)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return new_repo(tmp_path / "code")


def settings(repo: Repo, **more: Any) -> dict[str, Any]:
    return {"workspace": "git", "repo": str(repo.path), "command": AGENT, **more}


def read(fleet: Fleet, task_id: str, name: str, epoch: int) -> str:
    _, file = fleet.queue._client.open_artifact(task_id, name, epoch)
    with file:
        return file.read().decode()


def test_a_failed_attempt_is_continued(fleet: Fleet, repo: Repo) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="work")
    assert fleet.work(**settings(repo)).outcome is AttemptOutcome.TRANSIENT
    fleet.queue.wait(task.id, 30, until=(State.READY,))
    assert fleet.work(**settings(repo)).outcome is AttemptOutcome.COMPLETED
    said = read(fleet, task.id, "output.log", 2)
    assert f"{fleet.folder}/workspaces/{task.id} ['committed.txt', 'left.txt']" in said
    assert "This workspace holds the work of attempt 1;" in said
    # The evidence is what the task changed, and each attempt's work is under a ref of its own
    patch = read(fleet, task.id, "changes.patch", 2)
    assert all(name in patch for name in ("committed.txt", "left.txt", "done.txt"))
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/agentq").split()
    assert refs == [f"refs/agentq/{task.id}/1", f"refs/agentq/{task.id}/2"]
    # The tree is gone with the task, its branch is not
    assert not (fleet.folder / "workspaces" / task.id).exists()
    assert f"agentq/{task.id}-2" in repo.branches()


def test_a_check_that_failed_is_continued(fleet: Fleet, repo: Repo) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="work")
    fleet.environment = {**fleet.environment, "CODE": "0"}
    more = {"verify": "test -f done.txt", "environment": ("CODE",)}
    assert fleet.work(**settings(repo, **more)).outcome is AttemptOutcome.BAD_OUTPUT
    fleet.queue.wait(task.id, 30, until=(State.READY,))
    assert fleet.work(**settings(repo, **more)).outcome is AttemptOutcome.COMPLETED
    assert "['committed.txt', 'left.txt']" in read(fleet, task.id, "output.log", 2)


def test_changes_that_a_reviewer_asks_for_are_made_in_the_same_work(
    fleet: Fleet, repo: Repo
) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="work", review=True)
    fleet.environment = {**fleet.environment, "CODE": "0"}
    more = {"environment": ("CODE",)}
    assert fleet.work(**settings(repo, **more)).outcome is AttemptOutcome.COMPLETED
    assert fleet.queue.task(task.id).state is State.REVIEW
    fleet.queue.reject(task.id, by="bob", reason="add done.txt", changes=True)
    assert fleet.work(**settings(repo, **more)).outcome is AttemptOutcome.COMPLETED
    assert "['committed.txt', 'left.txt']" in read(fleet, task.id, "output.log", 2)


def test_on_another_machine_through_the_ledger(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    """Its repository is a clone, and it has nothing else of the first but what the ledger has."""
    task = fleet.queue.submit(to=ROLE, instructions="work")
    fleet.work(**settings(repo))
    assert "agentq/snapshot.bundle" in {each.name for each in fleet.queue.artifacts(task.id)}
    fleet.queue.wait(task.id, 30, until=(State.READY,))
    clone = repo.at(tmp_path / "clone")
    repo.git("clone", "--quiet", "--no-local", str(repo.path), str(clone.path))
    fleet.folder = tmp_path / "machine-2"
    fleet.folder.mkdir()
    assert fleet.work(**settings(clone)).outcome is AttemptOutcome.COMPLETED
    said = read(fleet, task.id, "output.log", 2)
    assert f"{fleet.folder}/workspaces/{task.id} ['committed.txt', 'left.txt']" in said
    assert "one" in clone.git("log", "--format=%s", f"refs/agentq/{task.id}/2")


def test_a_conversation_is_not_resumed_without_its_work(fleet: Fleet, tmp_path: Path) -> None:
    """Somebody still holds the path: the second attempt works elsewhere, and begins anew."""
    task = fleet.queue.submit(to=ROLE, instructions="work")
    file = fleet.folder / "script.yaml"
    file.write_text(
        "tasks:\n  - attempt: 1\n    steps:\n      - say: hello\n      - exit: 1\n"
        "steps:\n  - result: done\n"
    )
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", "claude",
               "--script", str(file))  # fmt: skip
    fleet.work(agent="claude", command=command)
    session = read(fleet, task.id, "agentq/session.txt", 1)
    fleet.queue.wait(task.id, 30, until=(State.READY,))
    lock = WorkspaceLock.acquire(fleet.folder / "workspaces", task.id)
    assert lock is not None
    with lock:
        assert fleet.work(agent="claude", command=command).outcome is AttemptOutcome.COMPLETED
    assert session and session not in read(fleet, task.id, "output.log", 2)


def test_what_is_too_large_is_named_in_the_report(fleet: Fleet) -> None:
    task = fleet.queue.submit(to=ROLE, instructions="work")
    fleet.work(
        command=script("open('large.bin', 'wb').truncate(5000)", "open('small', 'w').write('x')"),
        snapshot_bytes=1000,
    )
    summary = fleet.queue.task(task.id).summary
    assert "large.bin (5000 bytes; snapshot_bytes is 1000)" in summary
    assert "agentq/workspace.tar.gz" in {each.name for each in fleet.queue.artifacts(task.id)}
    assert (fleet.folder / "workspaces" / task.id / "large.bin").exists()


def test_a_secret_is_not_published(fleet: Fleet, repo: Repo) -> None:
    fleet.environment = {**fleet.environment, "MY_API_TOKEN": "canary-53cr3t-value"}
    task = fleet.queue.submit(to=ROLE, instructions="work")
    command = script("open('leak.txt', 'w').write(os.environ['MY_API_TOKEN'])", "sys.exit(77)")
    fleet.work(**settings(repo, command=command, environment=("MY_API_TOKEN",)))
    stored = {each.name for each in fleet.queue.artifacts(task.id)}
    assert "agentq/snapshot.json" in stored and "agentq/snapshot.bundle" not in stored
    assert repo.git("show", f"refs/agentq/{task.id}/1:leak.txt") == "canary-53cr3t-value"
    assert "holds a secret" in fleet.queue.task(task.id).reason
