"""What a worker adds to the work itself: per task, to parallel agents, and while many are quiet.

Everything runs as a user would: `agentq worker` as a process of its own, on SQLite, with
programs whose own run time is measured beside it in the same round.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from agentq import Queue
from bench.options import Options
from bench.report import Report, Target, progress
from bench.startup import clean_environment

ROLE = "bench"
OVERHEAD, PARALLEL = "supervision of a trivial task", "three agents of 3.5 s"
QUIET_CPU, QUIET_RSS, QUIET_LOST = "200 quiet agents: CPU", "200 quiet agents: RSS", \
    "200 quiet agents: leases lost"  # fmt: skip
WORKER = "agentq worker"
BARE = "the same, bare"
AGENT_SECONDS = 3.5

TARGETS = [
    Target(OVERHEAD, WORKER, "<=", 25.0),
    Target(PARALLEL, WORKER, "<=", 1.03, against=BARE),
    Target(QUIET_CPU, WORKER, "<=", 25.0),
    Target(QUIET_RSS, WORKER, "<=", 200.0),
    Target(QUIET_LOST, WORKER, "<=", 0.0),
]


class Place:
    """An installation in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = clean_environment()
        self.agentq = str(Path(sys.executable).parent / "agentq")
        subprocess.run(
            [self.agentq, "init"], cwd=folder, env=self.environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.queue = Queue(f"sqlite:///{folder}/.agentq/ledger.db")

    @contextlib.contextmanager
    def worker(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [self.agentq, "worker", ROLE, *words], cwd=self.folder, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    folder = Path(tempfile.mkdtemp(prefix="aqb-"))
    try:
        place = Place(folder)
        progress("workers")
        for number in range(options.rounds):
            measure_overhead(report, place, number, options.trivial_tasks)
            measure_parallel(report, place, number)
        measure_quiet(report, place, options)
        place.queue.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def span(place: Place, task_id: str) -> float:
    """Milliseconds from claimed to completed, by the log."""
    at = {entry.event.kind: entry.event.at for entry in place.queue.history(task_id)}
    return float(at["completed"] - at["claimed"])


def measure_overhead(report: Report, place: Place, number: int, count: int) -> None:
    program = ["/bin/sh", "-c", "cat > /dev/null; echo done"]
    alone = []
    for _ in range(count):
        started = time.perf_counter()
        subprocess.run(program, input=b"task\n", capture_output=True, check=True)
        alone.append((time.perf_counter() - started) * 1e3)
    ids = []
    with place.worker("--", *program):
        for _ in range(count):
            task = place.queue.submit(to=ROLE, instructions="be quick")
            place.queue.wait(task.id, 30)
            ids.append(task.id)
    spans = [span(place, task_id) for task_id in ids]
    report.add(OVERHEAD, WORKER, number, median(spans) - median(alone), "ms")


def measure_parallel(report: Report, place: Place, number: int) -> None:
    """From the first submit to the last completion, beside the same three programs run bare."""
    program = ["/bin/sh", "-c", f"cat > /dev/null; sleep {AGENT_SECONDS}; echo done"]
    started = time.perf_counter()
    bare = [
        subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(3)
    ]
    for each in bare:
        each.wait()
    slowest = time.perf_counter() - started
    health = place.folder / f"health-{number}"
    with place.worker("--slots", "3", "--health", str(health), "--", *program):
        while not health.exists():  # a worker that is up, as workers are
            time.sleep(0.01)
        started = time.perf_counter()
        ids = [place.queue.submit(to=ROLE, instructions="work").id for _ in range(3)]
        for task_id in ids:
            place.queue.wait(task_id, 60)
        wall = time.perf_counter() - started
    report.add(PARALLEL, WORKER, number, wall, "s")
    report.add(PARALLEL, BARE, number, slowest, "s")


def measure_quiet(report: Report, place: Place, options: Options) -> None:
    count = options.quiet_agents
    tasks = [{"to": ROLE, "instructions": f"wait {i}"} for i in range(count)]
    ids = [task.id for task in place.queue.submit_many(tasks)]
    with place.worker("--slots", str(count), "--grace", "1s", "--", "/bin/sleep", "600") as process:
        deadline = time.monotonic() + 120
        while sum(task.state == "in_progress" for task in _states(place, ids)) < count:
            if time.monotonic() > deadline:
                report.fail(f"{WORKER}: not all of {count} agents were started")
                return
            time.sleep(0.2)
        before, started = _cpu_seconds(process.pid), time.monotonic()
        time.sleep(options.idle_seconds)
        used = _cpu_seconds(process.pid) - before
        share = 100 * used / (time.monotonic() - started)
        resident = _resident_megabytes(process.pid)
        lost = sum(task.state != "in_progress" for task in _states(place, ids))
    report.add(QUIET_CPU, WORKER, 0, share, "% of a core")
    report.add(QUIET_RSS, WORKER, 0, resident, "MB")
    report.add(QUIET_LOST, WORKER, 0, float(lost), "leases")


def _states(place: Place, ids: list[str]) -> list:  # type: ignore[type-arg]
    return [place.queue.task(each) for each in ids]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
