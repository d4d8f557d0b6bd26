"""What a proof reads: the rows that stand beside a page of tasks, and what their logs lead to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from agentq.contracts.implied_rows import AskCounts, LedgerCounts, RowsBetween
from agentq.contracts.service_values import Problem
from agentq.contracts.store import Reader
from agentq.core.effects import Effect
from agentq.core.states import State
from agentq.core.task import Spec, Task, Usage

#: What follows from the log can be written again from it; the log itself cannot.
DERIVED = "It follows from the log: `agentq repair` may write it again; else restore a backup."
LOGGED = "Nothing but a backup has it: restore the ledger from one, and see who changed it."
UNKNOWN = "Nothing in the log calls for it: see who has put it there, then delete it."

#: What a rule raises for a row that cannot even be read: JSON that is none, a state nobody knows.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
#: Of what was expected and found so many characters are shown.
_SHOWN_MAX = 1000

_TABLES = (
    "addresses", "edges", "dependents", "wants", "holds", "members", "trees", "tree_costs",
    "artifacts", "outbox", "dedup",
)  # fmt: skip


class Finding(NamedTuple):
    """Something that does not follow: what is wrong, of which row or file, what was expected there
    and what was found."""

    where: str
    what: str
    expected: object = ""
    found: object = ""
    advice: str = DERIVED

    def of(self, task_id: str) -> Problem:
        expected, found = (str(each)[:_SHOWN_MAX] for each in (self.expected, self.found))
        return Problem(task_id, self.what, self.where, expected, found, self.advice)


class Followed(msgspec.Struct):
    """What followed from the events of one log, collected while it is replayed."""

    #: By version, the task after that event and the effects of it.
    effects: dict[int, tuple[Task, tuple[Effect, ...]]] = msgspec.field(default_factory=dict)
    #: What was spent, as what, and when.
    costs: list[tuple[Spec, Usage, int]] = msgspec.field(default_factory=list)
    states: set[State] = msgspec.field(default_factory=set)
    #: The children that it was told of, and when it was last.
    children: dict[str, int] = msgspec.field(default_factory=dict)
    #: The attempts whose holders have said themselves how they ended.
    ended: set[int] = msgspec.field(default_factory=set)
    #: The digests of the contexts that edits have brought.
    contexts: set[str] = msgspec.field(default_factory=set)
    #: Whether it was born as a dead letter, which comes after nothing.
    is_refused: bool = False
    #: Whether it was submitted to come after tasks that were gone by then: those are left out of
    #: its spec, and were a part of what its names stand for.
    has_lost: bool = False


class Proved(NamedTuple):
    """A task as its log gives it, with the spec that was submitted, and what followed from it."""

    task: Task
    submitted: Spec
    flags: int
    followed: Followed


def counts_of(reader: Reader) -> LedgerCounts:
    """How much there is; a ledger whose own row is gone is not complete."""
    return next(iter(reader.records(AskCounts())), LedgerCounts(0, -1, 0, 0, 0))


class RowsBeside:
    """The rows beside tasks with keys from `first` to `last`, by table and key, as one snapshot has
    them."""

    def __init__(self, reader: Reader, first: int, last: int, *, was_complete: bool = True) -> None:
        self.reader = reader
        self.now = reader.now()
        self._is_complete = None if was_complete else False
        self._rows: dict[str, dict[int, list[tuple[Any, ...]]]] = {}
        for table in _TABLES:
            found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
            for row in reader.records(RowsBetween(table, first, last)):
                found[row[0]].append(row[1:])
            self._rows[table] = found

    def of(self, table: str, key: int) -> list[tuple[Any, ...]]:
        return self._rows[table].get(key, [])

    @property
    def is_complete(self) -> bool:
        """Whether certainly no task was ever deleted. Counted when first asked for, and not at all
        where one was: it takes a look at every task."""
        if self._is_complete is None:
            self._is_complete = counts_of(self.reader).is_complete
        return self._is_complete

    def of_nobody(self, keys: set[int]) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
        """Table, key and row of what belongs to none of these tasks."""
        for table, found in self._rows.items():
            for key in found.keys() - keys:
                for row in found[key]:
                    yield table, key, row
