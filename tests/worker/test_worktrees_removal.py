"""Worktrees with real git: what stays, with the reason, and what may go."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.settings.roles import RoleSettings
from agentq.worker.workspaces import Workspaces
from tests.worker.repositories import Repo, environment, new_repo
from tests.worker.spaces import (
    DONE,
    Open,
    assert_goes,
    assert_stays,
    assert_tree_goes,
    folder,
    only,
    why_not,
)
from tests.worker.workspace_fixtures import git_space, known, repo

__all__ = ["git_space", "known", "repo"]


def test_a_dirty_tree_goes_into_a_snapshot(repo: Repo, known: Workspaces, git_space: Open) -> None:
    repo.at(git_space().path).write("readme.txt", "changed\n")
    snapshot = assert_tree_goes(known)
    assert snapshot.ref == "refs/agentq/task-1/1"
    assert repo.git("show", f"{snapshot.ref}:readme.txt") == "changed"
    assert repo.branches() == {"main"}


def test_an_untracked_file_is_in_the_snapshot(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    repo.git("config", "status.showUntrackedFiles", "no")
    repo.at(git_space().path).write("deep/in/new.txt")
    assert repo.git("show", f"{assert_tree_goes(known).commit}:deep/in/new.txt") == "something"


def test_what_somebody_wrote_after_the_attempt_is_kept_too(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    space = git_space()
    assert "its task is" in space.finish(State.READY)
    repo.at(space.path).write("by-hand.txt")
    assert repo.git("show", f"{assert_tree_goes(known).commit}:by-hand.txt") == "something"


def test_a_snapshot_goes_when_its_time_is_over(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    repo.at(git_space().path).write("readme.txt", "changed\n")
    assert_tree_goes(known)
    later = Workspaces(known.root, environment(repo.home), clock=lambda: 1_000 + 14 * 86_400_000)
    # Also when the ledger has pruned the task by then
    assert later.why_not(only(later), None, False) == ""
    assert_goes(later)
    assert repo.git("for-each-ref", "refs/agentq") == ""


def test_what_the_repository_ignores_goes(repo: Repo, known: Workspaces, git_space: Open) -> None:
    repo.at(git_space().path).write("build.log")
    assert_goes(known)


def test_a_branch_with_commits_that_nobody_else_has_stays(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    commit = repo.at(git_space().path).commit()
    assert assert_tree_goes(known).commit == commit
    assert repo.branches() == {"main", "agentq/task-1-1"}
    repo.git("branch", "saved", commit)
    assert_goes(known)
    assert repo.branches() == {"main", "saved"}
    assert repo.git("for-each-ref", "refs/agentq") == ""


def test_a_merged_branch_goes(repo: Repo, known: Workspaces, git_space: Open) -> None:
    space = git_space()
    repo.at(space.path).commit()
    repo.commit("meanwhile.txt")
    repo.git("merge", "--quiet", "--no-edit", space.record.branch)
    assert_goes(known)
    assert repo.branches() == {"main"}


def test_two_branches_do_not_vouch_for_each_other(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    first, second = git_space("task-1"), git_space("task-2")
    commit = repo.at(first.path).commit()
    repo.at(second.path).git("reset", "--quiet", "--hard", commit)
    for kept in known.all():
        known.remove(kept, DONE, False)
    branches = repo.branches() & {first.record.branch, second.record.branch}
    assert branches and {repo.git("rev-parse", each) for each in branches} == {commit}


def test_commits_of_a_detached_head_are_in_the_snapshot(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    tree = repo.at(git_space().path)
    tree.git("checkout", "--quiet", "--detach")
    commit = tree.commit()
    snapshot = assert_tree_goes(known)
    assert snapshot.commit == snapshot.head == commit == repo.git("rev-parse", snapshot.ref)
    repo.git("tag", "kept", commit)
    assert_goes(known)


def test_another_branch_of_the_agents_is_left(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    tree = repo.at(git_space().path)
    tree.git("checkout", "--quiet", "-b", "feature")
    tree.commit()
    assert_goes(known)
    assert repo.branches() == {"main", "feature"}


def test_a_head_without_commits(repo: Repo, known: Workspaces, git_space: Open) -> None:
    tree = repo.at(git_space().path)
    tree.git("checkout", "--quiet", "--orphan", "fresh")
    tree.git("rm", "-r", "--quiet", "--cached", ".")
    tree.write("mine.txt")
    snapshot = assert_tree_goes(known)
    assert snapshot.head == repo.git("rev-parse", "main")
    assert repo.git("diff", "--name-only", "main", snapshot.commit) == "mine.txt"


def test_a_locked_tree_stays(repo: Repo, known: Workspaces, git_space: Open) -> None:
    space = git_space()
    repo.git("worktree", "lock", "--reason", "on a stick", str(space.path))
    assert_stays(known, "locked", "on a stick")
    repo.git("worktree", "unlock", str(space.path))
    assert_goes(known)


def test_a_tree_with_submodules_stays(
    repo: Repo, known: Workspaces, git_space: Open, tmp_path: Path
) -> None:
    """Those that nobody fetched are in nobody's way."""
    other = new_repo(tmp_path / "other")
    local = ("-c", "protocol.file.allow=always", "submodule", "--quiet")
    repo.git(*local, "add", str(other.path), "sub")
    repo.git("commit", "--quiet", "--message", "a submodule")
    space = git_space()
    assert space.collect() == []
    assert why_not(known) == ""
    repo.at(space.path).git(*local, "update", "--init")
    assert_stays(known, "submodules")


def test_a_rebase_under_way_stays(repo: Repo, known: Workspaces, git_space: Open) -> None:
    tree = repo.at(git_space().path)
    tree.commit("readme.txt", "theirs\n")
    repo.commit("readme.txt", "ours\n")
    tree.git("rebase", "main", check=False)
    tree.git("checkout", "--quiet", "--force", "HEAD")
    assert_stays(known, "rebase is under way")


def test_what_no_snapshot_takes_keeps_the_tree(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    space = git_space(snapshot_bytes=1000)
    repo.at(space.path).write("large.bin", bytes(2000))
    repo.at(space.path).write("small.txt")
    kept = only(known)
    with pytest.raises(Refused, match=r"without large\.bin \(2000 bytes; snapshot_bytes is 1000\)"):
        known.remove(kept, DONE, False)
    assert (space.path / "large.bin").exists()
    assert repo.git("diff", "--name-only", "main", "refs/agentq/task-1/1") == "small.txt"


def test_a_lock_that_somebody_has_keeps_it(repo: Repo, known: Workspaces) -> None:
    space = known.open("task-1", 1, RoleSettings(workspace="git", repo=str(repo.path)))
    with pytest.raises(Refused, match="still works there"):
        known.remove(only(known), DONE, False)
    space.close()
    assert_goes(known)


@contextmanager
def process(**how: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stays until it is let go."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **how) as child:  # type: ignore[call-overload]
        yield child
        assert child.stdin is not None
        child.stdin.close()


def test_a_process_inside_keeps_it(repo: Repo, known: Workspaces, git_space: Open) -> None:
    space = git_space()
    with process(cwd=space.path / "code") as child:
        assert_stays(known, f"process {child.pid} (cat)")
    assert_goes(known)


def test_an_open_file_inside_keeps_it(known: Workspaces, tmp_path: Path) -> None:
    space = folder(known)
    with (space.path / "out").open("wb") as out, process(cwd=tmp_path, stdout=out) as child:
        out.close()
        (space.path / "out").unlink()
        assert_stays(known, f"process {child.pid}")
    assert_goes(known)


def test_a_ref_that_has_moved_stays_and_the_others_go(repo: Repo, known: Workspaces) -> None:
    head, git_dir = repo.git("rev-parse", "HEAD"), repo.path / ".git"
    names = [f"refs/agentq/task-1/{epoch}" for epoch in (1, 2, 3)]
    for name in names:
        repo.git("update-ref", name, head)
    seen = known.worktrees.refs(git_dir, "refs/agentq/task-1")
    assert {name: ref.commit for name, ref in seen.items()} == dict.fromkeys(names, head)
    repo.write("more.txt")
    repo.git("add", "--all")
    repo.git("commit", "--quiet", "--message", "more")
    repo.git("update-ref", names[1], "HEAD")
    known.worktrees.delete_refs(git_dir, {name: ref.commit for name, ref in seen.items()})
    assert set(known.worktrees.refs(git_dir, "refs/agentq/task-1")) == {names[1]}


def test_a_ref_says_which_tree_has_it(repo: Repo, known: Workspaces, tmp_path: Path) -> None:
    repo.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "a tree beside"))
    found = known.worktrees.refs(repo.path / ".git", "refs/heads/main", "refs/heads/side", "")
    assert found["refs/heads/side"].worktree == str(tmp_path / "a tree beside")
    repo.git("worktree", "remove", str(tmp_path / "a tree beside"))
    found = known.worktrees.refs(repo.path / ".git", "refs/heads/side")
    assert found["refs/heads/side"].worktree == ""
