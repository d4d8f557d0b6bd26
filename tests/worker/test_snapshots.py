"""Snapshots of worktrees with real git: what is in them, what runs, and who is misled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentq.core.errors import AgentqError
from agentq.core.states import State
from agentq.repository.snapshot_refs import WorkSnapshot
from agentq.worker import snapshots
from agentq.worker.redaction import as_written
from agentq.worker.workspace import Workspace
from agentq.worker.workspaces import Workspaces
from agentq.worker.worktrees import shared_place
from tests.worker.repositories import Repo
from tests.worker.spaces import Open, new_spaces, opener
from tests.worker.workspace_fixtures import git_space, known, repo

__all__ = ["git_space", "known", "repo"]

pytestmark = pytest.mark.long

REF = "refs/agentq/task-1/1"


def kept(space: Workspace) -> WorkSnapshot:
    snapshot = space.keep()
    assert snapshot is not None
    return snapshot


def changed(repo: Repo, commit: str = REF) -> list[str]:
    return repo.git("diff", "--name-only", "main", commit).split()


def test_commits_and_what_is_not_committed(repo: Repo, git_space: Open) -> None:
    """HEAD, index and branch stay as they are; nothing is signed."""
    space = git_space()
    tree = repo.at(space.path)
    commit = tree.commit("committed.txt")
    tree.write("staged.txt")
    tree.git("add", "staged.txt")
    tree.write("untracked.bin", bytes(range(256)))
    (space.path / "readme.txt").unlink()
    (space.path / "link").symlink_to("/etc/passwd")
    tree.write("ignored.log")
    tree.git("config", "commit.gpgSign", "true")
    tree.git("config", "gpg.program", "/bin/false")
    before = tree.git("status", "--porcelain"), tree.git("rev-parse", "HEAD")
    snapshot = kept(space)
    assert (tree.git("status", "--porcelain"), tree.git("rev-parse", "HEAD")) == before
    assert (snapshot.ref, snapshot.head, snapshot.left_out) == (REF, commit, ())
    assert repo.git("rev-parse", f"{REF}^") == commit
    files = {"committed.txt", "staged.txt", "untracked.bin", "readme.txt", "link"}
    assert set(changed(repo)) == files
    assert repo.git("show", f"{REF}:link") == "/etc/passwd"
    assert "gpgsig" not in repo.git("cat-file", "commit", REF)


def test_nothing_done_needs_no_ref(repo: Repo, git_space: Open) -> None:
    snapshot = kept(git_space())
    assert snapshot.ref == "" and snapshot.commit == repo.git("rev-parse", "main")
    assert repo.git("for-each-ref", "refs/agentq") == ""


def test_all_committed_is_its_own_snapshot(repo: Repo, git_space: Open) -> None:
    space = git_space()
    commit = repo.at(space.path).commit()
    assert kept(space).commit == commit == repo.git("rev-parse", REF)


def test_the_folder_of_the_worker_is_not_in_it(repo: Repo, git_space: Open) -> None:
    """Also if the agent has removed its .gitignore, or added it by force."""
    space = git_space()
    tree = repo.at(space.path)
    tree.write(".agentq-task/agentq", "TOKEN=secret\n")
    tree.write(".agentq-task/forced", "TOKEN=secret\n")
    tree.git("add", "--force", ".agentq-task/forced")
    tree.write("mine.txt")
    kept(space)
    assert changed(repo) == ["mine.txt"]


def test_what_a_killed_attempt_was_about_to_hand_in(repo: Repo, git_space: Open) -> None:
    """Nobody has collected it: it is in the snapshot, and not in the way of the next attempt."""
    space = git_space()
    tree = repo.at(space.path)
    tree.write(".agentq-task/.gitignore", "*\n")
    tree.write(".agentq-task/agentq", "TOKEN=secret\n")
    tree.write(".agentq-task/artifacts/deep/notes.md", "seen")
    tree.write(".agentq-task/result.md", "nearly done")
    second = git_space(epoch=2)
    assert changed(repo) == [".agentq-task/artifacts/deep/notes.md", ".agentq-task/result.md"]
    assert second.path == space.path
    assert repo.at(second.path).git("status", "--porcelain") == ""
    # Of one that ended in order it was collected
    tree.write(".agentq-task/result.md", "done")
    second.collect()
    second.finish(State.READY)
    assert repo.git("ls-tree", "-r", "--name-only", "refs/agentq/task-1/2", check=False) == ""


def test_files_are_kept_byte_by_byte_and_nothing_runs(
    repo: Repo, git_space: Open, tmp_path: Path
) -> None:
    """Filters, hooks, monitors and conversions that an agent has set up have no say."""
    log = tmp_path / "ran"
    space = git_space()
    tree = repo.at(space.path)
    for key, value in {
        "filter.evil.clean": f"touch '{log}'; echo replaced",
        "filter.evil.process": f"touch '{log}'",
        "filter.evil.required": "true",
        "core.fsmonitor": f"touch '{log}'",
        "core.hooksPath": str(tmp_path / "hooks"),
        "core.autocrlf": "true",
    }.items():
        tree.git("config", key, value)
    (tmp_path / "hooks").mkdir()
    for name in ("reference-transaction", "post-commit", "pre-commit"):
        hook = tmp_path / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch '{log}'\n")
        hook.chmod(0o755)
    attributes = "*.txt filter=evil text\n*.utf working-tree-encoding=UTF-16\n*.id ident\n"
    tree.write(".gitattributes", attributes)
    contents = {
        "new.txt": b"one\r\ntwo\nthree\r\n",
        "new.utf": b"\xff\xfe\x00 no such encoding",
        "new.id": b"$Id: mine$\n",
        "readme.txt": b"changed\r\n\0",
    }
    for name, content in contents.items():
        tree.write(name, content)
    log.unlink(missing_ok=True)
    snapshot = kept(space)
    assert not log.exists() and snapshot.left_out == ()
    for name, content in contents.items():
        assert _blob(repo, f"{REF}:{name}") == content


def _blob(repo: Repo, name: str) -> bytes:
    import subprocess

    words = ["git", "cat-file", "blob", name]
    return subprocess.run(words, cwd=repo.path, capture_output=True, check=True).stdout


def test_the_largest_are_left_out_and_named(repo: Repo, git_space: Open) -> None:
    space = git_space(snapshot_bytes=10_000)
    tree = repo.at(space.path)
    # 10 GB that take no room: if anything read them, this test would not end
    with tree.write("huge.bin").open("r+b") as file:
        file.truncate(10 * 1024**3)
    tree.write("medium.bin", bytes(9_000))
    tree.write("small.txt", bytes(2_000))
    objects = repo.git("count-objects")
    snapshot = kept(space)
    assert [line.split()[0] for line in snapshot.left_out] == ["huge.bin", "medium.bin"]
    assert "10737418240 bytes; snapshot_bytes is 10000" in snapshot.left_out[0]
    assert changed(repo) == ["small.txt"]
    assert int(repo.git("count-objects").split()[0]) - int(objects.split()[0]) <= 4


def test_what_cannot_be_read_is_named(repo: Repo, git_space: Open) -> None:
    space = git_space()
    os.mkfifo(space.path / "pipe")
    tree = repo.at(space.path)
    tree.write('odd näme\n\t"quoted".txt')
    tree.write("mine.txt")
    snapshot = kept(space)
    names = repo.git("ls-tree", "-r", "--name-only", "-z", REF).split("\0")
    assert 'odd näme\n\t"quoted".txt' in names
    assert "mine.txt" in names and "pipe" not in names
    assert snapshot.left_out == ()  # git itself does not see pipes


@pytest.mark.parametrize("planted", ["refs/agentq/task-1", f"{REF}/deep", REF])
def test_planted_refs_are_replaced(repo: Repo, git_space: Open, planted: str) -> None:
    space = git_space()
    repo.at(space.path).write("mine.txt")
    repo.git("update-ref", planted, repo.git("rev-parse", "main"))
    snapshot = kept(space)
    assert repo.git("rev-parse", REF) == snapshot.commit
    assert changed(repo) == ["mine.txt"]


def test_another_installation_with_a_task_of_the_same_id(
    repo: Repo, git_space: Open, tmp_path: Path
) -> None:
    """They share the repository: neither overwrites the work of the other."""
    others = opener(repo, new_spaces(repo, tmp_path / "other-spaces"))()
    repo.at(others.path).write("theirs.txt")
    theirs = kept(others)
    space = git_space()
    repo.at(space.path).write("mine.txt")
    kept(space)
    repo.at(space.path).write("more.txt")
    kept(space)
    assert changed(repo) == ["mine.txt", "more.txt"]
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/agentq").split()
    assert refs == [REF, f"{REF}.{theirs.commit[:12]}"]
    assert changed(repo, refs[1]) == ["theirs.txt"]


def test_a_symbolic_ref_does_not_lead_us_to_a_branch(repo: Repo, git_space: Open) -> None:
    space = git_space()
    repo.at(space.path).write("mine.txt")
    main = repo.git("rev-parse", "main")
    repo.git("symbolic-ref", REF, "refs/heads/main")
    kept(space)
    assert repo.git("rev-parse", "main") == main
    assert changed(repo) == ["mine.txt"]


def test_a_tree_replaced_by_a_link(repo: Repo, git_space: Open, tmp_path: Path) -> None:
    space = git_space()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "key").write_text("x")
    space.path.rename(tmp_path / "away")
    space.path.symlink_to(precious)
    with pytest.raises(AgentqError, match="There is no folder"):
        space.keep()
    assert "could not be kept" in space.finish(State.READY)
    assert repo.git("for-each-ref", "refs/agentq") == ""


def test_a_git_folder_that_leads_elsewhere(
    repo: Repo, known: Workspaces, git_space: Open, tmp_path: Path
) -> None:
    """`commondir` and HEAD are files that the agent can write."""
    space = git_space()
    repo.at(space.path).write("mine.txt")
    git_dir = Path(space.record.git_dir)
    (git_dir / "commondir").write_text(str(tmp_path / "nowhere"))
    (git_dir / "HEAD").write_text("ref: refs/heads/../../../etc/passwd\n")
    (git_dir / "index").write_bytes(b"DIRC garbage")
    snapshot = kept(space)
    assert snapshot.head == repo.git("rev-parse", "main")
    assert changed(repo) == ["mine.txt"]


def test_a_merge_in_the_middle(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    tree.commit("readme.txt", "theirs\n")
    repo.commit("readme.txt", "ours\n")
    tree.git("merge", "main", check=False)
    kept(space)
    assert "<<<<<<<" in repo.git("show", f"{REF}:readme.txt")


def test_commits_of_a_branch_that_was_left_are_in_it(repo: Repo, git_space: Open) -> None:
    space = git_space()
    tree = repo.at(space.path)
    first = tree.commit("first.txt")
    tree.git("checkout", "--quiet", "--detach", "main")
    second = tree.commit("second.txt")
    snapshot = kept(space)
    assert snapshot.head == second
    history = repo.git("rev-list", REF).split()
    assert first in history and second in history


@pytest.mark.parametrize("where", ["file", "name", "message", "earlier"])
def test_secrets_are_found_wherever_they_are(
    repo: Repo, known: Workspaces, git_space: Open, where: str
) -> None:
    """In a file, in its name, in a message, or in a commit that a later one takes back."""
    secret = "hunter2-very-secret"
    space = git_space()
    tree = repo.at(space.path)
    commit = "a.txt"
    if where == "file":
        tree.write("config.ini", "x" * 70_000 + secret)
    elif where == "name":
        tree.write(f"{secret}.txt")
    elif where == "message":
        tree.commit()
        tree.git("commit", "--quiet", "--amend", "--message", f"with {secret}")
    else:
        tree.commit(commit, secret)
        tree.commit(commit, "nothing")
    snapshot = kept(space)
    git, shared = known.worktrees.git, shared_place(repo.path / ".git")
    assert snapshots.holds_secret(git, shared, snapshot, as_written([secret]))
    assert not snapshots.holds_secret(git, shared, snapshot, as_written(["another-secret"]))
    result = space.publish(as_written([secret]), known.root)
    assert result[1] is None and "holds a secret" in result[2]


def test_an_object_format_of_its_own(tmp_path: Path) -> None:
    path, home = tmp_path / "repo", tmp_path / "home"
    path.mkdir()
    home.mkdir()
    repo = Repo(path, home)
    repo.git("init", "--quiet", "--initial-branch=main", "--object-format=sha256")
    repo.commit("readme.txt")
    space = opener(repo, new_spaces(repo, tmp_path / "spaces"))()
    repo.at(space.path).write("mine.txt")
    assert len(kept(space).commit) == 64
    assert changed(repo) == ["mine.txt"]
