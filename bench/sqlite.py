"""SQLite: agentq beside plain apsw and huey."""

from __future__ import annotations

from bench.options import Options
from bench.report import Report, Target, progress
from bench.throughput import Load, measure_round

MINE, RAW, HUEY = "agentq_sqlite", "raw_sqlite", "huey"

TARGETS = [
    Target("sqlite submit", MINE, ">=", 0.9, against=HUEY),
    Target("sqlite bulk by 100", MINE, ">=", 0.12, against=RAW),
    Target("sqlite bulk by 1000", MINE, ">=", 0.12, RAW, "sqlite bulk by 100"),
    # huey takes tasks one at a time; there is one drain of it to compare both of ours with.
    Target("sqlite drain by 1", MINE, ">=", 0.9, HUEY, "sqlite drain"),
    Target("sqlite drain", MINE, ">=", 7.0, against=HUEY),
]


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    full = Load(options.singles, options.bulk, options.bulk, lone_drain=True)
    loads = {RAW: full, MINE: full, HUEY: Load(options.singles, 0, 0)}
    for number in range(options.rounds):
        progress(f"sqlite, round {number + 1} of {options.rounds}")
        measure_round(report, "sqlite", loads, number, None)
