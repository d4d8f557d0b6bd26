"""Workspaces in tests: how they are opened, and what it means that one stays or goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.settings.roles import RoleSettings
from agentq.worker.changes import EvidenceFile
from agentq.worker.workspaces import Kept, Workspace, Workspaces
from tests.worker.repositories import Repo, environment

DONE = State.COMPLETE

Open = Callable[..., Workspace]


def new_spaces(repo: Repo, root: Path) -> Workspaces:
    return Workspaces(root, environment(repo.home), clock=lambda: 1_000)


def opener(repo: Repo, known: Workspaces) -> Open:
    """Opens worktrees of this repository."""

    def open_one(task_id: str = "task-1", epoch: int = 1, **more: Any) -> Workspace:
        role = replace(RoleSettings(workspace="git", repo=str(repo.path)), **more)
        return known.open(task_id, epoch, role)

    return open_one


def folder(known: Workspaces, task_id: str = "task-1", epoch: int = 1) -> Workspace:
    return known.open(task_id, epoch, RoleSettings())


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
    assert only(known) == kept


def assert_goes(known: Workspaces) -> None:
    kept = only(known)
    assert known.why_not(kept, DONE, False) == ""
    known.remove(kept, DONE, False)
    assert not kept.path.exists()
    assert known.all() == []
    assert list(known.root.iterdir()) == []


def content(evidence: list[EvidenceFile], name: str) -> bytes:
    (found,) = [each.content for each in evidence if each.name == name]
    return found
