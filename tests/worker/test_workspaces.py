"""Workspaces of attempts: one each, with a record that outlives every crash."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentq.core.errors import Conflict, Invalid
from agentq.core.states import TERMINAL, State
from agentq.settings.roles import RoleSettings
from agentq.worker.workspaces import Kept, Workspaces
from tests.worker.repositories import Repo
from tests.worker.spaces import DONE, Open, assert_goes, assert_stays, folder, only, why_not
from tests.worker.workspace_fixtures import git_space, known, repo

__all__ = ["git_space", "known", "repo"]


# -- plain folders ---------------------------------------------------------------------------------


def test_a_plain_folder(known: Workspaces) -> None:
    space = folder(known)
    assert list(space.path.iterdir()) == []
    assert only(known) == Kept(
        "task-1", 1, "folder", space.path, created_at=1_000, record=only(known).record
    )
    (space.path / "deep" / "er").mkdir(parents=True)
    (space.path / "deep" / "er" / "file").write_text("x")
    (space.path / "link").symlink_to("/etc")
    assert_stays(known, "not collected")
    assert space.collect() == []
    assert space.finish(State.PENDING) != ""
    assert only(known).flags == ("collected",)
    assert_goes(known)
    assert Path("/etc").is_dir()


def test_finishing_removes_what_may_go(known: Workspaces) -> None:
    space = folder(known)
    space.collect()
    assert space.finish(DONE) == ""
    assert known.all() == []


@pytest.mark.parametrize("state", sorted(set(State) - TERMINAL))
def test_a_task_that_is_not_over_keeps_its_folder(known: Workspaces, state: State) -> None:
    space = folder(known)
    space.collect()
    assert "stays" in space.finish(state)
    assert "stays" in space.finish()  # unknown is not over
    assert str(state) in why_not(known, state)
    assert "does not know" in why_not(known, None)
    assert "not stopped" in why_not(known, DONE, is_held=True)
    assert space.path.is_dir()


def test_a_folder_deeper_than_any_stack(known: Workspaces) -> None:
    space = folder(known)
    script = "import os\nfor _ in range(1100): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", script], cwd=space.path, check=True)
    space.collect()
    assert space.finish(DONE) == ""
    assert known.all() == []


def test_an_attempt_has_one_workspace(known: Workspaces) -> None:
    folder(known)
    with pytest.raises(Conflict, match="has a workspace already"):
        folder(known)
    assert folder(known, epoch=2).path != folder(known, epoch=3).path
    foreign = known.root / "task-9-1"
    foreign.mkdir()
    with pytest.raises(Conflict):
        folder(known, "task-9")
    assert not (known.root / "task-9-1.json").exists()


@pytest.mark.parametrize(
    "task_id", ["", "../up", "a/b", ".hidden", "a..b", "-dash", "ünder", "a\nb", "a b", "x" * 129]
)
def test_ids_that_cannot_be_names_are_refused(known: Workspaces, task_id: str) -> None:
    with pytest.raises(Invalid):
        folder(known, task_id)
    assert known.all() == []


def test_settings_that_make_no_sense(known: Workspaces) -> None:
    with pytest.raises(Invalid, match="needs a repository"):
        known.open("t", 1, RoleSettings(workspace="git"))
    with pytest.raises(Invalid, match="An epoch"):
        known.open("t", -1, RoleSettings())
    assert known.all() == []


# -- crashes and things that do not fit ------------------------------------------------------------


def test_a_crash_before_the_tree(repo: Repo, known: Workspaces, git_space: Open) -> None:
    """The record is there, the tree is not; once the task is over the record goes."""
    space = git_space()
    kept = only(known)
    assert kept.record is not None
    assert_goes(known)
    known.write(replace(kept.record, git_dir="", is_made=False))
    assert only(known).flags == ("unfinished", "missing")
    assert "ready" in why_not(known, State.READY)
    assert_goes(known)
    assert git_space(epoch=2).record.branch == space.record.branch.removesuffix("1") + "2"


def test_a_crash_between_tree_and_record(repo: Repo, known: Workspaces, git_space: Open) -> None:
    git_space()
    kept = only(known)
    assert kept.record is not None
    known.write(replace(kept.record, git_dir="", is_made=False))
    assert only(known).flags == ("unfinished",)
    assert_stays(known, "interrupted", "git worktree remove")
    repo.git("worktree", "remove", str(kept.path))
    assert_goes(known)
    assert repo.branches() == {"main"}


def test_a_tree_removed_by_hand(repo: Repo, known: Workspaces, git_space: Open) -> None:
    """Its record goes; a branch with commits of its own never does."""
    space = git_space()
    repo.at(space.path).commit()
    repo.git("worktree", "remove", str(space.path))
    assert only(known).flags == ("missing",)
    assert_goes(known)
    assert repo.branches() == {"main", space.record.branch}


def test_a_repository_that_is_gone(repo: Repo, known: Workspaces, git_space: Open) -> None:
    git_space()
    repo.path.rename(repo.path.with_name("elsewhere"))
    assert_stays(known, "is gone")


@pytest.mark.parametrize("damage", [b"", b"{", b'{"task_id": 7}', b"\xff", b"[" * 100_000])
def test_a_record_that_cannot_be_read(known: Workspaces, damage: bytes) -> None:
    space = folder(known)
    space.collect()
    (known.root / "task-1-1.json").write_bytes(damage)
    assert only(known).flags == ("unreadable",)
    assert_stays(known, "cannot be read")


def test_what_is_not_ours(known: Workspaces, tmp_path: Path) -> None:
    known.root.mkdir()
    (known.root / "task-1-1").mkdir()
    (known.root / "notes").mkdir()
    (known.root / "readme.json").write_text("{}")
    assert only(known).flags == ("unrecorded",)
    assert_stays(known, "no record")


def test_a_link_in_its_place(known: Workspaces, tmp_path: Path) -> None:
    space = folder(known)
    space.collect()
    space.finish()
    space.path.rmdir()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    space.path.symlink_to(precious)
    assert_stays(known, "link")
    assert (precious / "file").exists()
