"""SQLite: agentq beside plain apsw and huey."""

from __future__ import annotations

from bench.options import Options
from bench.report import Report, Target, progress
from bench.throughput import Load, measure_round

MINE, RAW, HUEY = "agentq_sqlite", "raw_sqlite", "huey"

TARGETS = [
    Target("sqlite submit", MINE, ">=", 0.7, against=RAW),
    Target("sqlite submit", MINE, ">=", 1.0, against=HUEY),
    Target("sqlite bulk by 100", MINE, ">=", 0.2, against=RAW),
    Target("sqlite bulk by 1000", MINE, ">=", 0.2, RAW, "sqlite bulk by 100"),
    Target("sqlite drain", MINE, ">=", 4.0, against=HUEY),
]


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    full = Load(options.singles, options.bulk, options.bulk, lone_drain=True)
    loads = {RAW: full, MINE: full, HUEY: Load(options.singles, 0, 0)}
    for number in range(options.rounds):
        progress(f"sqlite, round {number + 1} of {options.rounds}")
        measure_round(report, "sqlite", loads, number, None)
