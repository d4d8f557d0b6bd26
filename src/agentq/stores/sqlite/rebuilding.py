"""Writes rows again as the log says, in place of what is there (see `contracts.rebuilt_rows`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentq.contracts.rebuilt_rows import Rebuilt, RebuiltTask, RebuiltTree, UnfoundedKey

_BESIDE = (
    "delete_parents", "delete_wants", "release_resources", "leave_trees", "delete_artifacts",
)  # fmt: skip


def rebuild(many: Callable[[str, Sequence[Any]], None], rows: Sequence[Rebuilt]) -> None:
    """`many` carries a named statement out, once for each of some values."""
    for row in rows:
        if isinstance(row, RebuiltTask):
            _task(many, row)
        elif isinstance(row, RebuiltTree):
            many("drop_tree", [(row.root,)])
            many("set_tree", [] if row.tree is None else [row.tree])
        elif isinstance(row, UnfoundedKey):
            for name in (*_BESIDE, "delete_children", "drop_lone_tree"):
                many(name, [(row.key,)])
        else:
            many(f"drop_{row.table}", [{"name": row.name}])


def _task(many: Callable[[str, Sequence[Any]], None], row: RebuiltTask) -> None:
    key = row.hot.key
    for name in _BESIDE:
        many(name, [(key,)])
    many("rebuild_task", [(*row.hot[1:], row.role, row.priority, key)])
    many("insert_edge", [(parent, key) for parent in row.parents])
    many("add_wanted_resources", [(key, each) for each in row.wanted])
    many("hold_resource", [(*each, key) for each in row.held])
    many("join_tree", [(key, root) for root in row.roots])
    many("add_artifact", row.artifacts)
