"""`agentq workspaces`: lists, opens and cleans up, and never removes what is not safe elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.cli import main
from agentq.settings import load_settings
from agentq.settings.roles import RoleSettings
from agentq.worker.workspaces import Workspaces
from tests.interfaces.conftest import Submit, run_here
from tests.worker.repositories import Repo, environment, new_repo


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    home = ("workspaces:workspaces", "List, open and clean up the folders of attempts.")
    monkeypatch.setitem(main._HOMES, "workspaces", home)


@pytest.fixture
def repo(home: Path) -> Repo:
    return new_repo(home / "code")


@pytest.fixture
def known(repo: Repo) -> Workspaces:
    root = Path(load_settings().workspaces_root)
    return Workspaces(root, environment(repo.home), lock_seconds=0)


def open_git(known: Workspaces, repo: Repo, task_id: str, epoch: int = 1) -> Path:
    role = RoleSettings(workspace="git", repo=str(repo.path))
    space = known.open(task_id, epoch, role)
    space.close()
    return space.path


def test_nothing_there(home: Path) -> None:
    assert run_here("workspaces", "--json").ok().json()["workspaces"] == []
    assert "no workspaces" in run_here("workspaces", "list").ok().err
    assert run_here("workspaces", "clean", "--json").ok().json() == {
        "dry_run": False,
        "removed": [],
        "kept": [],
    }


def test_listing_says_why_it_stays(known: Workspaces, repo: Repo, submit: Submit) -> None:
    task_id = submit()
    open_git(known, repo, task_id)
    (row,) = run_here("workspaces", "list", "--json").ok().json()["workspaces"]
    assert row["task_id"] == task_id
    assert row["branch"] == f"agentq/{task_id}-1"
    assert row["state"] == "ready" and row["stays_because"] == "its task is ready"
    shown = run_here("workspaces").ok().out
    assert task_id in shown and "its task is ready" in shown


def test_an_attempt_that_runs_keeps_its_workspace(
    known: Workspaces, repo: Repo, submit: Submit
) -> None:
    """Also when the task was cancelled and the attempt has not said yet that it stopped."""
    task_id = submit()
    run_here("claim", "--as", "worker").ok()
    open_git(known, repo, task_id)
    run_here("cancel", task_id).ok()
    (row,) = run_here("workspaces", "--json").ok().json()["workspaces"]
    assert row["state"] == "cancelled"
    assert "not stopped" in row["stays_because"]


def test_cleaning_removes_what_may_go(known: Workspaces, repo: Repo, submit: Submit) -> None:
    over, dirty, waiting = submit(), submit(), submit()
    clean_path, dirty_path = open_git(known, repo, over), open_git(known, repo, dirty)
    open_git(known, repo, waiting)
    open_git(known, repo, "of-another-ledger")
    (dirty_path / "left.txt").write_text("x")
    for task_id in (over, dirty):
        run_here("cancel", task_id).ok()

    rehearsed = run_here("workspaces", "clean", "--dry-run", "--json").ok().json()
    assert [each["task_id"] for each in rehearsed["removed"]] == [over, dirty]
    assert clean_path.exists() and dirty_path.exists()

    answer = run_here("workspaces", "clean").ok()
    assert f"{over} attempt 1: removed" in answer.out
    assert "its task is ready" in answer.out
    assert "the ledger does not know its task" in answer.out
    assert "2 removed, 2 stay" in answer.err
    assert not clean_path.exists() and not dirty_path.exists()
    assert f"agentq/{over}/1" not in repo.branches()

    # What was not committed is in a snapshot, which is listed until its time is over
    ref = f"refs/agentq/{dirty}/1"
    assert repo.git("show", f"{ref}:left.txt") == "x"
    rows = run_here("workspaces", "--json").ok().json()["workspaces"]
    (row,) = [row for row in rows if row["task_id"] == dirty]
    assert row["flags"] == ["missing", "snapshot"] and row["snapshot"] == ref
    assert f"{ref} is kept until" in row["stays_because"]
    assert f"{ref} is kept until" in run_here("workspaces", "clean").ok().out


def test_opening_prints_the_newest(known: Workspaces, repo: Repo, submit: Submit) -> None:
    role = RoleSettings(workspace="git", repo=str(repo.path))
    holder = known.open("task-1", 1, role)  # so that the second attempt has another path
    first, second = holder.path, open_git(known, repo, "task-1", 2)
    holder.close()
    open_git(known, repo, "task-10")
    assert run_here("workspaces", "open", "task-1").ok().out == f"{second}\n"
    assert run_here("workspaces", "open", "task-1", "--epoch", "1").ok().out == f"{first}\n"
    assert run_here("workspaces", "open", "task-1", "--json").ok().json()["path"] == str(second)
    run_here("workspaces", "open", "task").refused(2, "Type more of the id")
    run_here("workspaces", "open", "other").refused(3, "no workspace")


def test_a_record_with_control_characters_is_harmless(known: Workspaces, home: Path) -> None:
    known.root.mkdir(parents=True)
    (known.root / "evil\x1b[31m-1").mkdir()
    answer = run_here("workspaces", "clean").ok()
    assert "\x1b" not in answer.out and "no record" in answer.out
    assert "\x1b" not in run_here("workspaces").ok().out
