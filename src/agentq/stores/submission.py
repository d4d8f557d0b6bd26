"""A submission of tasks that are alike, as the long form that stores take for all others."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.contracts.store import NewRow


def spelled_out(
    row: NewRow,
    words: Sequence[tuple[str, str]],
    effects: Sequence[tuple[str, Sequence[str]]],
) -> tuple[list[NewRow], dict[str, list[tuple[str, str]]]]:
    """A row per task, and by its id the effects: lane, and what it says of that task."""
    rows = [row._replace(id=task_id, body=body) for task_id, body in words]
    said = {
        task_id: [(lane, each[nth]) for lane, each in effects]
        for nth, (task_id, _) in enumerate(words)
    }
    return rows, said
