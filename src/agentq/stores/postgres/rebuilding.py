"""Writes rows again as the log says, in place of what is there (see `contracts.rebuilt_rows`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentq.contracts.rebuilt_rows import Rebuilt, RebuiltTask, RebuiltTree, UnfoundedKey

_ARTIFACTS = ("keys", "epochs", "names", "sizes", "digests", "media_types", "ats")


def rebuild(rows: Sequence[Rebuilt]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The names of statements, and their values."""
    for row in rows:
        if isinstance(row, RebuiltTask):
            yield from _task(row)
        elif isinstance(row, RebuiltTree):
            yield "drop_tree", {"root": row.root}
            if row.tree is not None:
                yield "insert_tree", row.tree._asdict()
        elif isinstance(row, UnfoundedKey):
            yield "clear_beside", {"key": row.key}
            yield "clear_dependents", {"key": row.key}
            yield "drop_lone_tree", {"root": row.key}
        else:
            yield f"drop_{row.table}", {"name": row.name}


def _task(row: RebuiltTask) -> Iterator[tuple[str, Mapping[str, object]]]:
    key = row.hot.key
    yield "clear_beside", {"key": key}
    yield "rebuild_task", {**row.hot._asdict(), "role": row.role, "priority": row.priority}
    yield (
        "rebuild_beside",
        {
            "key": key,
            "parents": list(row.parents),
            "wanted": list(row.wanted),
            "held": [name for name, _ in row.held],
            "places": [place for _, place in row.held],
            "roots": list(row.roots),
        },
    )
    if row.artifacts:
        columns = zip(*row.artifacts, strict=True)
        yield "add_artifacts", dict(zip(_ARTIFACTS, columns, strict=True))
