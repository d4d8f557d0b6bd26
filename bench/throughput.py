"""Submit one by one, submit in bulk, drain: one row of one side on one fresh database."""

from __future__ import annotations

from dataclasses import dataclass

from bench.host import SideFailed, SideProcess
from bench.report import Report
from bench.servers import PrivatePostgres, fresh_place

PER_SECOND = "tasks/s"
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
    def total(self) -> int:
        return self.warm_up + self.singles + self.bulk_by_100 + self.bulk_by_1000


def measure_row(
    report: Report,
    store: str,
    side: str,
    *,
    load: Load,
    round_number: int,
    postgres: PrivatePostgres | None,
) -> None:
    try:
        with fresh_place(postgres) as place, SideProcess(side, place) as process:
            process.call("create")
            waiting = fill(report, store, process, load, round_number)
            if load.lone_drain:
                alone = max(100, int(load.total * LONE_DRAIN_SHARE))
                seconds = process.call("drain", count=alone, batch=1)
                report.add(f"{store} drain by 1", side, round_number, alone / seconds, PER_SECOND)
                waiting -= alone
            seconds = process.call("drain", count=waiting, batch=100)
            report.add(f"{store} drain", side, round_number, waiting / seconds, PER_SECOND)
    except SideFailed as failure:
        report.fail(str(failure), failure.log)


def fill(report: Report, store: str, process: SideProcess, load: Load, round_number: int) -> int:
    """Submit the whole load, timing each way of doing it; the number of tasks now waiting."""
    # The first commits grow new files and fill caches of statements: not what a queue in use does.
    process.call("submit_each", count=load.warm_up)
    seconds = process.call("submit_each", count=load.singles)
    report.add(f"{store} submit", process.name, round_number, load.singles / seconds, PER_SECOND)
    waiting = load.warm_up + load.singles
    for count, batch in ((load.bulk_by_100, 100), (load.bulk_by_1000, 1000)):
        if count == 0:
            continue
        seconds = process.call("submit_bulk", count=count, batch=batch)
        if seconds is not None:
            figure = f"{store} bulk by {batch}"
            report.add(figure, process.name, round_number, count / seconds, PER_SECOND)
            waiting += count
    return waiting
