"""Rows of the system stream: what is decided about no task, as a store keeps it."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class SystemRow(NamedTuple):
    """An event about limits, circuits, tokens, lanes, deleted tasks, or a seal.

    `position` is up to where a seal seals the log, else 0. `digest` is over all of it and the
    digest of the row before.
    """

    number: int
    at: int
    kind: str
    subject: str
    position: int
    data: str
    digest: str


class SystemPage(NamedTuple):
    """Which system events to list: those after a number, in order."""

    number: int
    at_most: int

    @property
    def listing(self) -> str:
        return "system_events"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], SystemRow]:
        return SystemRow._make


class LastSystemEvent(NamedTuple):
    """The system event that was written last; there is always one. Or the last of a kind: the seal
    of the highest position, or any other."""

    kind: str = ""

    @property
    def listing(self) -> str:
        if self.kind == "seal":
            return "last_seal"
        return "last_system_event_of" if self.kind else "last_system_event"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], SystemRow]:
        return SystemRow._make


class SealsBetween(NamedTuple):
    """Which seals to list: those that seal the log up to one of these positions, and the next."""

    first: int
    last: int

    @property
    def listing(self) -> str:
        return "seals_between"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], SystemRow]:
        return SystemRow._make


def _two_numbers(row: Iterable[Any]) -> tuple[int, int]:
    first, second = row
    return int(first), int(second)


class TreeExtras(NamedTuple):
    """What was added to each budget that tasks share: its name, and the amount as JSON."""

    @property
    def listing(self) -> str:
        return "tree_extras"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], tuple[str, str]]:
        return _two_texts


def _two_texts(row: Iterable[Any]) -> tuple[str, str]:
    first, second = row
    return first, second


class LogLength(NamedTuple):
    """How long the log is, and how many events there are; by one row."""

    @property
    def listing(self) -> str:
        return "log_length"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], tuple[int, int]]:
        return _two_numbers
