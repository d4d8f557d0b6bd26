"""What do schedules cost that are not due? The share of a core that an idle `agentq up` uses.

With five thousand schedule files, no two alike (cron in a dozen zones, intervals, once; tasks and
labels of their own), and with none, side by side: each in a process of its own, at the same time.
How long the first look at all of them takes is measured too.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from agentq import Queue
from agentq.core.access import SYSTEM
from bench.options import Options
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres, fresh_place
from bench.side import Place
from bench.startup import clean_environment

STORES = ("sqlite", "pg")
#: Percent of a core.
SHARE_MAX = 2.0
ZONES = (
    "UTC", "Europe/Berlin", "Europe/London", "America/New_York", "America/Sao_Paulo", "Asia/Tokyo",
    "Asia/Kolkata", "Australia/Sydney", "Australia/Lord_Howe", "Africa/Lagos", "Pacific/Auckland",
    "America/Los_Angeles",
)  # fmt: skip
#: Nothing is due while the clock runs.
_FAR_DAYS = "1 1"

TARGETS = [
    Target(f"{store} idle share of a core", "with schedules", "<=", SHARE_MAX) for store in STORES
]


def write_schedules(folder: Path, count: int) -> None:
    """So many files beside agentq.toml."""
    (folder / "schedules").mkdir(exist_ok=True)
    for number in range(count):
        (folder / "schedules" / f"s{number:05}.md").write_text(_schedule(Random(number), number))


def _schedule(rng: Random, number: int) -> str:
    when = rng.choice(
        (
            f"cron: {rng.randrange(60)} {rng.randrange(24)} {_FAR_DAYS} *",
            f"cron: '*/{rng.randrange(5, 30)} {rng.randrange(24)} {_FAR_DAYS} *'",
            f"every: {rng.randrange(2, 60)}d",
            f"at: 20{rng.randrange(40, 99)}-0{rng.randrange(1, 10)}-1{rng.randrange(10)}T08:00",
        )
    )
    return (
        f"---\n{when}\nzone: {rng.choice(ZONES)}\nrole: role-{number % 7}\n"
        f"priority: {rng.choice(('low', 'normal', 'high'))}\nlabels: {{lot: l{number % 31}}}\n---\n"
        f"Look after {number}: {' '.join(f'word{rng.randrange(999)}' for _ in range(40))}.\n"
    )


def start_up(place: Place) -> subprocess.Popen[bytes]:
    agentq = Path(sys.executable).parent / "agentq"
    return subprocess.Popen(
        [str(agentq), "up", "--no-workers", "--no-http"], cwd=place.folder,
        env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_store(
    report: Report, options: Options, store: str, postgres: PrivatePostgres | None
) -> None:
    with ExitStack() as stack:
        running: dict[str, subprocess.Popen[bytes]] = {}
        for side, count in (("without", 0), ("with schedules", options.schedules)):
            place = stack.enter_context(fresh_place(postgres))
            queue = stack.enter_context(Queue.create(place.url))
            (place.folder / "agentq.toml").write_text(
                f'[ledger]\nurl = "{place.url}"\n[artifacts]\nroot = "files"\n'
            )
            write_schedules(place.folder, count)
            started = time.perf_counter()
            running[side] = start_up(place)
            stack.callback(running[side].wait)
            stack.callback(running[side].terminate)
            service = queue._client.service  # noqa: SLF001 - no command says it this often
            while len(service.schedules(SYSTEM)) < count:
                time.sleep(0.1)
            if count:
                taken = time.perf_counter() - started
                report.add(f"{store} first look", side, 0, taken, "s")
        time.sleep(6.0)  # the first rounds of the loops
        for number in range(options.rounds):
            before = {side: cpu_seconds(process) for side, process in running.items()}
            began = time.perf_counter()
            time.sleep(options.idle_seconds)
            for side, process in running.items():
                used = cpu_seconds(process) - before[side]
                share = 100 * used / (time.perf_counter() - began)
                report.keep(f"{store} idle share of a core", side, number, share, "%")
        for side in running:
            progress(
                f"  {store} idle: {side} {report.spread(f'{store} idle share of a core', side)} %"
            )


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    measure_store(report, options, "sqlite", None)
    with PrivatePostgres.started() as postgres:
        measure_store(report, options, "pg", postgres)
