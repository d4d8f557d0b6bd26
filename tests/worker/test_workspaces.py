"""Workspaces of attempts: one each, with a record that outlives every crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agentq.core.errors import Invalid, Refused
from agentq.core.states import TERMINAL, State
from agentq.core.values import replace
from agentq.settings.roles import RoleSettings
from agentq.worker.earlier_work import EarlierWork
from agentq.worker.workspace_records import Kept
from agentq.worker.workspaces import Workspaces
from tests.worker.repositories import Repo
from tests.worker.spaces import DONE, OURS, Open, assert_goes, assert_stays, folder, only, why_not
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
    assert space.path == known.root / "task-1"
    assert_stays(known, "what the agent left there", "until 1970-01-15")
    assert space.collect() == []
    assert space.finish(State.PENDING) != ""
    assert only(known).flags == ("collected",)
    assert "is kept until 1970-01-15" in space.finish(DONE)
    later = Workspaces(known.root, clock=lambda: 1_000 + 14 * 86_400_000)
    assert_goes(later)
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
    assert "is kept until" in space.finish(DONE)
    assert_goes(Workspaces(known.root, clock=lambda: 1_000 + 14 * 86_400_000))


def test_attempts_follow_each_other_at_one_path(known: Workspaces) -> None:
    first = folder(known, epoch=1)
    (first.path / "notes").write_text("so far")
    first.finish(State.READY)
    second = folder(known, epoch=2)
    assert second.path == first.path and (second.path / "notes").read_text() == "so far"
    assert second.told.startswith("This workspace holds the work of attempt 1.")
    assert second.can_resume(1) and not second.can_resume(2) and not second.can_resume(0)
    assert only(known).epoch == 2


def test_what_a_killed_attempt_was_about_to_hand_in(known: Workspaces) -> None:
    """Nobody has collected it: the next attempt finds it, and the folder does not go."""
    first = folder(known, epoch=1)
    (first.path / ".agentq-task" / "artifacts").mkdir(parents=True)
    (first.path / ".agentq-task" / "agentq").write_text("the launcher")
    (first.path / ".agentq-task" / "artifacts" / "notes.md").write_text("seen")
    assert_stays(known, "what the agent left there")
    second = folder(known, epoch=2)
    left = second.path / "handed-in-by-attempt-1" / "artifacts" / "notes.md"
    assert left.read_text() == "seen"
    names = {path.name for path in second.path.iterdir()}
    assert names == {"handed-in-by-attempt-1", ".agentq-task"}, "which each attempt makes anew"


def test_who_cannot_have_the_lock_works_elsewhere(known: Workspaces) -> None:
    first = known.open("task-1", 1, RoleSettings())
    (first.path / "notes").write_text("so far")
    second = known.open("task-1", 2, RoleSettings())
    assert second.path == known.root / "task-1@2" and list(second.path.iterdir()) == []
    assert "is fresh" in second.told and not second.can_resume(1)
    assert {kept.path.name for kept in known.all()} == {"task-1", "task-1@2"}
    with pytest.raises(Refused, match="no path for this attempt"):
        known.open("task-1", 2, RoleSettings())


def test_what_is_somebody_elses_is_not_touched(known: Workspaces) -> None:
    foreign = known.root / "task-9"
    foreign.mkdir(parents=True)
    assert folder(known, "task-9").path == known.root / "task-9@1"
    assert list(foreign.iterdir()) == []
    # A later task of the same id does not go on in the folder of the earlier one
    (folder(known).path / "old").write_text("x")
    again = known.open("task-1", 3, RoleSettings(), EarlierWork(submitted_at=7))
    assert again.path == known.root / "task-1@3" and "used for something else" in again.told


def test_a_workspace_of_an_earlier_version(known: Workspaces) -> None:
    known.root.mkdir()
    old = known.root / "task-1-1"
    old.mkdir()
    (known.root / "task-1-1.json").write_text(
        '{"task_id":"task-1","epoch":1,"kind":"folder","created_at":5,"is_made":true}'
    )
    (known.root / "task-1-1.scratch").mkdir()
    kept = only(known)
    assert (kept.task_id, kept.epoch, kept.path) == ("task-1", 1, old)
    # A task whose own path it would be works elsewhere
    assert folder(known, "task-1-1").path.name == "task-1-1@1"
    known.remove(known.all()[1], DONE, False)
    known.remove(only(known), DONE, False)
    known.remove_leftovers()
    assert known.all() == [] and {path.name for path in known.root.iterdir()} <= OURS


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
    known.records.write(replace(kept.record, git_dir="", is_made=False))
    assert only(known).flags == ("unfinished", "missing")
    assert "ready" in why_not(known, State.READY)
    assert_goes(known)
    assert git_space(epoch=2).record.branch == space.record.branch.removesuffix("1") + "2"


def test_a_crash_between_tree_and_record(repo: Repo, known: Workspaces, git_space: Open) -> None:
    git_space()
    kept = only(known)
    assert kept.record is not None
    known.records.write(replace(kept.record, git_dir="", is_made=False))
    assert only(known).flags == ("unfinished",)
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
    (known.root / ".records" / "task-1.json").write_bytes(damage)
    assert only(known).flags == ("unreadable",)
    assert_stays(known, "cannot be read")


def test_what_is_not_ours(known: Workspaces, tmp_path: Path) -> None:
    known.root.mkdir()
    (known.root / "task-1-1").mkdir()
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
