"""Worktrees with real git: what stays, with the reason, and what may go."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentq.worker.workspaces import Workspaces
from tests.worker.repositories import Repo, new_repo
from tests.worker.spaces import DONE, Open, assert_goes, assert_stays, folder, why_not
from tests.worker.workspace_fixtures import git_space, known, repo

__all__ = ["git_space", "known", "repo"]


def test_a_dirty_tree_stays(repo: Repo, known: Workspaces, git_space: Open) -> None:
    repo.at(git_space().path).write("readme.txt", "changed\n")
    assert_stays(known, "not committed", "readme.txt")


def test_an_untracked_file_stays(repo: Repo, known: Workspaces, git_space: Open) -> None:
    repo.git("config", "status.showUntrackedFiles", "no")
    repo.at(git_space().path).write("deep/in/new.txt")
    assert_stays(known, "not committed", "deep/in/new.txt")


def test_what_the_repository_ignores_goes(repo: Repo, known: Workspaces, git_space: Open) -> None:
    repo.at(git_space().path).write("build.log")
    assert_goes(known)


def test_commits_that_nobody_else_has_stay(repo: Repo, known: Workspaces, git_space: Open) -> None:
    commit = repo.at(git_space().path).commit()
    assert_stays(known, "agentq/task-1/1", "no other branch")
    repo.git("branch", "saved", commit)
    assert_goes(known)
    assert repo.branches() == {"main", "saved"}


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
    first, second = git_space(epoch=1), git_space(epoch=2)
    commit = repo.at(first.path).commit()
    repo.at(second.path).git("reset", "--quiet", "--hard", commit)
    one, two = known.all()
    known.remove(one, DONE, False)
    assert "no other branch" in known.why_not(two, DONE, False)
    assert repo.git("rev-parse", two.branch) == commit


def test_a_detached_head_with_commits_stays(repo: Repo, known: Workspaces, git_space: Open) -> None:
    tree = repo.at(git_space().path)
    tree.git("checkout", "--quiet", "--detach")
    commit = tree.commit()
    assert_stays(known, "detached HEAD", commit[:12])
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


def test_a_head_without_commits_stays(repo: Repo, known: Workspaces, git_space: Open) -> None:
    tree = repo.at(git_space().path)
    tree.git("checkout", "--quiet", "--orphan", "fresh")
    tree.git("rm", "-r", "--quiet", "--cached", ".")
    assert_stays(known)


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
    space.collect()
    assert space.finish() != ""
    with (space.path / "out").open("wb") as out, process(cwd=tmp_path, stdout=out) as child:
        out.close()
        assert_stays(known, f"process {child.pid}")
    assert_goes(known)
