"""Tasks that start from the work of others, with real workers and real repositories."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.states import State
from agentq.core.task import Task
from tests.worker.fleet import ROLE, Fleet, script
from tests.worker.repositories import Repo, new_repo

pytestmark = [pytest.mark.both_ways(in_turn="tests"), pytest.mark.long]

WORKER_ONLY = pytest.mark.beside("it is about git alone, and costs seconds")
#: Says what is in the tree and what it was told, before or after it has done something itself.
TELL = "print(sorted(os.listdir('.')), sys.stdin.read())"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return new_repo(tmp_path / "code")


def settings(repo: Repo, *lines: str, **more: Any) -> dict[str, Any]:
    return {"workspace": "git", "repo": str(repo.path), "command": script(*lines), **more}


def write(name: str, content: str = "") -> str:
    return f"open('{name}', 'w').write('{content or name}')"


def did(
    fleet: Fleet, repo: Repo, *lines: str, more: dict[str, Any] | None = None, **fields: Any
) -> Task:
    """A task of a git role that did this, and is complete."""
    task = fleet.queue.submit(to=ROLE, instructions="work", max_attempts=1, **fields)
    verdict = fleet.work(**settings(repo, *lines, **(more or {})))
    assert verdict.outcome is AttemptOutcome.COMPLETED, verdict.summary
    return fleet.queue.task(task.id)


def read(fleet: Fleet, task: Task, name: str, epoch: int = 1) -> str:
    _, file = fleet.queue._client.open_artifact(task.id, name, epoch)
    with file:
        return file.read().decode()


def said(fleet: Fleet, task: Task, epoch: int = 1) -> str:
    return read(fleet, task, "output.log", epoch)


def snapshot(fleet: Fleet, task: Task, epoch: int = 1) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(read(fleet, task, "agentq/snapshot.json", epoch))
    return plain


def refused(fleet: Fleet, repo: Repo, base: Iterable[str], **more: Any) -> AttemptResult:
    """The verdict on a task that starts from these, and may not."""
    fleet.queue.submit(to=ROLE, instructions="work", max_attempts=1, base=base, **more)
    verdict = fleet.work(**settings(repo, write("never.txt")))
    assert verdict.outcome is not AttemptOutcome.COMPLETED
    return verdict


def elsewhere(fleet: Fleet, repo: Repo, folder: Path) -> Repo:
    """A clone on another machine, which has nothing else but what the ledger has."""
    clone = repo.at(folder / "clone")
    repo.git("clone", "--quiet", "--no-local", str(repo.path), str(clone.path))
    fleet.folder = folder / "machine"
    fleet.folder.mkdir()
    return clone


# -- one -------------------------------------------------------------------------------------------


def test_it_starts_from_what_another_left(fleet: Fleet, repo: Repo) -> None:
    first = did(fleet, repo, write("one.txt"))
    repo.commit("later.txt")  # the base of the role has moved on since then
    second = did(fleet, repo, TELL, write("two.txt"), base=first.id)
    told = said(fleet, second)
    assert "'one.txt'" in told and "'later.txt'" not in told
    start = snapshot(fleet, first)["commit"]
    assert f"The task began at commit {start[:12]}: the work of {first.id} (attempt 1)." in told
    assert f".agentq-task/inputs/{first.id}/patch.diff" in told
    # Its own work is counted from there
    assert snapshot(fleet, second)["base"] == start
    patch = read(fleet, second, "changes.patch")
    assert "two.txt" in patch and "one.txt" not in patch
    assert [line.split("\t")[0] for line in read(fleet, second, "commits.txt").splitlines()] == [
        snapshot(fleet, second)["head"]
    ]


@pytest.mark.parametrize("shares", ["remote", "nothing"])
def test_on_other_machines(fleet: Fleet, repo: Repo, tmp_path: Path, shares: str) -> None:
    """Each machine has a clone. The work comes through a remote, or through the ledger."""
    push = {}
    if shares == "remote":
        repo.git("init", "--quiet", "--bare", str(tmp_path / "remote"))
        push = {"push": str(tmp_path / "remote")}
    first = did(fleet, repo, write("one.txt"), more=push)
    clone = elsewhere(fleet, repo, tmp_path / "two")
    # It fails there, with something done, and goes on at a third place
    task = fleet.queue.submit(to=ROLE, instructions="work", base=first.id)
    lines = (TELL, write("two.txt"), "sys.exit(75 * (os.environ['AGENTQ_EPOCH'] == '1'))")
    verdict = fleet.work(**settings(clone, *lines, **push))
    assert "exit code 75" in verdict.summary, verdict.summary
    assert "'one.txt'" in said(fleet, task)
    refs = clone.git("for-each-ref", "--format=%(refname)", "refs/agentq").split()
    assert refs == [f"refs/agentq/{task.id}/1"], "what was fetched leaves nothing behind"
    fleet.queue.wait(task.id, 30, until=(State.READY,))
    third = elsewhere(fleet, repo, tmp_path / "three")
    assert fleet.work(**settings(third, *lines, **push)).outcome is AttemptOutcome.COMPLETED
    told = said(fleet, task, 2)
    assert "'one.txt'" in told and "'two.txt'" in told
    assert f"the work of {first.id} (attempt 1)." in told
    patch = read(fleet, task, "changes.patch", 2)
    assert "two.txt" in patch and "one.txt" not in patch


def test_a_chain_through_one_that_changed_nothing(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    first = did(fleet, repo, write("one.txt"))
    second = did(fleet, repo, "print('nothing to do')", base=first.id)
    assert not snapshot(fleet, second)["ref"]
    clone = elsewhere(fleet, repo, tmp_path / "two")
    third = did(fleet, clone, TELL, base=second.id)
    assert "'one.txt'" in said(fleet, third)
    assert f"the work of {second.id} (attempt 1)." in said(fleet, third)


@WORKER_ONLY
def test_one_that_changed_nothing_is_where_it_began(fleet: Fleet, repo: Repo) -> None:
    first = did(fleet, repo, "print('nothing to do')")
    repo.commit("later.txt")
    second = did(fleet, repo, TELL, base=first.id)
    assert "'later.txt'" not in said(fleet, second)


@WORKER_ONLY
def test_what_must_not_leave_a_machine_takes_nothing_along(
    fleet: Fleet, repo: Repo, tmp_path: Path
) -> None:
    fleet.environment = {**fleet.environment, "TOKEN": "a-secret-of-the-first"}
    first = did(
        fleet, repo, "open('one.txt', 'w').write(os.environ['TOKEN'])",
        more={"environment": ("TOKEN",)},
    )  # fmt: skip
    fleet.environment = {k: v for k, v in fleet.environment.items() if k != "TOKEN"}
    repo.git("init", "--quiet", "--bare", str(tmp_path / "remote"))
    push = {"push": str(tmp_path / "remote")}
    for more in ({}, push):
        second = did(fleet, repo, TELL, write("two.txt"), base=first.id, more=more)
        assert "'one.txt'" in said(fleet, second), "on this machine it is there"
        assert "built on work that must stay on this machine" in second.summary
        names = {each.name for each in fleet.queue.artifacts(second.id)}
        assert "agentq/snapshot.bundle" not in names
    assert repo.at(tmp_path / "remote").git("for-each-ref") == ""


@WORKER_ONLY
def test_of_an_agent_that_reported_by_itself(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    """The ledger takes no record of it any more; this machine has one, and only this one."""
    first = fleet.queue.submit(to=ROLE, instructions="work")
    own = "os.system('.agentq-task/agentq complete --summary mine')"
    fleet.work(**settings(repo, write("one.txt"), own))
    assert fleet.queue.task(first.id).summary == "mine"
    names = {each.name for each in fleet.queue.artifacts(first.id)}
    assert "agentq/snapshot.json" not in names
    second = did(fleet, repo, TELL, base=first.id)
    assert "'one.txt'" in said(fleet, second)
    clone = elsewhere(fleet, repo, tmp_path / "two")
    assert "left no work in git to start from" in refused(fleet, clone, [first.id]).summary


# -- several ---------------------------------------------------------------------------------------


def test_several_are_merged(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    first = did(fleet, repo, write("one.txt"))
    second = did(fleet, repo, write("two.txt"))
    clone = elsewhere(fleet, repo, tmp_path / "two")
    third = did(fleet, clone, TELL, base=[first.id, second.id])
    told = said(fleet, third)
    assert "'one.txt'" in told and "'two.txt'" in told
    both = f"{first.id} (attempt 1) and {second.id} (attempt 1), merged in this order."
    assert both in told and "conflict" not in told
    # It has changed nothing, and still somebody can start from it, anywhere
    last = did(fleet, elsewhere(fleet, repo, tmp_path / "three"), TELL, base=third.id)
    assert "'one.txt'" in said(fleet, last) and "'two.txt'" in said(fleet, last)


def test_conflicts_are_the_first_thing_to_know(fleet: Fleet, repo: Repo) -> None:
    first = did(fleet, repo, write("same.txt", "one"), write("a.txt"))
    second = did(fleet, repo, write("same.txt", "two"), write("b.txt"))
    task = fleet.queue.submit(to=ROLE, instructions="work", base=[first.id, second.id])
    lines = (
        "print(open('same.txt').read(), sys.stdin.read())",
        "epoch = os.environ['AGENTQ_EPOCH']",
        "if epoch == '1': open('same.txt', 'w').write('both'); sys.exit(75)",
    )
    assert fleet.work(**settings(repo, *lines)).outcome is AttemptOutcome.TRANSIENT
    told = said(fleet, task)
    assert f"<<<<<<< tasks/{first.id}\none\n=======\ntwo\n>>>>>>> tasks/{second.id}\n" in told
    line = f"- `same.txt`: conflict markers, {first.id} above and {second.id} below"
    assert "Solve what is left of them first:" in told and line in told
    shown = f"from the work of {first.id} and {second.id}, with 1 conflict"
    assert shown in fleet.output.getvalue()
    fleet.queue.wait(task.id, 30, until=(State.READY,))
    # The second attempt goes on from the first one's work, and knows what it began with
    assert fleet.work(**settings(repo, *lines)).outcome is AttemptOutcome.COMPLETED
    told = said(fleet, task, 2)
    assert told.startswith("both ") and line in told
    kept = [snapshot(fleet, task, epoch) for epoch in (1, 2)]
    assert kept[0]["base"] == kept[1]["base"] == kept[0]["start"]["commit"]
    patch = read(fleet, task, "changes.patch", 2)
    assert "+both" in patch and "a.txt" not in patch and "-<<<<<<<" in patch


@WORKER_ONLY
def test_conflicts_that_nobody_has_solved_are_named(fleet: Fleet, repo: Repo) -> None:
    sides = [did(fleet, repo, *(write(name, side) for name in "ab")).id for side in ("x", "y")]
    task = did(fleet, repo, write("a", "both"), base=sides)
    assert task.summary.endswith("Not solved: b (it has conflict markers).")
    # Whoever starts from that has nothing to merge, and is not blamed
    assert "Not solved" not in did(fleet, repo, TELL, base=task.id).summary


# -- what cannot be had ----------------------------------------------------------------------------


def begin_otherwise(repo: Repo) -> None:
    """Let a repository have a first commit of its own: made in the same second as that of another,
    it would be the same."""
    repo.git("commit", "--quiet", "--amend", "--message", "another beginning")
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "--quiet", "--prune=now")


@WORKER_ONLY
def test_what_cannot_be_started_from(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    first = did(fleet, repo, write("one.txt"))
    # Of another repository
    other = new_repo(tmp_path / "other")
    begin_otherwise(other)
    verdict = refused(fleet, other, [first.id])
    assert verdict.outcome is AttemptOutcome.INVALID
    assert f"The work of {first.id} (attempt 1), from which this task starts," in verdict.summary
    assert "it is of another repository, or of a newer state of this one" in verdict.summary
    assert other.git("for-each-ref", "refs/agentq", "refs/heads/agentq") == ""
    # Without anything in git
    empty = fleet.queue.submit(to="earlier", instructions="do it")
    claim = fleet.queue.claim("earlier")
    assert claim is not None
    claim.complete("done")
    verdict = refused(fleet, repo, [first.id, empty.id])
    assert verdict.outcome is AttemptOutcome.INVALID
    assert f"{empty.id} left no work in git to start from" in verdict.summary
    # By a role that has no git workspace
    task = fleet.queue.submit(to=ROLE, instructions="work", base=first.id)
    assert fleet.work(command=script("print('hi')")).outcome is AttemptOutcome.INVALID
    assert "has no git workspace" in fleet.queue.task(task.id).reason


@WORKER_ONLY
def test_a_snapshot_that_is_gone(fleet: Fleet, repo: Repo) -> None:
    fleet.environment = {**fleet.environment, "TOKEN": "a-secret-of-the-first"}
    more = {"environment": ("TOKEN",)}
    first = did(fleet, repo, "open('one.txt', 'w').write(os.environ['TOKEN'])", more=more)
    repo.git("update-ref", "-d", f"refs/agentq/{first.id}/1")
    for branch in repo.branches() - {"main"}:
        repo.git("branch", "--quiet", "-D", branch)
    repo.git("reflog", "expire", "--expire=now", "--all")
    repo.git("gc", "--quiet", "--prune=now")
    verdict = refused(fleet, repo, [first.id])
    assert verdict.outcome is AttemptOutcome.TRANSIENT, "another machine may have it"
    assert "cannot be had here: it is on the machine where that attempt ran." in verdict.summary


@WORKER_ONLY
def test_of_one_that_failed(fleet: Fleet, repo: Repo) -> None:
    """It is not started by itself; whoever says `run` gets what was left, and is told."""
    failed = fleet.queue.submit(to=ROLE, instructions="work", max_attempts=1)
    fleet.work(**settings(repo, write("half.txt"), "sys.exit(1)"))
    assert fleet.queue.task(failed.id).state is State.FAILED
    assert fleet.queue.submit(ROLE, "go on", base=failed.id).state is State.FAILED
    task = did(fleet, repo, TELL, base=failed.id, on_dependency_failure="run")
    assert "'half.txt'" in said(fleet, task)
    assert f"{failed.id} ended failed: nobody has accepted its work." in said(fleet, task)
    cancelled = fleet.queue.submit(to="nobody", instructions="work")
    fleet.queue.cancel(cancelled.id, "ann")
    verdict = refused(fleet, repo, [cancelled.id], on_dependency_failure="run")
    assert "It ended cancelled." in verdict.summary


# -- who only reads --------------------------------------------------------------------------------


def looked(fleet: Fleet, repo: Repo, *after: str) -> tuple[list[str], str]:
    """What is there for a reviewer after these tasks, and what it is told."""
    seen, prompt = fleet.folder / "seen", fleet.folder / "prompt"
    wrapper = fleet.folder / "played-claude"  # else it would have to be logged in
    played = f'exec {sys.executable} -m agentq fake-agent --dialect claude "$@" < {prompt}'
    wrapper.write_text(f"#!/bin/sh\nls > {seen}\ncat > {prompt}\n{played}\n")
    wrapper.chmod(0o755)
    fleet.queue.submit(to=ROLE, instructions="look", type="review", after=after, max_attempts=1)
    fleet.work(agent="claude", command=(str(wrapper),), workspace="git", repo=str(repo.path))
    return seen.read_text().split(), prompt.read_text()


def test_a_reviewer_has_the_work_before_it(fleet: Fleet, repo: Repo) -> None:
    first = did(fleet, repo, write("one.txt"))
    seen, told = looked(fleet, repo, first.id)
    assert "one.txt" in seen and f"the work of {first.id} (attempt 1)." in told
    assert f".agentq-task/inputs/{first.id}/patch.diff" in told
    assert f".agentq-task/inputs/{first.id}/patch.stat" in told
    # After two of them it is for the task to say which, or both
    second = did(fleet, repo, write("two.txt"))
    seen, _ = looked(fleet, repo, first.id, second.id)
    assert not {"one.txt", "two.txt"} & set(seen)
    # Who may write starts from the base of the role, unless the task names one
    writer = did(fleet, repo, TELL, after=[first.id])
    assert "'one.txt'" not in said(fleet, writer)


@WORKER_ONLY
def test_a_reviewer_in_another_repository_is_told(fleet: Fleet, repo: Repo, tmp_path: Path) -> None:
    first = did(fleet, repo, write("one.txt"))
    other = new_repo(tmp_path / "other")
    begin_otherwise(other)
    seen, told = looked(fleet, other, first.id)
    assert "one.txt" not in seen and "This workspace is at the base of its role." in told
    assert "it is of another repository, or of a newer state of this one" in told
