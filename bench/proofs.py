"""What a log that is chained by digests costs, and how long it takes to prove it.

Two sides of the same agentq: one as it is, one whose events carry no digest. And `agentq verify`
of finished tasks, in a process of its own: of five thousand, and once of a million.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from agentq import Queue
from bench.options import Options
from bench.report import Report, Target, progress
from bench.servers import fresh_place
from bench.throughput import Load, measure_round

MINE, PLAIN = "agentq_sqlite", "agentq_sqlite_unchained"
SECONDS, EACH, MANY, MEMORY = "verify", "verify, a task", "verify, a task of many", "verify, memory"
#: How many tasks are submitted, claimed and completed at once while a ledger is filled.
_FILLED_AT_ONCE = 1000

TARGETS = [
    *(
        Target(f"chained {figure}", MINE, ">=", 0.95, against=PLAIN)
        for figure in ("submit", "bulk by 100", "drain by 1", "drain")
    ),
    Target(SECONDS, "agentq", "<=", 3.0),
    Target(MANY, "agentq", "<=", 1.2, "agentq", EACH),
    Target(MEMORY, "many tasks", "<=", 400),
]


@dataclass(frozen=True, slots=True)
class Proof:
    """How long a proof of everything took, and how much memory the process had at the most."""

    seconds: float
    megabytes: float


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    full = Load(options.singles, options.bulk, options.bulk, lone_drain=True)
    for number in range(options.rounds):
        progress(f"proofs, round {number + 1} of {options.rounds}")
        sides = {MINE: full, PLAIN: full}
        measure_round(report, "chained", sides, number, None, drain_in_turn=True)
        few = measure_proof(options.proved)
        report.add(SECONDS, "agentq", number, few.seconds, "s")
        report.add(EACH, "agentq", number, few.seconds / options.proved * 1e6, "µs")
        report.add(MEMORY, "agentq", number, few.megabytes, "MB")
    progress(f"proofs of {options.proved_most:,} tasks")
    many = measure_proof(options.proved_most)
    report.add(MANY, "agentq", 0, many.seconds / options.proved_most * 1e6, "µs")
    report.add(MEMORY, "many tasks", 0, many.megabytes, "MB")


def measure_proof(tasks: int) -> Proof:
    """Finish so many tasks, and prove them in another process."""
    with fresh_place(None) as place:
        with Queue.create(place.url) as queue:
            for first in range(0, tasks, _FILLED_AT_ONCE):
                count = min(_FILLED_AT_ONCE, tasks - first)
                queue.submit_many(
                    [{"to": "w", "instructions": f"task {first + n} " * 20} for n in range(count)]
                )
                claims = queue.claim_many("w", count)
                assert not queue.complete_many((each, f"done {each.id}") for each in claims)
        words = [sys.executable, "-m", "bench.proofs", place.url]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        seen, seconds, megabytes = said.split()
        assert int(seen) == tasks, f"{seen} of {tasks} tasks were proved"
        return Proof(float(seconds), float(megabytes))


def prove(url: str) -> None:
    """Prove everything in a ledger; print how many tasks, in how many seconds and megabytes."""
    with Queue(url) as queue:
        started = time.perf_counter()
        pages = list(queue.admin.verify())
        seconds = time.perf_counter() - started
        found = [problem for _, problems in pages for problem in problems]
        assert not found, found[0]
    print(pages[-1][0], seconds, _megabytes_most())


def _megabytes_most() -> float:
    """The most memory that this process has had. What getrusage says begins with its parent's."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    prove(sys.argv[1])
