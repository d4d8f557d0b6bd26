"""Does a large ledger slow `agentq status` down? The same command on 100 tasks and on 100,000.

No two tasks are alike: they are of five roles, in every state, some after others, some waiting for
an approval. The command runs on both in turn; beside its wall time the query alone is timed, in a
process that stays.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from agentq import Claim, Queue, Spec
from agentq.core.task import Priority
from bench.options import Options, rotated
from bench.report import Report, Target, progress
from bench.servers import PrivatePostgres, fresh_place
from bench.side import Place
from bench.startup import clean_environment
from bench.tasks import task_to_do

FEW = 100
ROLES = ("builder", "reviewer", "writer", "tester", "publisher")
STORES = ("sqlite", "pg")
_BATCH = 500

TARGETS = [
    Target(f"{store} {what}", "many tasks", "<=", bound, "few tasks")
    for store in STORES
    for what, bound in (("agentq status", 1.2),)
]


def fill(queue: Queue, count: int) -> None:
    """So many tasks, in the states that a ledger holds after a while: most are over."""
    for first in range(0, count, _BATCH):
        specs = [_spec(number) for number in range(first, min(first + _BATCH, count))]
        queue.submit_many(specs)
        for role in ROLES:
            # For so long that nobody renews them while the clock runs.
            claims = queue.claim_many(role, len(specs) // 6, lease="8h")
            for number, claim in enumerate(claims):
                _end(claim, number)
            queue.complete_many([(each, "done") for n, each in enumerate(claims) if n % 10 >= 4])


def _spec(number: int) -> Spec:
    wanted, rng = task_to_do(number), Random(number)
    # Every seventh waits for one of the batch before, every ninth for a person.
    after = (f"task-{number - 1}",) if number % 7 == 6 and number % _BATCH else ()
    return Spec(
        f"task-{number}",
        rng.choice(ROLES),
        title=wanted.title,
        instructions=wanted.instructions,
        priority=Priority(wanted.priority),
        labels={"lot": wanted.label},
        after=after,
        max_attempts=1,
        requires_approval=number % 9 == 8,
    )


def _end(claim: Claim, number: int) -> None:
    """A few of a batch fail, ask or go on; the others are completed together."""
    kind = number % 10
    if kind == 0:
        claim.fail("it cannot be done")
    elif kind == 1:
        claim.block("which branch?")
    elif kind == 2:
        claim.progress(40, "half way")
    elif kind == 3:
        claim.release("later")


def time_command(place: Place) -> float:
    """Milliseconds from fork to exit."""
    agentq = Path(sys.executable).parent / "agentq"
    environment = clean_environment() | {"AGENTQ_URL": place.url}
    started = time.perf_counter()
    subprocess.run(
        [str(agentq), "status"], cwd=place.folder, env=environment, check=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return (time.perf_counter() - started) * 1e3


def time_query(queue: Queue) -> float:
    started = time.perf_counter()
    queue.overview()
    return (time.perf_counter() - started) * 1e3


def measure_store(
    report: Report, options: Options, store: str, postgres: PrivatePostgres | None
) -> None:
    with ExitStack() as stack:
        places: dict[str, tuple[Place, Queue]] = {}
        for side, count in (("few tasks", FEW), ("many tasks", options.overview_tasks)):
            place = stack.enter_context(fresh_place(postgres))
            queue = stack.enter_context(Queue.create(place.url))
            progress(f"overview: {store}, making {count:,} tasks")
            fill(queue, count)
            places[side] = (place, queue)
        for place, queue in places.values():
            time_command(place)
            time_query(queue)
        for number in range(options.starts):
            for side in rotated(list(places), number):
                place, queue = places[side]
                report.keep(f"{store} agentq status", side, number, time_command(place), "ms")
                report.keep(f"{store} overview query", side, number, time_query(queue), "ms")
        for what in ("agentq status", "overview query"):
            for side in places:
                spread = report.spread(f"{store} {what}", side)
                progress(f"  {store} {what}: {side} {spread} ms")


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    measure_store(report, options, "sqlite", None)
    with PrivatePostgres.started() as postgres:
        measure_store(report, options, "pg", postgres)
