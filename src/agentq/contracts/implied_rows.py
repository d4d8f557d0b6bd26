"""Rows that stand beside tasks and follow from their logs, as a store lists them for a proof."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agentq.contracts.store import SpendingRow

#: Beyond every key that a task can have, on either side.
KEY_MIN, KEY_MAX = -(1 << 62), 1 << 62


class RowsBetween(NamedTuple):
    """Which rows to list: those of a table that belong to tasks with keys from `first` to `last`,
    by key, which is the first value of each."""

    table: str
    first: int
    last: int

    @property
    def listing(self) -> str:
        return f"{self.table}_between"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], tuple[Any, ...]]:
        return tuple


class LedgerCounts(NamedTuple):
    """How many tasks there are, the last key that one was given, how many events have a position,
    the last position, and how many submissions wait to be decided."""

    tasks: int
    last_key: int
    events: int
    last_position: int
    deferred: int

    @property
    def is_complete(self) -> bool:
        """Whether certainly no task was ever deleted: every key that was given is there."""
        return self.tasks == self.last_key


class AskCounts(NamedTuple):
    """Asks for `LedgerCounts`."""

    @property
    def listing(self) -> str:
        return "ledger_counts"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], LedgerCounts]:
        return LedgerCounts._make


class LostNames(NamedTuple):
    """Asks for (name, task id) of names that stand for tasks which are not there."""

    limit: int

    @property
    def listing(self) -> str:
        return "lost_names"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], tuple[str, str]]:
        return tuple


class AllSpending(NamedTuple):
    """Asks for everything that was spent, whatever the kind."""

    @property
    def listing(self) -> str:
        return "all_spending"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], SpendingRow]:
        return SpendingRow._make
