"""Submit one by one, submit in bulk, drain: all sides of one store in one round.

Every side has its own process and its own fresh database. Submits go round the sides in short
slices, so that a moment in which the disk is busy with something else strikes all of them alike.
A peer's drain cannot be sliced (it starts whole workers), so drains follow one another there.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest

from bench.host import SideFailed, SideProcess
from bench.options import rotated
from bench.report import Report
from bench.servers import PrivatePostgres, fresh_place

PER_SECOND = "tasks/s"
SLICES = 8
DRAIN_BATCH = 100
# Drains that commit each task by itself are slow; a few hundred tasks show their pace.
LONE_DRAIN_SHARE = 0.05


@dataclass(frozen=True)
class Load:
    """How many tasks a side is given; slower sides get fewer, as rates are compared."""

    singles: int
    bulk_by_100: int
    bulk_by_1000: int
    lone_drain: bool = False

    @property
    def warm_up(self) -> int:
        return self.singles // 3

    @property
    def alone(self) -> int:
        total = self.warm_up + self.singles + self.bulk_by_100 + self.bulk_by_1000
        return max(100, int(total * LONE_DRAIN_SHARE)) if self.lone_drain else 0


@dataclass
class Contestant:
    """A side during one round: its process, what it has to do, and how many tasks wait."""

    process: SideProcess
    load: Load
    belongings: ExitStack
    waiting: int = 0
    taken: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def do(self, figure: str, command: str, count: int, **arguments: int) -> None:
        """Carry out one timed slice of a figure."""
        seconds = self.process.call(command, count=count, **arguments)
        if seconds is None:
            return
        self.waiting += -count if command == "drain" else count
        self.taken.setdefault(figure, []).append((count, seconds))


def slices(total: int, batch: int) -> list[int]:
    """Split so many tasks into about SLICES parts, each a whole number of batches."""
    batches = total // batch
    parts = min(SLICES, batches)
    return [batch * (batches * (i + 1) // parts - batches * i // parts) for i in range(parts)]


def measure_round(
    report: Report,
    store: str,
    loads: dict[str, Load],
    round_number: int,
    postgres: PrivatePostgres | None,
    *,
    drain_in_turn: bool = False,
) -> None:
    with ExitStack() as stack:
        order = rotated(list(loads), round_number)
        running = Round(report, store, postgres, stack)
        for side in order:
            running.enter(side, loads[side])
        running.submit_all()
        if drain_in_turn:
            running.drain_in_turn()
        else:
            running.drain_all()
        running.tell(round_number)


class Round:
    """The sides that are still in the round; one that fails drops out and the others go on."""

    def __init__(
        self, report: Report, store: str, postgres: PrivatePostgres | None, stack: ExitStack
    ) -> None:
        self._report = report
        self._store = store
        self._postgres = postgres
        self._stack = stack
        self._sides: list[Contestant] = []

    def enter(self, side: str, load: Load) -> None:
        belongings = self._stack.enter_context(ExitStack())
        place = belongings.enter_context(fresh_place(self._postgres))
        process = belongings.enter_context(SideProcess(side, place))
        contestant = Contestant(process, load, belongings)
        self._sides.append(contestant)
        self._try(contestant, "", "create")
        # The first commits grow new files and fill caches of statements: not what a queue in use
        # does.
        self._try(contestant, "warm-up", "submit_each", load.warm_up)

    def _try(
        self, side: Contestant, figure: str, command: str, count: int = 0, **arguments: int
    ) -> None:
        if side not in self._sides:
            return
        try:
            if count:
                side.do(figure, command, count, **arguments)
            else:
                side.process.call(command)
        except SideFailed as failure:
            self._report.fail(str(failure), failure.log)
            self._sides.remove(side)

    def _in_turn(
        self, figure: str, command: str, plans: Iterable[list[int]], **arguments: int
    ) -> None:
        sides = list(self._sides)
        for number, counts in enumerate(zip_longest(*plans, fillvalue=0)):
            turn = list(zip(sides, counts, strict=True))
            # To and fro: whoever comes second in a turn may find the disk busier.
            for side, count in reversed(turn) if number % 2 else turn:
                if count:
                    self._try(side, figure, command, count, **arguments)

    def submit_all(self) -> None:
        plans = [slices(side.load.singles, 1) for side in self._sides]
        self._in_turn(f"{self._store} submit", "submit_each", plans)
        for batch in (100, 1000):
            plans = [
                slices(side.load.bulk_by_100 if batch == 100 else side.load.bulk_by_1000, batch)
                for side in self._sides
            ]
            self._in_turn(f"{self._store} bulk by {batch}", "submit_bulk", plans, batch=batch)
        plans = [slices(side.load.alone, 1) for side in self._sides]
        self._in_turn(f"{self._store} drain by 1", "drain", plans, batch=1)

    def drain_in_turn(self) -> None:
        plans = [slices(side.waiting, DRAIN_BATCH) for side in self._sides]
        self._in_turn(f"{self._store} drain", "drain", plans, batch=DRAIN_BATCH)

    def drain_all(self) -> None:
        for side in list(self._sides):
            if self._postgres is not None:
                self._postgres.settle()
            self._try(side, f"{self._store} drain", "drain", side.waiting, batch=DRAIN_BATCH)
            # Its database goes at once, lest its vacuuming disturb the next drain.
            side.belongings.close()

    def tell(self, round_number: int) -> None:
        for side in self._sides:
            for figure, parts in side.taken.items():
                if figure == "warm-up":
                    continue
                tasks, seconds = (sum(column) for column in zip(*parts, strict=True))
                rate = tasks / seconds
                self._report.add(figure, side.process.name, round_number, rate, PER_SECOND)
