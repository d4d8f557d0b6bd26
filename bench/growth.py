"""Does a long history slow the queue down? Drain with a million finished tasks kept, and with none.

The database with the history is built once and stays open; in every round fresh tasks are put
into it and into an empty one, and both are drained in turn. The raw limit goes the same way and
shows how much of a difference is only noise.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.host import SideFailed, SideProcess
from bench.options import Options
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres, fresh_place

STORES = {"sqlite": ["raw_sqlite", "agentq_sqlite"], "pg": ["raw_pg", "agentq_pg"]}
EMPTY, FULL = "drain, no history", "drain, with history"

TARGETS = [
    Target(f"{store} {FULL}", mine, ">=", 0.85, mine, f"{store} {EMPTY}")
    for store, (_, mine) in STORES.items()
]


def measure_drain(process: SideProcess, count: int) -> float:
    """Drain twice and time the second: a fresh process and file must be as warm as an old one."""
    process.call("submit_bulk", count=count, batch=1000)
    process.call("drain", count=count, batch=100)
    process.call("submit_bulk", count=count, batch=1000)
    seconds: float = process.call("drain", count=count, batch=100)
    return count / seconds


def measure_side(
    report: Report,
    options: Options,
    store: str,
    side: str,
    postgres: PrivatePostgres | None,
) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(fresh_place(postgres))
        grown = stack.enter_context(SideProcess(side, place))
        grown.call("create")
        progress(f"growth: {side}, making {options.history:,} finished tasks")
        started = time.monotonic()
        kept = grown.call("make_history", count=options.history)
        progress(
            f"growth: {side}, {kept:,} finished tasks made in {time.monotonic() - started:.0f} s"
        )
        for number in range(options.rounds):
            progress(f"growth: {side}, round {number + 1} of {options.rounds}")
            for figure in (EMPTY, FULL) if number % 2 == 0 else (FULL, EMPTY):
                if figure == FULL:
                    rate = measure_drain(grown, options.growth_tasks)
                else:
                    with fresh_place(postgres) as bare, SideProcess(side, bare) as fresh:
                        fresh.call("create")
                        rate = measure_drain(fresh, options.growth_tasks)
                report.add(f"{store} {figure}", side, number, rate, "tasks/s")


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    with PrivatePostgres.started() as postgres:
        for store, sides in STORES.items():
            for side in sides:
                server = postgres if store == "pg" else None
                try:
                    measure_side(report, options, store, side, server)
                except SideFailed as failure:
                    report.fail(str(failure), failure.log)
