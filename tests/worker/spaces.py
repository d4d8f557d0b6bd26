"""Workspaces in tests: how they are opened, and what it means that one stays or goes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.core.values import replace
from agentq.repository.snapshot_refs import WorkSnapshot
from agentq.settings.roles import RoleSettings
from agentq.worker.changes import EvidenceFile
from agentq.worker.workspace import Workspace
from agentq.worker.workspace_records import Kept
from agentq.worker.workspaces import Workspaces
from tests.worker.repositories import Repo, environment

DONE = State.COMPLETE
#: Folders that stay when every workspace is gone.
OURS = {".records", ".locks", ".aside", ".scratch"}

Open = Callable[..., Workspace]


def new_spaces(repo: Repo, root: Path) -> Workspaces:
    return Workspaces(root, environment(repo.home), clock=lambda: 1_000, lock_seconds=0)


def opener(repo: Repo, known: Workspaces) -> Open:
    """Opens worktrees of this repository, and lets their locks go as a killed worker does."""

    def open_one(task_id: str = "task-1", epoch: int = 1, **more: Any) -> Workspace:
        role = replace(RoleSettings(workspace="git", repo=str(repo.path)), **more)
        space = known.open(task_id, epoch, role)
        space.close()
        return space

    return open_one


def folder(known: Workspaces, task_id: str = "task-1", epoch: int = 1) -> Workspace:
    space = known.open(task_id, epoch, RoleSettings())
    space.close()
    return space


def only(known: Workspaces) -> Kept:
    (kept,) = known.all()
    return kept


def why_not(known: Workspaces, state: State | None = DONE, is_held: bool = False) -> str:
    return known.why_not(only(known), state, is_held)


def assert_stays(known: Workspaces, *words: str) -> None:
    """The rules say why, `remove` refuses with the same words, and everything is still there."""
    kept = only(known)
    before = sorted(kept.path.rglob("*"))
    reason = why_not(known)
    for word in words:
        assert word in reason
    with pytest.raises(Refused) as refused:
        known.remove(kept, DONE, False)
    assert reason in refused.value.cause
    assert sorted(kept.path.rglob("*")) == before
    assert _as_it_was(only(known)) == _as_it_was(kept)


def _as_it_was(kept: Kept) -> Kept:
    """Without the moment at which the end of the task was first seen."""
    record = kept.record
    return replace(kept, record=replace(record, over_at=0) if record is not None else None)


def assert_tree_goes(known: Workspaces) -> WorkSnapshot:
    """The tree goes; a snapshot of it stays for a while, and so does its record."""
    kept = only(known)
    assert known.why_not(kept, DONE, False) == ""
    assert "is kept until" in known.remove(kept, DONE, False)
    assert not kept.path.exists()
    left = only(known)
    assert left.flags[:1] == ("missing",) and "snapshot" in left.flags
    assert "is kept until" in why_not(known)
    assert left.record is not None and left.record.snapshot is not None
    return left.record.snapshot


def assert_goes(known: Workspaces) -> None:
    kept = only(known)
    assert known.why_not(kept, DONE, False) == ""
    known.remove(kept, DONE, False)
    assert not kept.path.exists()
    assert known.all() == []
    left = [path for path in known.root.rglob("*") if not path.is_dir()]
    assert left == [] and {path.name for path in known.root.iterdir()} <= OURS


def content(evidence: list[EvidenceFile], name: str) -> bytes:
    (found,) = [each.content for each in evidence if each.name == name]
    return found
