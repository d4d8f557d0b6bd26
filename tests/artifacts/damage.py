"""What every reader says of a file that is not what was recorded."""

from __future__ import annotations

import pytest

from agentq.contracts.artifacts import ArtifactStore, Stored
from agentq.core.errors import Damaged


def assert_damage_is_found(store: ArtifactStore, stored: Stored, what: str) -> None:
    """`a.md` of task-1, which was published as its result, is damaged at both places."""
    said = rf"Task task-1: the file .*/artifacts/task-1/1/a\.md {what}"
    with pytest.raises(Damaged, match=said):
        store.read("task-1", 1, "a.md", stored.sha256, stored.size)
    with pytest.raises(Damaged, match=said):
        store.open("task-1", 1, "a.md", stored)
    with pytest.raises(Damaged, match=rf"Task task-1: the file .*/results/task-1\.md {what}"):
        store.result("task-1", stored.sha256)
    assert "/artifacts/task-1/1/a.md" in str(
        store.check("task-1", 1, "a.md", stored.sha256, stored.size)
    )
