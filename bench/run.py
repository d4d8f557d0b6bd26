"""Runs the benchmarks: `python bench/run.py [--only NAME …] [--quick] [--json FILE]`."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import signal
import sys
import time
from pathlib import Path

import apsw

from agentq.core.values import replace

# Run as a file, Python looks for modules in this folder; the package is one above.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.options import Options  # noqa: E402
from bench.report import Report, progress  # noqa: E402

SUBJECTS = [
    *("sqlite", "postgres", "processes", "rabbit", "latency", "growth", "startup", "leases"),
    *("workers", "workspaces", "apply", "http", "hooks", "overview", "graphs", "schedules"),
    *("organisation", "board", "proofs"),
]
PACKAGES = [
    *("apsw", "psycopg", "amqp", "huey", "pgqueuer", "procrastinate", "dbos"),
    *("celery", "dramatiq", "taskiq", "fastapi", "uvicorn"),
]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure agentq beside the raw drivers and its peers, as ratios.",
        epilog="How to read the result: bench/README.md",
    )
    parser.add_argument("--only", nargs="+", choices=SUBJECTS, default=SUBJECTS, metavar="NAME",
                        help=f"which subjects: {', '.join(SUBJECTS)}")  # fmt: skip
    parser.add_argument("--quick", action="store_true",
                        help="a small pass of a minute or two: does everything run?")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="rounds of each subject (default 5)")
    parser.add_argument("--backlog", type=int, help="tasks waiting before the PostgreSQL drain")
    parser.add_argument("--history", type=int, help="finished tasks kept in the growth subject")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    return parser.parse_args()


def chosen_options(arguments: argparse.Namespace) -> Options:
    options = Options.quick() if arguments.quick else Options()
    given = {
        name: getattr(arguments, name)
        for name in ("rounds", "backlog", "history")
        if getattr(arguments, name) is not None
    }
    for name, value in given.items():
        if value < 1:
            sys.exit(f"--{name}: expected a number of at least 1, got {value}")
    if "rounds" in given:
        given["broker_rounds"] = given["rounds"]
    return replace(options, **given)


def describe_conditions(options: Options) -> dict[str, str]:
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return {
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"load before the run {load}",
        "Python": platform.python_version(),
        "SQLite": f"{apsw.sqlite_lib_version()} (apsw)",
        "packages": ", ".join(versions),
        "rounds": f"{options.rounds} (rabbit {options.broker_rounds})",
        "tasks": "no two alike: see bench/tasks.py",
    }


def main() -> None:
    arguments = parse_arguments()
    options = chosen_options(arguments)
    report = Report(describe_conditions(options))
    started = time.monotonic()
    # A polite kill must also stop the server and the workers, so let it unwind like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for name in arguments.only:
            importlib.import_module(f"bench.{name}").run(options, report)
    except KeyboardInterrupt:
        progress("interrupted; what was measured so far:")
    report.conditions["took"] = f"{time.monotonic() - started:.0f} s"
    print(report.text())
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report.as_json(), indent=1) + "\n")
    sys.exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
