"""PostgreSQL: agentq beside plain psycopg, PgQueuer, Procrastinate and DBOS."""

from __future__ import annotations

from bench.options import Options
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres
from bench.throughput import Load, measure_round

MINE, RAW, PGQUEUER, PROCRASTINATE = "agentq_pg", "raw_pg", "pgqueuer", "procrastinate"

TARGETS = [
    Target("pg submit", MINE, ">=", 1.0, against=PGQUEUER),
    Target("pg bulk by 100", MINE, ">=", 0.5, against=PGQUEUER),
    Target("pg bulk by 1000", MINE, ">=", 0.5, against=PGQUEUER),
    Target("pg drain", MINE, ">=", 1.1, against=PGQUEUER),
    # Procrastinate takes jobs one at a time.
    Target("pg drain by 1", MINE, ">=", 1.2, PROCRASTINATE, "pg drain"),
]


def loads_for(options: Options) -> dict[str, Load]:
    """The fast sides drain the whole backlog, because PgQueuer slows down as it grows."""
    by_100 = min(5_000, options.backlog // 4)
    by_1000 = max(1_000, options.backlog - options.singles * 4 // 3 - by_100)
    few = options.slow_peer_tasks
    full = Load(options.singles, by_100, by_1000)
    with_lone_drain = Load(options.singles, by_100, by_1000, lone_drain=True)
    return {
        RAW: with_lone_drain,
        MINE: with_lone_drain,
        PGQUEUER: full,
        PROCRASTINATE: Load(few // 2, few // 2, 1_000),
        "dbos": Load(few // 4, few // 4, 0),
    }


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    loads = loads_for(options)
    with PrivatePostgres.started() as postgres:
        report.conditions["PostgreSQL"] = postgres.show("server_version")
        for number in range(options.rounds):
            progress(f"postgres, round {number + 1} of {options.rounds}")
            measure_round(report, "pg", loads, number, postgres)
