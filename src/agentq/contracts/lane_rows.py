"""Rows about the lanes of the outbox, as a store counts them (see `contracts.store`)."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class LaneCount(NamedTuple):
    """How many effects wait in a lane."""

    lane: str
    effects: int


class LaneCounts(NamedTuple):
    """All lanes in which effects wait."""

    @property
    def listing(self) -> str:
        return "effect_counts"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], LaneCount]:
        return LaneCount._make
