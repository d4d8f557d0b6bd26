"""Rows of samples, as a store keeps them (see `contracts.store`)."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class SampleRow(NamedTuple):
    """What the events of a role in `span_ms` from a moment on come to, as JSON.

    With a span of 0 it is all there ever was; of no role it is how far the log was counted.
    """

    span_ms: int
    at: int
    role: str
    body: str


class SampleFilter(NamedTuple):
    """Samples of this span that begin at that moment or later, by moment and role; before them the
    row that says how far the log was counted, if it was: all as they were at one moment."""

    span_ms: int
    since: int = 0

    @property
    def listing(self) -> str:
        return "samples"

    @property
    def make_row(self) -> Callable[[Iterable[Any]], SampleRow]:
        return SampleRow._make
