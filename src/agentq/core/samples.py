"""What the log comes to in numbers: how much began and ended, how long it took, what it cost.

A `Sample` is what events of one role within one stretch of time add up to. Samples add up: minutes
to days, days to all there ever was, so each event is looked at once. Nothing in them names a task.

- **waiting** is from the moment a task became ready to its claim
- **processing** is from a claim to the moment the task left that attempt, however it did
- a **failure** is an attempt that failed, by the kind its worker named, or whose lease ended; the
  kinds `crashed` and `lease_ended` are crashes
- **retried** is an attempt that failed and is to be followed by another
- a task is **dead** once it is failed or expired: a dead letter
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from agentq.core.states import State
from agentq.core.task import NO_USAGE, Usage

#: The upper bounds of a histogram's buckets, in milliseconds: 10 ms, 20, 50, … up to six days. The
#: last bucket, beyond them, has none.
BOUNDS_MS = tuple(digit * 10**power for power in range(1, 9) for digit in (1, 2, 5))
#: The kind of failure that no worker names: nobody renewed the lease.
LEASE_ENDED = "lease_ended"
CRASHES = ("crashed", LEASE_ENDED)
_DEAD = (State.FAILED, State.EXPIRED)
#: Triggers that leave a task where it stands: what came before need not be known to count them.
STANDING = frozenset(
    {"Spend", "Progress", "AddArtifact", "Comment", "Tell", "TakeMessages", "RefuseReport",
     "Applied"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Latencies:
    """How many took how long: by bucket, without the empty ones at the end, and all together."""

    counts: tuple[int, ...] = ()
    sum_ms: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts)

    def plus(self, other: Latencies) -> Latencies:
        counts = tuple(a + b for a, b in zip_longest(self.counts, other.counts, fillvalue=0))
        return Latencies(counts, self.sum_ms + other.sum_ms)

    def quantile_ms(self, share: float) -> int | None:
        """The length that this share of them did not exceed, estimated within its bucket.

        >>> Latencies((0, 0, 4), 160).quantile_ms(0.5)
        35
        """
        wanted, seen = share * self.count, 0
        for number, count in enumerate(self.counts):
            if count and seen + count >= wanted:
                low = BOUNDS_MS[number - 1] if number else 0
                high = BOUNDS_MS[number] if number < len(BOUNDS_MS) else low
                return low + round((high - low) * max(wanted - seen, 0) / count)
            seen += count
        return None


@dataclass(frozen=True, slots=True)
class Sample:
    """What events of one role add up to."""

    submitted: int = 0
    started: int = 0
    completed: int = 0
    dead: int = 0
    cancelled: int = 0
    retried: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    waiting: Latencies = Latencies()
    processing: Latencies = Latencies()
    cost: Usage = NO_USAGE

    @property
    def failed(self) -> int:
        """Attempts that failed, of every kind."""
        return sum(self.failures.values())

    @property
    def crashed(self) -> int:
        return sum(self.failures.get(kind, 0) for kind in CRASHES)

    @property
    def failure_rate(self) -> float | None:
        """The share of attempts that failed, of those that ended; None if none did."""
        return self.failed / self.processing.count if self.processing.count else None

    def plus(self, other: Sample) -> Sample:
        return Sample(
            self.submitted + other.submitted,
            self.started + other.started,
            self.completed + other.completed,
            self.dead + other.dead,
            self.cancelled + other.cancelled,
            self.retried + other.retried,
            dict(sorted((Counter(self.failures) + Counter(other.failures)).items())),
            self.waiting.plus(other.waiting),
            self.processing.plus(other.processing),
            self.cost.plus(other.cost),
        )


def total_of(samples: Iterable[Sample]) -> Sample:
    """All of them together."""
    total = Sample()
    for each in samples:
        total = total.plus(each)
    return total


class LogLine(NamedTuple):
    """What of an event is counted. `failure` is the kind that a failed attempt's worker named."""

    at: int
    kind: str
    trigger: str
    state: State
    failure: str = ""
    cost: Usage = NO_USAGE


class Standing(NamedTuple):
    """How a task stands after an event: since when it is ready, and since when an attempt runs; 0
    if it does not. `state` is None before its submission."""

    state: State | None = None
    ready_at: int = 0
    claimed_at: int = 0

    def after(self, line: LogLine) -> Standing:
        """How it stands after the next event."""
        if line.trigger in STANDING and line.state is self.state:
            return self
        ready_at = claimed_at = 0
        if line.state is State.READY:
            ready_at = self.ready_at or line.at
        elif line.state is State.IN_PROGRESS:
            claimed_at = line.at if line.trigger == "Claim" else self.claimed_at
        return Standing(line.state, ready_at, claimed_at)


class SampleCounter:
    """Adds events up to a sample. The one thing here that changes: thousands pass through it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._waiting: list[int] = []
        self._processing: list[int] = []
        self._cost = NO_USAGE

    def add(self, before: Standing, line: LogLine) -> None:
        """Count an event of a task that stood so before it."""
        if before.state is None and line.trigger in STANDING:
            before = Standing(line.state)  # it was not looked up: it stands where it stood
        counts = self._counts
        counts["submitted"] += line.trigger == "Submit"
        counts["completed"] += line.kind == "completed"
        counts["retried"] += line.kind in ("retrying", "lease_ended")
        counts["dead"] += line.state in _DEAD and before.state not in _DEAD
        counts["cancelled"] += line.state is State.CANCELLED and before.state != line.state
        if line.trigger == "Claim":
            counts["started"] += 1
            self._waiting.append(max(line.at - before.ready_at, 0))
        if before.state is State.IN_PROGRESS and line.state is not State.IN_PROGRESS:
            self._processing.append(max(line.at - before.claimed_at, 0))
            if line.trigger == "Tick":
                self._failures[LEASE_ENDED] += 1
        if line.failure:
            self._failures[line.failure] += 1
        if line.cost is not NO_USAGE:
            self._cost = self._cost.plus(line.cost)

    def sample(self) -> Sample:
        return Sample(
            **self._counts,
            failures=dict(sorted(self._failures.items())),
            waiting=latencies_of(self._waiting),
            processing=latencies_of(self._processing),
            cost=self._cost,
        )


def latencies_of(lengths_ms: Iterable[int]) -> Latencies:
    """These lengths as a histogram."""
    lengths = list(lengths_ms)
    found = Counter(bisect_left(BOUNDS_MS, length) for length in lengths)
    counts = tuple(found[number] for number in range(max(found, default=-1) + 1))
    return Latencies(counts, sum(lengths))
