"""Rows that `agentq repair` writes again as the log says (see `ledger.repairing`)."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from typing import NamedTuple, TypeAlias

from agentq.contracts.store import ArtifactRow, HotRow, TreeRow


class RebuiltTask(NamedTuple):
    """A task's row and all that stands beside it, in the place of what is there.

    `parents` are the keys of tasks whose ends it is told of, `held` are (resource, place), `roots`
    the tasks whose budgets it shares.
    """

    hot: HotRow
    role: int
    priority: int
    parents: tuple[int, ...]
    wanted: tuple[str, ...]
    held: tuple[tuple[str, int], ...]
    roots: tuple[int, ...]
    artifacts: tuple[ArtifactRow, ...]


class RebuiltTree(NamedTuple):
    """The budget that begins with a task, in the place of what is there; None if it begins none."""

    root: int
    tree: TreeRow | None


class UnfoundedKey(NamedTuple):
    """What stands beside a task that never was: to be deleted. A budget that others share stays."""

    key: int


class UnfoundedRow(NamedTuple):
    """A row that no event calls for, to be deleted: of circuits, tokens or resources."""

    table: str
    name: str


Rebuilt: TypeAlias = RebuiltTask | RebuiltTree | UnfoundedKey | UnfoundedRow
