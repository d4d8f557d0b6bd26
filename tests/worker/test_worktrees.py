"""Worktrees with real git: how they are made, what is collected, where it is pushed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentq.core.errors import Conflict, Invalid, Refused, Unavailable
from agentq.core.values import replace
from agentq.settings.roles import RoleSettings
from agentq.worker.workspace import Workspace
from agentq.worker.workspaces import Workspaces
from tests.worker.repositories import Repo, new_repo
from tests.worker.spaces import DONE, Open, assert_goes, assert_tree_goes, content, only
from tests.worker.workspace_fixtures import git_space, known, repo

__all__ = ["git_space", "known", "repo"]


# -- making a worktree -----------------------------------------------------------------------------


def test_a_worktree_on_its_own_branch(repo: Repo, known: Workspaces, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    assert tree.git("branch", "--show-current") == space.record.branch == "agentq/task-1-1"
    assert tree.git("rev-parse", "HEAD") == space.record.base == repo.git("rev-parse", "main")
    assert tree.git("status", "--porcelain") == ""
    assert (space.path / "code" / "main.py").read_text() == "print('hello')\n"
    kept = only(known)
    assert (kept.kind, kept.branch, kept.base, kept.flags) == (
        "git",
        space.record.branch,
        space.record.base,
        (),
    )
    assert space.writable == (space.path, repo.path / ".git")
    assert_goes(known)
    assert repo.branches() == {"main"}
    assert repo.git("worktree", "list", "--porcelain").count("worktree ") == 1


@pytest.mark.parametrize("task_id", ["a", "A.b_c-D", "x.lock", "dot.", "HEAD", "a-1", "9" * 128])
def test_odd_task_ids_make_good_branches(
    repo: Repo, known: Workspaces, git_space: Open, task_id: str
) -> None:
    space = git_space(task_id, 7)
    assert space.record.branch in repo.branches()
    assert only(known).task_id == task_id
    assert only(known).epoch == 7
    assert_goes(known)
    assert repo.branches() == {"main"}


@pytest.mark.long
def test_a_worktree_of_a_partial_clone(repo: Repo, known: Workspaces, tmp_path: Path) -> None:
    """What is checked out is fetched, unless the repository's own settings would run a program."""
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = Repo(tmp_path / "clone", repo.home)
    words = ("clone", "--quiet", "--no-checkout", "--filter=blob:none", f"file://{repo.path}")
    repo.git(*words, str(clone.path))
    role = RoleSettings(workspace="git", repo=str(clone.path))
    assert (known.open("task-1", 1, role).path / "readme.txt").exists()
    repo.commit("later.txt")
    clone.git("fetch", "--quiet")
    clone.git("config", "remote.origin.uploadpack", f"touch '{tmp_path}/ran'; git-upload-pack")
    with pytest.raises(Unavailable, match="not allowed"):
        known.open("task-2", 1, replace(role, base="origin/main"))
    assert not (tmp_path / "ran").exists()


def test_a_branch_that_is_there_is_never_reused(repo: Repo, git_space: Open) -> None:
    """It may be the work of an earlier task of this name."""
    repo.git("branch", "agentq/task-1-1")
    before = repo.git("rev-parse", "agentq/task-1-1")
    space = git_space()
    assert space.record.branch == "agentq/task-1-1-2"
    repo.at(space.path).commit()
    assert repo.git("rev-parse", "agentq/task-1-1") == before


def test_a_branch_in_the_way_leaves_nothing_behind(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    repo.git("branch", "agentq")  # git cannot have agentq and agentq/…
    with pytest.raises(Conflict, match="agentq"):
        git_space()
    assert known.all() == []
    assert repo.branches() == {"main", "agentq"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"base": "nowhere"}, "no commit"),
        ({"base": "--all"}, "no commit"),
        ({"base": ""}, "no commit"),
        ({"push": "nowhere"}, "no remote"),
        ({"push": "--force"}, "no remote"),
    ],
)
def test_wrong_words_are_said_before_anything_is_made(
    repo: Repo, known: Workspaces, git_space: Open, more: dict[str, str], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        git_space(**more)
    assert known.all() == []
    assert repo.branches() == {"main"}


def test_a_folder_that_is_no_repository(known: Workspaces, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="not a git repository"):
        known.open("t", 1, RoleSettings(workspace="git", repo=str(tmp_path)))
    assert known.all() == []


def test_the_base_stays_where_it_was(repo: Repo, known: Workspaces, git_space: Open) -> None:
    base = repo.git("rev-parse", "HEAD")
    space = git_space()
    repo.commit("moved.txt")
    repo.at(space.path).write("mine.txt")
    patch = content(space.collect(), "changes.patch").decode()
    assert only(known).base == base
    assert "mine.txt" in patch and "moved.txt" not in patch


def test_hooks_do_not_run(repo: Repo, known: Workspaces, git_space: Open, tmp_path: Path) -> None:
    """Neither for us nor for an agent that uses git in its tree as everybody does."""
    log = tmp_path / "hooks"
    for name in ("post-checkout", "pre-commit", "post-commit", "reference-transaction", "pre-push"):
        repo.hook(name, log)
    space = git_space()
    repo.at(space.path).commit()
    space.collect()
    space.finish()
    assert not log.exists()
    repo.commit("by-hand.txt")  # in the repository itself they are as they were
    assert "pre-commit" in log.read_text()


def test_a_bare_repository(repo: Repo, known: Workspaces, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    repo.git("clone", "--quiet", "--bare", str(repo.path), str(bare))
    space = known.open("t", 1, RoleSettings(workspace="git", repo=str(bare)))
    space.close()
    assert repo.at(space.path).git("status", "--porcelain") == ""
    assert dict(space.environment)["GIT_CONFIG_KEY_0"] == "core.hooksPath"
    assert_goes(known)


def test_two_attempts_at_once_have_two_trees(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    """The path of the task is that of who has its lock."""
    first = known.open("task-1", 1, RoleSettings(workspace="git", repo=str(repo.path)))
    second, other = git_space(epoch=2), git_space("task-2")
    assert (first.path.name, second.path.name) == ("task-1", "task-1@2")
    assert "fresh" in second.told and "another process still works at its path" in second.told
    repo.at(first.path).commit("first.txt")
    assert not (second.path / "first.txt").exists()
    assert not (other.path / "first.txt").exists()
    assert len({first.record.branch, second.record.branch, other.record.branch}) == 3
    assert len(known.all()) == 3


def test_many_at_once(repo: Repo, known: Workspaces, git_space: Open) -> None:
    made: list[Workspace] = []
    failures: list[BaseException] = []

    def make(number: int) -> None:
        try:
            made.extend(git_space(f"task-{number}-{each}") for each in (1, 2))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=make, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len({space.record.branch for space in made}) == 8
    for kept in known.all():
        assert repo.at(kept.path).git("status", "--porcelain") == ""
        known.remove(kept, DONE, False)
    assert repo.branches() == {"main"}


def test_processes_at_once(repo: Repo, known: Workspaces) -> None:
    script = (
        "import sys, pathlib\n"
        "from agentq.settings.roles import RoleSettings\n"
        "from agentq.worker.workspaces import Workspaces\n"
        "root, repo, task = sys.argv[1:]\n"
        "role = RoleSettings(workspace='git', repo=repo)\n"
        "Workspaces(pathlib.Path(root)).open(task, 1, role)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", script, str(known.root), str(repo.path), f"t{n}"])
        for n in range(4)
    ]
    assert [child.wait(60) for child in children] == [0] * 4
    assert repo.branches() == {"main", *(f"agentq/t{n}-1" for n in range(4))}


# -- what was done ---------------------------------------------------------------------------------


def test_nothing_done_is_no_evidence(git_space: Open) -> None:
    assert git_space().collect() == []


def test_the_patch_applies_to_the_base(repo: Repo, git_space: Open, tmp_path: Path) -> None:
    """Committed or not, text or not, new, renamed, deleted, linked: all of it, and it applies."""
    space = git_space()
    tree = repo.at(space.path)
    tree.commit("committed.txt")
    tree.git("mv", "readme.txt", "code/renamed.txt")
    tree.write("image.bin", bytes(reversed(range(256))) * 5)
    tree.write("new/sub/data.bin", b"\0\xff" * 1000)
    tree.write("odd näme\t.txt", "no newline at the end")
    tree.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    (space.path / "link").symlink_to("code")
    (space.path / "code" / "main.py").unlink()
    tree.write("ignored.log")
    tree.write("wanted.log")
    tree.git("add", "--force", "wanted.log")
    status, objects = tree.git("status", "--porcelain"), repo.git("count-objects")
    evidence = space.collect()
    assert tree.git("status", "--porcelain") == status
    assert repo.git("count-objects") == objects

    patch = tmp_path / "changes.patch"
    patch.write_bytes(content(evidence, "changes.patch"))
    assert b"rename from readme.txt" in patch.read_bytes()
    clone = repo.at(tmp_path / "clone")
    repo.git("clone", "--quiet", str(repo.path), str(clone.path))
    clone.git("checkout", "--quiet", space.record.base)
    clone.git("apply", "--index", str(patch))
    (space.path / "ignored.log").unlink()
    assert files_of(clone.path) == files_of(space.path)


def files_of(folder: Path) -> dict[str, bytes | str]:
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        for path in folder.rglob("*")
        if (path.is_file() or path.is_symlink()) and ".git" not in path.relative_to(folder).parts
    }


def test_the_list_of_commits(repo: Repo, git_space: Open) -> None:
    space = git_space()
    commits = [repo.at(space.path).commit(f"{number}.txt") for number in range(3)]
    lines = content(space.collect(), "commits.txt").decode().splitlines()
    assert [line.split("\t")[0] for line in lines] == commits[::-1]
    assert lines[0].endswith("Ada <ada@example.org>\tadd 2.txt")


def test_what_git_was_told_not_to_see(repo: Repo, known: Workspaces, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.git("update-index", "--assume-unchanged", "readme.txt")
    tree.git("update-index", "--skip-worktree", "image.bin")
    tree.write("readme.txt", "changed\n")
    tree.write("image.bin", b"changed")
    assert tree.git("status", "--porcelain") == ""
    patch = content(space.collect(), "changes.patch")
    assert b"readme.txt" in patch and b"image.bin" in patch
    commit = assert_tree_goes(known).commit
    assert repo.git("show", f"{commit}:readme.txt") == repo.git("show", f"{commit}:image.bin")


def test_a_repository_inside(repo: Repo, known: Workspaces, git_space: Open) -> None:
    """Its files are in the snapshot, its history is not: the tree stays."""
    space = git_space()
    repo.at(space.path).write("mine.txt")
    repo.at(space.path).write("inner/file.txt")
    repo.at(space.path / "inner").git("init", "--quiet")
    repo.at(space.path).write("inner/sub/more.txt")
    assert b"mine.txt" in content(space.collect(), "changes.patch")
    space.finish()
    assert "inner/.git" in only(known).record.snapshot.left_out[0]  # type: ignore[union-attr]
    with pytest.raises(Refused, match="a repository of its own"):
        known.remove(only(known), DONE, False)
    kept = repo.git("diff", "--name-only", "main", "refs/agentq/task-1/1").split()
    assert kept == ["inner/file.txt", "inner/sub/more.txt", "mine.txt"]


def test_settings_of_the_repository_change_nothing(
    repo: Repo, git_space: Open, tmp_path: Path
) -> None:
    """Nor do they run anything: an agent can write them."""
    log = tmp_path / "ran"
    space = git_space()
    tree = repo.at(space.path)
    for key, value in {
        "diff.external": f"touch '{log}'",
        "diff.x.textconv": f"touch '{log}'; cat",
        "diff.x.command": f"touch '{log}'",
        "filter.x.clean": f"touch '{log}'; cat",
        "core.fsmonitor": f"touch '{log}'",
        "log.showSignature": "true",
        "gpg.program": f"touch '{log}'",
        "diff.noprefix": "true",
        "color.ui": "always",
    }.items():
        tree.git("config", key, value)
    tree.write(".gitattributes", "*.txt diff=x filter=x\n")
    tree.write("readme.txt", "changed\n")
    log.unlink(missing_ok=True)
    patch = content(space.collect(), "changes.patch")
    assert b"diff --git a/readme.txt b/readme.txt" in patch
    assert not log.exists()


def test_what_a_sparse_checkout_leaves_out_is_not_deleted(repo: Repo, git_space: Open) -> None:
    repo.git("sparse-checkout", "set", "--no-cone", "/code/")
    space = git_space()
    assert not (space.path / "readme.txt").exists()
    repo.at(space.path).write("code/new.py")
    patch = content(space.collect(), "changes.patch")
    assert b"code/new.py" in patch and b"readme.txt" not in patch


def test_large_files_are_left_alone(repo: Repo, git_space: Open) -> None:
    """A filter that is not installed, and without which git would refuse to do anything."""
    repo.write(".gitattributes", "*.dat filter=lfs\n")
    repo.commit("pointer.dat", "version 1\n")
    for key in ("clean", "smudge", "process"):
        repo.git("config", f"filter.lfs.{key}", "program-that-is-not-there")
    repo.git("config", "filter.lfs.required", "true")
    space = git_space()
    assert (space.path / "pointer.dat").read_text() == "version 1\n"
    repo.at(space.path).write("other.dat")
    assert b"other.dat" in content(space.collect(), "changes.patch")


@pytest.mark.parametrize("limit", [100, 3000])
def test_too_much_for_a_patch(git_space: Open, repo: Repo, limit: int) -> None:
    """Known from the sizes of what changed, or only once the patch is made."""
    space = git_space()
    repo.at(space.path).write("large.bin", os.urandom(2500))
    (evidence,) = space.collect(limit)
    assert evidence.name == "agentq/changes.txt"
    assert str(limit).encode() in evidence.content


def test_a_tree_whose_git_file_points_elsewhere(
    repo: Repo, known: Workspaces, git_space: Open, tmp_path: Path
) -> None:
    """We know where its git folder is; what the tree says about that does not count."""
    space = git_space()
    other = new_repo(tmp_path / "other")
    repo.at(space.path).write("mine.txt")
    (space.path / ".git").write_text(f"gitdir: {other.path / '.git'}\n")
    assert b"mine.txt" in content(space.collect(), "changes.patch")
    assert repo.git("show", f"{assert_tree_goes(known).commit}:mine.txt") == "something"
    assert other.git("for-each-ref", "refs/agentq") == ""


def test_a_tree_that_git_cannot_read(repo: Repo, known: Workspaces, git_space: Open) -> None:
    """Its files are kept all the same, by a git folder of our own."""
    space = git_space()
    repo.at(space.path).write("mine.txt")
    git_dir = Path(repo.at(space.path).git("rev-parse", "--absolute-git-dir"))
    (git_dir / "HEAD").unlink()
    (evidence,) = space.collect()
    assert evidence.name == "agentq/changes.txt"
    assert b"could not be collected" in evidence.content
    space.finish()
    assert repo.git("show", "refs/agentq/task-1/1:mine.txt") == "something"


# -- pushing ---------------------------------------------------------------------------------------


@pytest.fixture
def remote(repo: Repo, tmp_path: Path) -> Repo:
    bare = tmp_path / "remote.git"
    repo.git("clone", "--quiet", "--bare", str(repo.path), str(bare))
    repo.git("remote", "add", "origin", str(bare))
    return repo.at(bare)


def test_a_pushed_branch_is_elsewhere(
    repo: Repo, remote: Repo, known: Workspaces, git_space: Open
) -> None:
    space = git_space(push="origin")
    commit = repo.at(space.path).commit()
    assert space.push() == ""
    assert remote.git("rev-parse", space.record.branch) == commit
    assert only(known).flags == ("pushed",)
    assert_goes(known)
    assert repo.branches() == {"main"}


def test_pushing_to_an_address(
    repo: Repo, remote: Repo, known: Workspaces, git_space: Open
) -> None:
    space = git_space(push=str(remote.path))
    repo.at(space.path).commit()
    assert space.push() == ""
    assert space.record.branch in remote.branches()
    after = repo.at(space.path).commit("after.txt")
    assert assert_tree_goes(known).commit == after


def test_nothing_done_is_not_pushed(remote: Repo, git_space: Open) -> None:
    assert git_space(push="origin").push() == ""
    assert git_space(epoch=2).push() == ""
    assert remote.branches() == {"main"}


def test_a_failed_push_is_told(
    repo: Repo, remote: Repo, known: Workspaces, git_space: Open
) -> None:
    space = git_space(push="origin")
    repo.at(space.path).commit()
    remote.path.rename(remote.path.with_name("away.git"))
    problem = space.push()
    assert problem.startswith("Not pushed: ")
    assert_tree_goes(known)
    assert space.record.branch in repo.branches()


def test_a_branch_at_the_remote_is_not_overwritten(
    repo: Repo, remote: Repo, git_space: Open
) -> None:
    space = git_space(push="origin")
    other = repo.commit("other.txt")
    repo.git("push", "--quiet", "origin", f"main:refs/heads/{space.record.branch}")
    repo.at(space.path).commit()
    assert "rejected" in space.push()
    assert remote.git("rev-parse", space.record.branch) == other


def test_an_agent_cannot_turn_the_push_elsewhere(
    repo: Repo, remote: Repo, git_space: Open, tmp_path: Path
) -> None:
    space = git_space(push="origin")
    tree = repo.at(space.path)
    tree.commit()
    tree.git("remote", "set-url", "--push", "origin", str(tmp_path / "evil.git"))
    assert "changed during the attempt" in space.push()
    assert remote.branches() == {"main"}


def test_an_agent_cannot_make_the_push_run_a_program(
    repo: Repo, remote: Repo, git_space: Open, tmp_path: Path
) -> None:
    space = git_space(push="origin")
    tree = repo.at(space.path)
    tree.commit()
    tree.git("config", "remote.origin.receivepack", f"touch '{tmp_path / 'ran'}'; git-receive-pack")
    assert "remote.origin.receivepack is set in the repository" in space.push()
    assert not (tmp_path / "ran").exists()
