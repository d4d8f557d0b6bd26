"""Agents with profiles beside a plain role: from submit to the start of an agent, and idle.

Both sides are processes on one ledger, submitted to in turn. Every task for an agent is for another
one, which had neither a thread nor anything else until then.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench.latency import cpu_seconds
from bench.options import Options
from bench.report import Report, Target, progress
from bench.workers import ROLE, Place

START, IDLE = "ready → agent spawned p50", "agents without work: CPU"
AGENT, PLAIN = "an agent of many", "a plain role"
GAP_SECONDS = 0.3
SETTLE_SECONDS = 8.0

TARGETS = [
    Target(START, AGENT, "<=", 1.2, against=PLAIN),
    Target(IDLE, AGENT, "<=", 2.0),
]


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    folder = Path(tempfile.mkdtemp(prefix="aqb-"))
    try:
        place = Place(folder)
        hire(folder, options.profiles)
        progress(f"organisation of {options.profiles} agents")
        with ExitStack() as stack:
            stack.enter_context(place.worker("--", *program(folder)))
            pool = stack.enter_context(running_pool(place))
            for side in (ROLE, "agent-0"):  # both have been at work before they are measured
                started(place, side)
            agents = iter(range(1, options.profiles))
            for number in range(options.rounds):
                measure_starts(report, place, agents, number, options.trivial_tasks)
            time.sleep(SETTLE_SECONDS)
            progress(f"{options.profiles} idle agents, watched for {options.idle_seconds:.0f} s")
            before, begun = cpu_seconds(pool.pid), time.monotonic()
            time.sleep(options.idle_seconds)
            share = 100 * (cpu_seconds(pool.pid) - before) / (time.monotonic() - begun)
            report.add(IDLE, AGENT, 0, share, "% of a core")
        place.queue.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def program(folder: Path) -> list[str]:
    """Writes down when it began."""
    return ["/bin/sh", "-c", f"date +%s%N > {folder}/start; cat > /dev/null; echo done"]


def hire(folder: Path, count: int) -> None:
    agents = folder / "agents"
    agents.mkdir()
    words = ", ".join(f'"{word}"' for word in program(folder))
    for number in range(count):
        (agents / f"agent-{number}.md").write_text(
            f"---\ntool: command\ncommand: [{words}]\nmanager: agent-{number // 8}\n---\n"
            f"You are agent {number}.\n"
        )


@contextmanager
def running_pool(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """The process of all agents, once it is up."""
    health = place.folder / "health"
    words = [place.agentq, "worker", "--agents", "--health", str(health), "--grace", "1s"]
    with (place.folder / "pool.log").open("ab") as log:
        process = subprocess.Popen(
            words, cwd=place.folder, env=place.environment, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        while not health.exists():
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(60)


def measure_starts(
    report: Report, place: Place, agents: Iterator[int], number: int, count: int
) -> None:
    pauses = random.Random(number)
    waits: dict[str, list[float]] = {AGENT: [], PLAIN: []}
    for _ in range(count):
        for side, role in ((AGENT, f"agent-{next(agents)}"), (PLAIN, ROLE)):
            time.sleep(GAP_SECONDS * pauses.uniform(0.5, 1.5))
            waits[side].append(started(place, role))
    for side, found in waits.items():
        report.add(START, side, number, median(found), "ms")


def started(place: Place, role: str) -> float:
    """Milliseconds from the submit to the start of the program; waits for its end."""
    begun = time.time_ns()
    task = place.queue.submit(to=role, instructions="be quick")
    place.queue.wait(task.id, 60)
    return (int((place.folder / "start").read_text()) - begun) / 1e6
