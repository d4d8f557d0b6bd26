"""The next attempt goes on where the last one stopped: here, after a kill, on another machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from agentq.core.states import State
from agentq.core.values import replace
from agentq.settings.roles import RoleSettings
from agentq.worker.earlier_work import EarlierWork, LeftWork
from agentq.worker.workspace import Workspace
from agentq.worker.workspaces import Workspaces
from tests.worker.repositories import Repo, environment, new_repo
from tests.worker.spaces import Open, new_spaces
from tests.worker.workspace_fixtures import git_space, known, repo

__all__ = ["git_space", "known", "repo"]

pytestmark = pytest.mark.long


def work(repo: Repo, space: Workspace) -> str:
    """A commit and work that is not committed, of every kind; the commit."""
    tree = repo.at(space.path)
    commit = tree.commit("committed.txt", "by the first\n")
    tree.write("new/file.txt", "not committed\n")
    tree.write("readme.txt", "changed\r\n")
    (space.path / "image.bin").unlink()
    (space.path / "link").symlink_to("readme.txt")
    tree.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    return commit


def assert_has_work(repo: Repo, space: Workspace, commit: str) -> None:
    tree = repo.at(space.path)
    assert tree.git("rev-parse", "HEAD") == commit
    assert (space.path / "new" / "file.txt").read_text() == "not committed\n"
    assert (space.path / "readme.txt").read_bytes() == b"changed\r\n"
    assert (space.path / "link").is_symlink() and (space.path / "run.sh").stat().st_mode & 0o100
    status = set(tree.git("status", "--porcelain").split("\n"))
    assert {line.strip() for line in status} == {
        "M readme.txt", "D image.bin", "?? new/", "?? link", "?? run.sh",
    }  # fmt: skip
    assert tree.git("branch", "--show-current") == space.record.branch


# -- here ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["finished", "killed"])
def test_in_the_same_tree(repo: Repo, known: Workspaces, git_space: Open, end: str) -> None:
    first = git_space()
    commit = work(repo, first)
    repo.at(first.path).write("build.log", "ignored, and still there")
    if end == "finished":
        first.finish(State.READY)
    second = git_space(epoch=2)
    assert second.path == first.path
    assert_has_work(repo, second, commit)
    assert second.record.branch == "agentq/task-1-2"
    assert repo.branches() == {"main", "agentq/task-1-2"}
    assert (second.path / "build.log").exists()
    assert second.can_resume(1)
    assert second.told == (
        "This workspace holds the work of attempt 1; what they committed is in its history, the"
        " rest is uncommitted. Look at it, and go on there."
    )
    # And what the first had left is in its own ref, whatever the second does
    assert repo.git("show", "refs/agentq/task-1/1:new/file.txt") == "not committed"
    # The patch is what the task changed, not what this attempt did
    assert second.record.base == repo.git("rev-parse", "main")
    (patch,) = [each for each in second.collect() if each.name == "changes.patch"]
    assert b"committed.txt" in patch.content and b"new/file.txt" in patch.content


def test_a_tree_that_is_gone_is_made_again(repo: Repo, known: Workspaces, git_space: Open) -> None:
    first = git_space()
    commit = work(repo, first)
    first.finish(State.READY)
    shutil.rmtree(first.path)
    repo.git("worktree", "prune")
    second = git_space(epoch=2)
    assert second.path == first.path
    assert_has_work(repo, second, commit)
    assert second.can_resume(1)


@pytest.mark.parametrize("damage", ["git file", "HEAD", "index", "locks"])
def test_a_damaged_tree_is_made_again(
    repo: Repo, known: Workspaces, git_space: Open, damage: str
) -> None:
    first = git_space()
    commit = work(repo, first)
    first.finish(State.READY)
    git_dir = Path(first.record.git_dir)
    if damage == "git file":
        (first.path / ".git").write_text("gitdir: /nowhere\n")
    elif damage == "HEAD":
        (git_dir / "HEAD").write_text("rubbish")
    elif damage == "index":
        (git_dir / "index").write_bytes(b"rubbish")
    else:
        (git_dir / "index.lock").touch()
    second = git_space(epoch=2)
    assert second.path == first.path
    assert_has_work(repo, second, commit)
    repo.at(second.path).commit("more.txt")


def test_killed_while_a_tree_was_made(repo: Repo, known: Workspaces, git_space: Open) -> None:
    """Nobody has worked in a tree that is not marked as made: it is made again."""
    first = git_space()
    commit = work(repo, first)
    first.finish(State.READY)
    shutil.rmtree(first.path)
    second = git_space(epoch=2)
    (second.path / "new" / "file.txt").write_text("half written")
    known.records.write(replace(second.record, is_made=False, git_dir=""))
    # As git leaves it while it adds a worktree
    (Path(second.record.git_dir) / "locked").write_text("initializing")
    third = git_space(epoch=3)
    assert third.path == first.path
    assert_has_work(repo, third, commit)
    assert not third.can_resume(2)


def test_work_that_no_snapshot_takes_stays_where_it_is(
    repo: Repo, known: Workspaces, git_space: Open
) -> None:
    first = git_space(snapshot_bytes=100)
    repo.at(first.path).write("large.bin", bytes(1000))
    repo.at(first.path).write("small.txt")
    first.finish(State.READY)
    (first.path / ".git").unlink()  # so that it cannot go on in place
    second = git_space(epoch=2)
    assert second.path.name == "task-1@2"
    assert (first.path / "large.bin").exists()
    assert (second.path / "small.txt").exists() and not (second.path / "large.bin").exists()
    assert "large.bin" in first.record.snapshot.left_out[0]  # type: ignore[union-attr]


def test_refs_of_an_agent_are_not_believed(repo: Repo, known: Workspaces, git_space: Open) -> None:
    """The record says which commit it was; what a ref says does not count."""
    first = git_space()
    commit = work(repo, first)
    first.finish(State.READY)
    shutil.rmtree(first.path)
    evil = repo.commit("evil.txt")
    repo.git("update-ref", "refs/agentq/task-1/1", evil)
    repo.git("update-ref", "refs/agentq/task-1/9", evil)
    second = git_space(epoch=2)
    assert_has_work(repo, second, commit)
    assert not (second.path / "evil.txt").exists()


def test_a_process_that_is_left_keeps_the_path(repo: Repo, known: Workspaces) -> None:
    """Also if it has removed the file of the lock."""
    import subprocess

    role = RoleSettings(workspace="git", repo=str(repo.path))
    first = known.open("task-1", 1, role)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=first.path) as left:
        (known.root / ".locks" / "task-1").unlink()
        second = known.open("task-1", 2, role)
        assert second.path.name == "task-1@2"
        assert f"process {left.pid} (cat) still uses its path" in second.told
        left.communicate()
    assert not second.can_resume(1)


# -- on another machine ----------------------------------------------------------------------------


@pytest.fixture
def remote(repo: Repo, tmp_path: Path) -> Repo:
    bare = tmp_path / "remote.git"
    repo.git("clone", "--quiet", "--bare", str(repo.path), str(bare))
    repo.git("remote", "add", "origin", str(bare))
    return repo.at(bare)


def elsewhere(remote: Repo, tmp_path: Path) -> tuple[Repo, Workspaces]:
    """Another machine: a clone of its own, and workspaces of its own."""
    folder = tmp_path / "machine-2"
    folder.mkdir()
    remote.git("clone", "--quiet", "--no-local", str(remote.path), str(folder / "repo"))
    clone = remote.at(folder / "repo")
    return clone, Workspaces(folder / "spaces", environment(clone.home), lock_seconds=0)


def published(space: Workspace, folder: Path, secrets: tuple[bytes, ...] = ()) -> LeftWork:
    """What the ledger has of an attempt after its end."""
    space.keep()
    folder.mkdir()
    snapshot, file, problem = space.publish(secrets, folder)
    assert problem == "" or file is None
    space.finish(State.READY)

    def download(path: Path) -> None:
        assert file is not None
        shutil.copyfile(file, path)

    return LeftWork(snapshot, download if file is not None else None)


@pytest.mark.parametrize("way", ["remote", "bundle"])
def test_the_second_machine_has_the_work_of_the_first(
    repo: Repo, remote: Repo, git_space: Open, tmp_path: Path, way: str
) -> None:
    push: dict[str, Any] = {"push": "origin"} if way == "remote" else {}
    first = git_space(**push)
    commit = work(repo, first)
    left = published(first, tmp_path / "artifacts")
    assert left.snapshot.is_pushed is (way == "remote")
    assert left.snapshot.artifact == ("" if way == "remote" else "agentq/snapshot.bundle")
    clone, spaces = elsewhere(remote, tmp_path)
    role = replace(RoleSettings(workspace="git", repo=str(clone.path)), **push)
    second = spaces.open("task-1", 2, role, EarlierWork(left=(left,)))
    assert_has_work(clone, second, commit)
    assert second.told.startswith("This workspace holds the work of attempt 1;")
    assert not second.can_resume(1)  # its conversation is on the first machine
    # And a third attempt, on the first machine again, has what the second did
    clone.at(second.path).write("by-the-second.txt")
    again = published(second, tmp_path / "artifacts-2")
    assert again.snapshot.holds == (1, 2)
    known = new_spaces(repo, first.path.parent)
    role = replace(role, repo=str(repo.path))
    third = known.open("task-1", 3, role, EarlierWork(left=(again, left)))
    assert third.path == first.path and (third.path / "by-the-second.txt").exists()
    assert repo.at(third.path).git("rev-parse", "HEAD") == commit
    assert third.record.holds == (1, 2) and third.can_resume(1) and not third.can_resume(2)


def test_the_ref_at_the_remote_goes_with_the_one_here(
    repo: Repo, remote: Repo, git_space: Open, tmp_path: Path
) -> None:
    first = git_space(push="origin")
    work(repo, first)
    left = published(first, tmp_path / "artifacts")
    assert remote.git("rev-parse", left.snapshot.ref) == left.snapshot.commit
    known = new_spaces(repo, first.path.parent)
    known.remove(known.all()[0], State.COMPLETE, False)
    later = Workspaces(known.root, environment(repo.home), clock=lambda: 1_000 + 14 * 86_400_000)
    later.remove(later.all()[0], State.COMPLETE, False)
    assert (
        remote.git("for-each-ref", "refs/agentq") == repo.git("for-each-ref", "refs/agentq") == ""
    )


def test_what_cannot_be_had_is_told(
    repo: Repo, remote: Repo, git_space: Open, tmp_path: Path
) -> None:
    first = git_space(push="origin")
    repo.at(first.path).write("key.txt", "hunter2-very-secret")
    left = published(first, tmp_path / "artifacts", (b"hunter2-very-secret",))
    assert remote.git("for-each-ref", "refs/agentq") == ""
    clone, spaces = elsewhere(remote, tmp_path)
    role = RoleSettings(workspace="git", repo=str(clone.path), push="origin")
    second = spaces.open("task-1", 2, role, EarlierWork(left=(left,)))
    assert clone.at(second.path).git("status", "--porcelain") == ""
    assert "This workspace is fresh" in second.told
    assert "attempt 1: it is on the machine where that attempt ran" in second.told
    assert not second.can_resume(1)


def test_a_remote_that_says_something_else(
    repo: Repo, remote: Repo, git_space: Open, tmp_path: Path
) -> None:
    """Whoever may push may move a ref: what another machine takes is the commit it was told."""
    first = git_space(push="origin")
    work(repo, first)
    left = published(first, tmp_path / "artifacts")
    clone, spaces = elsewhere(remote, tmp_path)
    remote.git("update-ref", left.snapshot.ref, remote.git("rev-parse", "main"))
    role = RoleSettings(workspace="git", repo=str(clone.path), push="origin")
    second = spaces.open("task-1", 2, role, EarlierWork(left=(left,)))
    assert "another commit there" in second.told and "fresh" in second.told


def test_a_remote_that_is_away_leaves_a_bundle(
    repo: Repo, remote: Repo, git_space: Open, tmp_path: Path
) -> None:
    first = git_space(push="origin")
    commit = work(repo, first)
    away = remote.path.rename(remote.path.with_name("away.git"))
    left = published(first, tmp_path / "artifacts")
    assert not left.snapshot.is_pushed and left.download is not None
    away.rename(remote.path)
    clone, spaces = elsewhere(remote, tmp_path)
    role = RoleSettings(workspace="git", repo=str(clone.path), push="origin")
    assert_has_work(clone, spaces.open("task-1", 2, role, EarlierWork(left=(left,))), commit)


def test_another_repository_has_no_use_for_it(repo: Repo, git_space: Open, tmp_path: Path) -> None:
    first = git_space()
    work(repo, first)
    left = published(first, tmp_path / "artifacts")
    other = new_repo(tmp_path / "other")
    other.write("unlike.txt")
    other.git("add", "--all")
    other.git("commit", "--quiet", "--amend", "--message", "another beginning")
    # Made in the same second as that of the first, the commit before it would be the same.
    other.git("reflog", "expire", "--expire=now", "--all")
    other.git("gc", "--quiet", "--prune=now")
    other.git("reflog", "expire", "--expire=now", "--all")
    other.git("gc", "--quiet", "--prune=now")
    spaces = Workspaces(tmp_path / "other-spaces", environment(other.home), lock_seconds=0)
    role = RoleSettings(workspace="git", repo=str(other.path))
    second = spaces.open("task-1", 2, role, EarlierWork(left=(left,)))
    assert "fresh" in second.told and (second.path / "unlike.txt").exists()


# -- folders ---------------------------------------------------------------------------------------


def test_a_folder_comes_along_as_an_archive(known: Workspaces, tmp_path: Path) -> None:
    first = known.open("task-1", 1, RoleSettings())
    (first.path / "deep" / "er").mkdir(parents=True)
    (first.path / "deep" / "er" / "notes.md").write_text("so far")
    (first.path / "secret.txt").write_text("token: hunter2-very-secret")
    (first.path / "out").symlink_to("/etc")
    (first.path / "in").symlink_to("deep/er/notes.md")
    (first.path / ".agentq-task").mkdir()
    (first.path / ".agentq-task" / "agentq").write_text("the launcher")
    left = published(first, tmp_path / "artifacts", (b"hunter2-very-secret",))
    assert left.snapshot.artifact == "agentq/workspace.tar.gz"
    assert left.snapshot.left_out == ("secret.txt (it holds a secret that the agent was given)",)
    other = Workspaces(tmp_path / "other-spaces", lock_seconds=0)
    second = other.open("task-1", 2, RoleSettings(), EarlierWork(left=(left,)))
    found = {str(path.relative_to(second.path)) for path in second.path.rglob("*")}
    assert found == {"deep", "deep/er", "deep/er/notes.md", "in"}
    assert second.told == "This workspace holds the work of attempt 1. Look at it, and go on there."
    # Back on the first machine the files of the second count; the old ones are set aside
    (second.path / "more.md").write_text("and further")
    again = published(second, tmp_path / "artifacts-2")
    third = known.open("task-1", 3, RoleSettings(), EarlierWork(left=(again, left)))
    assert third.path == first.path and (third.path / "more.md").exists()
    assert (known.root / "task-1@1" / "secret.txt").exists()
    assert {kept.path.name for kept in known.all()} == {"task-1", "task-1@1"}


def test_a_folder_that_is_too_large(known: Workspaces, tmp_path: Path) -> None:
    first = known.open("task-1", 1, RoleSettings(snapshot_bytes=1000))
    with (first.path / "huge.bin").open("wb") as file:
        file.truncate(10 * 1024**3)
    left = published(first, tmp_path / "artifacts")
    assert left.download is None and "huge.bin (10737418240 bytes" in left.snapshot.left_out[0]
    other = Workspaces(tmp_path / "other-spaces", lock_seconds=0)
    second = other.open("task-1", 2, RoleSettings(), EarlierWork(left=(left,)))
    assert "is fresh" in second.told and "left too much" in second.told
    assert list(second.path.iterdir()) == []
    # Here it is where it was
    here = known.open("task-1", 2, RoleSettings(), EarlierWork(left=(left,)))
    assert here.path == first.path and (here.path / "huge.bin").exists()


def test_archives_that_lead_out_of_the_folder(known: Workspaces, tmp_path: Path) -> None:
    import io
    import tarfile

    from agentq.worker.folder_archives import unpack

    file = tmp_path / "evil.tar.gz"
    with tarfile.open(file, "w:gz") as archive:
        for name in ("../out.txt", "/abs.txt", "fine.txt"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "../.."
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo("link/through.txt"), io.BytesIO())
        device = tarfile.TarInfo("device")
        device.type = tarfile.CHRTYPE
        archive.addfile(device)
    target = tmp_path / "target"
    target.mkdir()
    assert unpack(file, target) == ""
    assert not (tmp_path / "out.txt").exists() and not (tmp_path.parent / "through.txt").exists()
    assert (target / "fine.txt").exists() and not (target / "device").exists()
    file.write_bytes(b"no archive at all")
    assert "cannot be unpacked" in unpack(file, target)


def test_records_and_locks_leave_nothing_behind(known: Workspaces) -> None:
    for number in range(5):
        space = known.open(f"task-{number}", 1, RoleSettings())
        assert space.finish(State.COMPLETE) == ""
    assert known.all() == []
    assert [path for path in known.root.rglob("*") if path.is_file()] == []
