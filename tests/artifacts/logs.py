"""Live logs in tests: lines that can be told apart, and all that a reader gets of them."""

from __future__ import annotations

from agentq.contracts.artifacts import ArtifactStore, LivePart

TASK, KEEP = "task-1", 4096


def numbered(count: int) -> list[bytes]:
    return [b"line %06d\n" % number for number in range(count)]


def read_all(store: ArtifactStore, limit: int = 1000) -> list[LivePart]:
    """Everything from the beginning, as a reader gets it."""
    parts, position = [], 0
    while (part := store.live_read(TASK, 1, position, limit)).data:
        parts.append(part)
        position = part.position
    return parts
