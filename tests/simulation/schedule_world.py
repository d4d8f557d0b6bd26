"""Schedules in one thread: the real ledger and store, a virtual clock, clocks that jump, one seed.

Several processes fire the same schedules around a night on which the clocks of a zone are put
forward or back. They lead in turn, die, are paused between a decision and what they do about it,
and have clocks of their own that are wrong; the store fails as in any other history. People pause
schedules, ask for a run and write other times into the files. After every step the tables are held
against occurrences that are found here the slow way: minute by minute, by what the clock shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.schedule_values import (
    DeclaredSchedule,
    Overlap,
    ScheduleChange,
    ScheduleFiring,
)
from agentq.contracts.store import OVER
from agentq.core.errors import AgentqError, TimedOut, Unavailable
from agentq.core.triggers import Report
from agentq.core.values import replace
from agentq.ledger.codec import SpecCache
from agentq.ledger.leader_leases import LeaderLeases
from agentq.ledger.ledger import Ledger
from agentq.ledger.schedules import ScheduleLedger
from agentq.protocol import occurrences
from agentq.protocol.occurrences import CatchUp, Timing
from agentq.schedules.firing import plan_firing
from agentq.schedules.model import Schedule
from agentq.stores.sqlite.store import SqliteStore
from tests.simulation.faults import NO_FAULTS, FaultRates, FaultyStore
from tests.simulation.reference_times import DAYS, reference
from tests.simulation.violation import OCCURRENCES, Violation
from tests.simulation.world import HOUR, MINUTE, SECOND, VirtualClock

#: Zones, and a night on which the clocks of each jump.
NIGHTS = (
    ("Europe/Berlin", "2026-10-24T12:00"),
    ("Europe/Berlin", "2027-03-27T12:00"),
    ("America/New_York", "2026-10-31T12:00"),
    ("America/New_York", "2027-03-13T12:00"),
    ("Australia/Lord_Howe", "2026-04-04T12:00"),
    ("Australia/Lord_Howe", "2026-10-03T12:00"),
)
CRONS = (
    "*/15 * * * *", "*/20 1-3 * * *", "30 2 * * *", "0,30 1,2,3 * * *", "15 */2 * * *",
    "45 1 * * *",
)  # fmt: skip
TERM_MS = MINUTE
TERM = "schedules"


@dataclass
class Process:
    """One `agentq up`: what it has decided and not done yet, and how wrong its clock is."""

    name: str
    ledger: ScheduleLedger
    skew_ms: int = 0
    planned: ScheduleFiring | None = None


@dataclass
class Known:
    """What is known of one schedule since its rule was seen: where it began and how it stood."""

    row: ScheduleRow
    began: ScheduleRow
    open_ids: frozenset[str] = frozenset()
    asked: int = 0
    asked_then: int = 0


@dataclass
class ScheduleWorld:
    """One history."""

    seed: int
    steps: int = 0
    known: dict[str, Known] = field(default_factory=dict)
    counted: dict[str, set[str]] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    #: By schedule: what was decided about it, perhaps before its file was written anew.
    fired_by: dict[str, ScheduleFiring] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = Random(f"schedules {self.seed}")
        self.zone, night = self.rng.choice(NIGHTS)
        self.start = occurrences.read_moment(night, self.zone)
        self.clock = VirtualClock()
        self.clock.at = self.start + self.rng.randrange(6 * HOUR)
        self.store = SqliteStore(":memory:", create=True, clock=self.clock.now, ring=lambda _: None)
        self.faults = FaultyStore(self.store, self.rng, NO_FAULTS)
        self.work = Ledger(self.store, self.rng.random)
        self.files = {
            f"s{number}": self._some_file(f"s{number}")
            for number in range(self.rng.randrange(1, 4))
        }
        self.processes = [self._process(number) for number in range(self.rng.randrange(2, 4))]

    def _process(self, number: int) -> Process:
        skew = self.rng.choice((0, 0, -5 * MINUTE, 10 * MINUTE))
        return Process(f"up-{number}", ScheduleLedger(self.faults, SpecCache()), skew)

    def _some_file(self, name: str) -> Schedule:
        rng = self.rng
        if rng.random() < 0.75:
            timing = Timing(cron=rng.choice(CRONS), zone=self.zone)
        else:
            timing = Timing(every_ms=rng.choice((10, 45, 180)) * MINUTE)
        if rng.random() < 0.2:
            timing = replace(timing, until_at=self.start + rng.randrange(2 * DAYS) * 12 * HOUR)
        return Schedule(
            name, Path(f"{name}.md"), timing, "worker", instructions="x",
            catch_up=rng.choice(list(CatchUp)), overlap=rng.choice(list(Overlap)),
        )  # fmt: skip

    # -- what happens ----------------------------------------------------------------------------

    def run(self) -> None:
        """Play the history; raises `Violation` if a promise is broken."""
        rng, end = self.rng, self.rng.randrange(60, 160)
        deeds = (self._time, self._daemon, self._worker, self._people, self._edit, self._die)
        try:
            self._step(self._declare)
            self.faults.rates = FaultRates.draw(rng)
            while self.steps < end:
                self._step(rng.choices(deeds, (30, 45, 12, 5, 3, 3))[0])
            self._heal()
        finally:
            self.store.close()

    def _step(self, deed: Any) -> None:
        self.steps += 1
        try:
            deed()
        except (Unavailable, TimedOut):
            self.seen["fault"] += 1
        except AgentqError as error:
            if error.code not in ("early", "repeated", "broken_schedule"):
                raise Violation(OCCURRENCES, f"refused: {error}") from error
            self.seen[error.code] += 1
        self._check()

    def _time(self) -> None:
        rng = self.rng
        scale = rng.choice((30 * SECOND, 5 * MINUTE, 20 * MINUTE, HOUR, HOUR, 7 * HOUR))
        pause = rng.randrange(scale)
        wakes = [row.wake_at for row in self._rows() if row.wake_at > self.clock.at]
        if wakes and rng.random() < 0.5:
            pause = min(wakes) - self.clock.at + rng.randrange(-1, MINUTE)
        left = self.start + (DAYS - 1) * 24 * HOUR - self.clock.at
        self.clock.at += min(pause, max(left, 0))
        if rng.random() < 0.03:
            self.clock.at -= rng.randrange(10 * MINUTE)  # the database's own clock is set back

    def _daemon(self) -> None:
        """Lead, decide, and do it: at once, or after others have had their turn."""
        rng, process = self.rng, self.rng.choice(self.processes)
        if process.planned is not None:
            late, process.planned = process.planned, None
            self._fire(process, late)
            return
        leases = LeaderLeases(self.faults)
        held = leases.hold([TERM], process.name, TERM_MS)[TERM]
        if held.holder != process.name and rng.random() < 0.8:
            return
        self.seen[f"led by {process.name}"] += 1
        firing = self._plan(process)
        if firing is None:
            return
        if rng.random() < 0.3:
            process.planned = firing  # paused, just now
        else:
            self._fire(process, firing)

    def _fire(self, process: Process, firing: ScheduleFiring) -> None:
        self.fired_by[firing.name] = firing
        process.ledger.fire(firing)

    def _plan(self, process: Process) -> ScheduleFiring | None:
        now = self.clock.at + process.skew_ms
        due = [each for each in process.ledger.waking(10) if each.wake_at <= now]
        if not due:
            return None
        state, file = due[0], self.files[due[0].name]
        if file.timing.rule != state.rule:
            process.ledger.declare([self._declared(file)], ())
            return None
        return plan_firing(file, state, now, Path("nowhere")).firing

    def _declared(self, file: Schedule) -> DeclaredSchedule:
        since = self.clock.at // 1000 * 1000
        next_at = occurrences.next_after(file.timing, self.clock.at, since)
        return DeclaredSchedule(file.name, file.timing.rule, since, next_at, "x")

    def _declare(self) -> None:
        declared = [self._declared(file) for file in self.files.values()]
        self.processes[0].ledger.declare(declared, ())

    def _worker(self) -> None:
        for held in self.work.claim("worker", self.rng.randrange(1, 4), "w", HOUR):
            if self.rng.random() < 0.8:
                self.work.apply(held.key, Report(held.task.epoch, "done"))

    def _people(self) -> None:
        name, change = self.rng.choice(list(self.files)), self.rng.choice(list(ScheduleChange))
        self.rng.choice(self.processes).ledger.change(name, change)

    def _edit(self) -> None:
        name = self.rng.choice(list(self.files))
        if self.rng.random() < 0.5:
            broken = DeclaredSchedule(name, digest="x", problem="broken")
            self.processes[-1].ledger.declare([broken], ())
        else:
            self.files[name] = self._some_file(name)
            self.processes[-1].ledger.declare([self._declared(self.files[name])], ())

    def _die(self) -> None:
        number = self.rng.randrange(len(self.processes))
        self.processes[number] = self._process(number)

    def _heal(self) -> None:
        """Once faults stop, everything that is due is decided."""
        self.faults.rates = NO_FAULTS
        process = Process("last", ScheduleLedger(self.faults, SpecCache()))
        for file in self.files.values():
            process.ledger.declare([self._declared(file)], ())
            process.ledger.change(file.name, ScheduleChange.RESUME)
        self._check()
        for _ in range(200):
            firing = self._plan(process)
            if firing is None:
                break
            self._fire(process, firing)
            self._check()
        for row in self._rows():
            # One that was asked for before the clock went back is due when it is there again.
            asked = row.ran_at < row.asked_at <= self.clock.at
            if 0 < row.next_at <= self.clock.at or asked:
                raise Violation(OCCURRENCES, f"{row.name} is still due: {row}")

    # -- what must hold --------------------------------------------------------------------------

    def _rows(self) -> list[ScheduleRow]:
        return self.store.read(lambda reader: reader.schedules())

    def _check(self) -> None:
        database = self.store._writer
        tasks: dict[str, dict[str, tuple[int, int]]] = {name: {} for name in self.files}
        query = "SELECT s.id, s.submitted_at, t.state FROM specs s JOIN tasks t ON t.key = s.key"
        found: list[tuple[Any, ...]] = database.execute(query).fetchall()
        for task_id, at, state in found:
            tasks[task_id.split("-")[1]][task_id] = (at, state)
        for row in self._rows():
            known = self.known.get(row.name)
            if known is None or known.row.rule != row.rule:
                known = self.known[row.name] = Known(
                    row, row, frozenset(), known.asked if known else 0, known.asked if known else 0
                )
                self._check_begin(row)
            self._check_row(row, known, tasks[row.name])

    def _check_begin(self, row: ScheduleRow) -> None:
        expected = next((at for at in self._expected(row) if at > self.clock.at), 0)
        if row.next_at != expected:
            raise Violation(OCCURRENCES, f"{row.name} begins at {row.next_at}, not at {expected}")

    def _expected(self, row: ScheduleRow) -> tuple[int, ...]:
        return reference(row.rule, row.since_at, self.start)

    def _check_row(self, row: ScheduleRow, known: Known, tasks: dict[str, tuple[int, int]]) -> None:
        asked = sum(task_id.endswith("-asked") for task_id in tasks)
        counted = self.counted.setdefault(row.name, set())
        new = [task_id for task_id in tasks if task_id not in counted]
        for task_id in new:
            self._check_task(row, known, task_id, tasks[task_id][0])
        counted.update(new)
        if row.fired != len(tasks):
            raise Violation(
                OCCURRENCES, f"{row.name} fired {row.fired}, and has {len(tasks)} tasks"
            )
        expected = self._expected(row)
        if row.next_at and row.next_at not in expected:
            raise Violation(OCCURRENCES, f"{row.name} waits for {row.next_at}: no occurrence")
        began, until = known.began, row.next_at or 2**60
        passed = sum(began.next_at <= at < until for at in expected) if began.next_at else 0
        fired = row.fired - began.fired - (asked - known.asked_then)
        decided = fired + row.skipped - began.skipped
        if decided != passed:
            raise Violation(
                OCCURRENCES, f"{row.name}: {passed} occurrences have passed, {decided} are decided"
            )
        known.row, known.asked = row, asked
        known.open_ids = frozenset(name for name, (_, state) in tasks.items() if state < OVER)

    def _check_task(self, row: ScheduleRow, known: Known, task_id: str, at: int) -> None:
        if task_id.endswith("-asked"):
            self.seen["asked"] += 1
            return
        moments = {occurrences_stamp(each): each for each in self._expected(row)}
        moment = moments.get(task_id.split("-")[2])
        if moment is None:
            raise Violation(OCCURRENCES, f"{task_id} is of no occurrence of {row.rule}")
        if at < moment:
            raise Violation(OCCURRENCES, f"{task_id} came {moment - at} ms early")
        if known.row.paused:
            raise Violation(OCCURRENCES, f"{task_id} came while {row.name} was paused")
        overlap = self.fired_by[row.name].overlap
        if overlap is Overlap.SKIP and known.open_ids:
            raise Violation(OCCURRENCES, f"{task_id} overlaps {sorted(known.open_ids)}")
        self.seen[f"fired {self.files[row.name].catch_up} {overlap}"] += 1


@lru_cache(maxsize=100_000)
def occurrences_stamp(at: int) -> str:
    """How a task's id names its occurrence."""
    return occurrences.iso(at).replace("-", "").replace(":", "")[:15]
