"""Follows the log and keeps what it comes to in numbers: samples by minute, quarter, day and role.

Each event is counted once: the transaction that writes samples also writes how far the log was
counted, under a lock, and is given up if somebody else has counted meanwhile. Whoever asks gets
what is stored and, on top, what has happened since, so an answer is as new as the log and nobody
depends on when the loop last ran. Samples outlive the tasks they come from; how many are kept is
bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from agentq.contracts.number_values import PERIODS, Numbers, RoleSample
from agentq.contracts.sample_rows import SampleFilter, SampleRow
from agentq.contracts.store import Changes, LogRow, Reader, Store, Tx
from agentq.core.errors import Invalid
from agentq.core.samples import (
    STANDING,
    LogLine,
    Sample,
    SampleCounter,
    Standing,
    total_of,
)
from agentq.core.task import NO_USAGE, Usage
from agentq.ledger.codec import STATES, SpecCache, decoder, encode, to_task
from agentq.ledger.pruning import SAMPLES_KEPT

#: Under this name counters take turns; the loop that counts has its leader lease by it.
LEASE = "numbers"
#: Events that are counted in one transaction, and that an answer adds to what is stored at most.
PAGE, TAIL_MAX = 2_000, 10_000
_MINUTE_MS = 60_000
#: A span of which there are no samples.
_NO_SPAN = -1
_SPANS = tuple(span for span, _ in PERIODS.values() if span)

#: By role and the minute it happened in.
Minutes = dict[tuple[str, int], Sample]


class _Counted(msgspec.Struct):
    """The body of the row that says how far the log was counted."""

    position: int = 0


class _Costs(msgspec.Struct):
    """What of the data of a trigger is counted."""

    kind: str = "transient"
    cost: Usage = NO_USAGE


class CountedLog(NamedTuple):
    """A part of the log, counted: up to which position, and whether there may be more."""

    minutes: Minutes
    position: int
    more: bool


class NumberLedger:
    """The samples of one store."""

    def __init__(self, store: Store, specs: SpecCache) -> None:
        self._store = store
        self._specs = specs

    def count(self) -> bool:
        """Count the next page of the log; whether there may be more."""
        self._store.number_events()

        def look(reader: Reader) -> tuple[int, CountedLog]:
            position = _position(reader)
            return position, self._tail(reader, position, PAGE)

        begun, tail = self._store.read(look)
        if tail.position == begun:
            return False

        def change(tx: Tx) -> bool:
            tx.leader_leases([LEASE])  # locks: counters take turns
            if _position(tx) == begun:
                tx.save(Changes(samples=_rows(tx, tail)))
            return tail.more

        return self._store.write(change)

    def numbers(self, period: str, role: str) -> Numbers:
        """How work went in a period, of one role or of all."""
        if period not in PERIODS:
            raise Invalid(
                f"There are no numbers for {period[:40]!r}.",
                f"There are some for {', '.join(PERIODS)}.",
            )
        self._store.number_events()
        span, count = PERIODS[period]

        def look(reader: Reader) -> Numbers:
            now = reader.now()
            since = now - now % span - (count - 1) * span if span else 0
            rows = reader.records(SampleFilter(span, since))
            tail = self._tail(reader, _position_in(rows), TAIL_MAX)
            merged = _merged(rows, _sums(tail.minutes, span))
            samples = tuple(
                RoleSample(at, name, sample)
                for (at, name), sample in sorted(merged.items())
                if at >= since and name and role in ("", name)
            )
            return Numbers(period, span, since, now, samples, tail.position, tail.more)

        return self._store.read(look)

    # -- the log -----------------------------------------------------------------------------------

    def _tail(self, reader: Reader, position: int, limit: int) -> CountedLog:
        rows = reader.events_after(position, limit)
        if not rows:
            return CountedLog({}, position, more=False)
        roles = self._roles(reader, {row.event.key for row in rows})
        counted = [row for row in rows if row.event.key in roles]  # others were deleted since
        standing = _standing_before(reader, counted)
        counters: dict[tuple[str, int], SampleCounter] = {}
        for row in counted:
            key, line = row.event.key, _line(row)
            minute = line.at - line.at % _MINUTE_MS
            before = standing.get(key, Standing())
            counters.setdefault((roles[key], minute), SampleCounter()).add(before, line)
            standing[key] = before.after(line)
        minutes = {where: counter.sample() for where, counter in counters.items()}
        return CountedLog(minutes, rows[-1].position, len(rows) == limit)

    def _roles(self, reader: Reader, keys: Iterable[int]) -> dict[int, str]:
        """The role that each of these tasks is for now."""
        found = {}
        for row in reader.tasks(sorted(keys)):
            spec, submitted_at = self._specs.put(row.spec)
            found[row.hot.key] = to_task(row.hot, spec, submitted_at).to
        return found


def _standing_before(reader: Reader, rows: Sequence[LogRow]) -> dict[int, Standing]:
    """How tasks stood before the first of these events, as far as that is needed to count them."""
    first: dict[int, int] = {}
    for row in rows:
        first.setdefault(row.event.key, row.event.version)
    moving = {row.event.key for row in rows if _moves(row)}
    keys = sorted(key for key in moving if first[key] > 1)
    found: dict[int, Standing] = {}
    for row in reader.history(*keys) if keys else ():
        key = row.event.key
        if row.event.version < first[key]:
            found[key] = found.get(key, Standing()).after(_line(row))
    return found


def _moves(row: LogRow) -> bool:
    """Whether an event may have changed where its task stands. A cost does if it blocks it."""
    event = row.event
    return event.trigger not in STANDING or (event.trigger == "Spend" and event.kind == "blocked")


def _line(row: LogRow) -> LogLine:
    event = row.event
    failure, cost = "", NO_USAGE
    if event.trigger == "Fail" or (event.trigger in ("Spend", "Report") and "cost" in event.data):
        said = decoder(_Costs).decode(event.data or "{}")
        failure, cost = said.kind if event.trigger == "Fail" else "", said.cost
    return LogLine(event.at, event.kind, event.trigger, STATES[event.state], failure, cost)


# -- samples ---------------------------------------------------------------------------------------


def _position(reader: Reader) -> int:
    """How far the log was counted."""
    return _position_in(reader.records(SampleFilter(_NO_SPAN)))


def _position_in(rows: Sequence[SampleRow]) -> int:
    return int(decoder(_Counted).decode(rows[0].body).position) if rows else 0


def _sums(minutes: Minutes, span: int) -> dict[tuple[int, str], Sample]:
    """Samples of a span, by the moment they begin at and the role."""
    found: dict[tuple[int, str], list[Sample]] = {}
    for (role, minute), sample in minutes.items():
        begin = minute - minute % span if span else 0
        found.setdefault((begin, role), []).append(sample)
    return {where: total_of(samples) for where, samples in found.items()}


def _merged(
    rows: Iterable[SampleRow], more: dict[tuple[int, str], Sample]
) -> dict[tuple[int, str], Sample]:
    found = {(row.at, row.role): decoder(Sample).decode(row.body) for row in rows if row.role}
    for where, sample in more.items():
        found[where] = found[where].plus(sample) if where in found else sample
    return found


def _rows(tx: Tx, tail: CountedLog) -> list[SampleRow]:
    """The rows to write for a part of the log: what they were, and what has come to it."""
    now = tx.now()
    rows = [SampleRow(0, 0, "", encode(_Counted(tail.position)).decode())]
    for span in (0, *_SPANS):
        oldest = now - SAMPLES_KEPT * span if span else 0  # what nobody keeps is not written
        sums = {
            where: each for where, each in _sums(tail.minutes, span).items() if where[0] >= oldest
        }
        there = tx.records(SampleFilter(span, min((at for at, _ in sums), default=now)))
        merged = _merged([row for row in there if (row.at, row.role) in sums], sums)
        rows += [
            SampleRow(span, at, role, encode(sample).decode())
            for (at, role), sample in sorted(merged.items())
        ]
    return rows
