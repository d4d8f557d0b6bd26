"""From the submit call to the start of the body in a process that was idle, and what idling costs.

The sides whose ratio counts are submitted to in turn, a few tens of milliseconds apart, each
with its own idle worker process, so that all meet the same machine at nearly the same moment.
The peers follow in the same way among themselves.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from bench.body import read_starts
from bench.host import SideFailed, SideProcess
from bench.options import Options, rotated
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres, fresh_place
from bench.side import Place

GAP_SECONDS = 0.04
WARM_UPS = 5
ARRIVAL_LIMIT_SECONDS = 30.0
SETTLE_SECONDS = 3.0

CONTEST = {"sqlite": ["raw_sqlite", "agentq_sqlite"], "pg": ["raw_pg", "agentq_pg", "pgqueuer"]}
PEERS = {"sqlite": ["huey"], "pg": ["procrastinate", "dbos"]}

TARGETS = [
    Target("sqlite latency p50", "agentq_sqlite", "<=", 1.3, against="raw_sqlite"),
    Target("sqlite latency p99", "agentq_sqlite", "<=", 20.0),
    Target("sqlite idle CPU", "agentq_sqlite", "<=", 0.5),
    Target("pg latency p50", "agentq_pg", "<=", 1.0, against="pgqueuer"),
    Target("pg latency p99", "agentq_pg", "<=", 20.0),
    Target("pg idle CPU", "agentq_pg", "<=", 0.5),
]


@dataclass
class Pair:
    """One side's idle worker and the process that submits to it."""

    name: str
    place: Place
    worker: SideProcess
    submitter: SideProcess

    @classmethod
    def started(cls, name: str, postgres: PrivatePostgres | None, stack: ExitStack) -> Pair:
        place = stack.enter_context(fresh_place(postgres))
        worker = stack.enter_context(SideProcess(name, place, role="worker"))
        worker.call("create")
        worker.call("serve")
        submitter = stack.enter_context(SideProcess(name, place, role="submitter"))
        submitter.call("connect")
        return cls(name, place, worker, submitter)

    def arrived(self, numbers: range) -> dict[int, int]:
        """Wait for the bodies of these tasks and give the moment each began."""
        deadline = time.monotonic() + ARRIVAL_LIMIT_SECONDS
        while True:
            starts = read_starts(self.place.body_file)
            if all(number in starts for number in numbers):
                return starts
            if time.monotonic() > deadline:
                missing = sum(number not in starts for number in numbers)
                raise SideFailed(f"{self.name}: {missing} of {len(numbers)} tasks never ran")
            time.sleep(0.02)

    def warm_up(self) -> None:
        for number in range(WARM_UPS):
            self.submitter.call("submit_stamped", number=number)
            self.arrived(range(number, number + 1))


def start_pairs(
    sides: list[str], postgres: PrivatePostgres | None, stack: ExitStack, report: Report
) -> list[Pair]:
    pairs = []
    for side in sides:
        try:
            pair = Pair.started(side, postgres, stack)
            pair.warm_up()
            pairs.append(pair)
        except SideFailed as failure:
            report.fail(str(failure), failure.log)
    return pairs


def measure_latency(report: Report, store: str, pairs: list[Pair], count: int, turn: int) -> None:
    numbers = range(WARM_UPS, WARM_UPS + count)
    pauses = random.Random(turn)
    submitted: dict[str, dict[int, int]] = {pair.name: {} for pair in pairs}
    for number in numbers:
        for pair in pairs:
            # An even beat could fall in step with a peer's polling, hence the uneven gaps.
            time.sleep(GAP_SECONDS * pauses.uniform(0.5, 1.5))
            submitted[pair.name][number] = pair.submitter.call("submit_stamped", number=number)
    for pair in pairs:
        try:
            began = pair.arrived(numbers)
        except SideFailed as failure:
            report.fail(str(failure), failure.log)
            continue
        waits = sorted((began[n] - submitted[pair.name][n]) / 1e6 for n in numbers)
        report.add(f"{store} latency p50", pair.name, turn, median(waits), "ms")
        late = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
        report.add(f"{store} latency p99", pair.name, turn, late, "ms")


def cpu_seconds(pid: int) -> float:
    """Time on a processor of all threads of a process, in nanoseconds' resolution on Linux."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except OSError:
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)


def measure_idle(
    report: Report, options: Options, postgres: PrivatePostgres, stores: list[str]
) -> None:
    """All workers idle side by side in one window; an idle process disturbs nobody."""
    with ExitStack() as stack:
        found: list[tuple[str, Pair]] = []
        for store in stores:
            server = postgres if store == "pg" else None
            sides = CONTEST[store] + PEERS[store]
            found += [(store, pair) for pair in start_pairs(sides, server, stack, report)]
        time.sleep(SETTLE_SECONDS)
        progress(f"idle workers, watched for {options.idle_seconds:.0f} s")
        before = [cpu_seconds(pair.worker.pid) for _, pair in found]
        time.sleep(options.idle_seconds)
        for (store, pair), earlier in zip(found, before, strict=True):
            share = 100 * (cpu_seconds(pair.worker.pid) - earlier) / options.idle_seconds
            report.add(f"{store} idle CPU", pair.name, 0, share, "% of a core")


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    stores = list(CONTEST)
    with PrivatePostgres.started() as postgres:
        for turn in range(options.rounds):
            progress(f"latency, round {turn + 1} of {options.rounds}")
            for store in stores:
                server = postgres if store == "pg" else None
                for sides in (CONTEST[store], PEERS[store]):
                    with ExitStack() as stack:
                        pairs = start_pairs(rotated(sides, turn), server, stack, report)
                        measure_latency(report, store, pairs, options.latency_tasks, turn)
        measure_idle(report, options, postgres, stores)
