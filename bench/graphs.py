"""What graphs and workflows cost: beside as many plain tasks, a node that nobody waits for, and one
submit that is started.

- ten thousand tasks that come after each other, in one transaction, against as many plain ones
- the end of a task that a thousand others wait for, against the end of one that none does
- a workflow of twelve steps that do nothing: what lies between the end of a step and the start of
  the next, against a single submit to its start, with the same idle worker on the same store
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from random import Random
from statistics import median

from agentq import Claim, Queue, Spec
from agentq.core.task import Priority
from agentq.daemon.advancing import advancing_runs
from agentq.workflows.runs import Runs
from bench.options import Options, rotated
from bench.report import Report, Target
from bench.servers import PrivatePostgres, fresh_place
from bench.side import Place
from bench.tasks import task_to_do

ROLE = "noop"
STEPS = 12
STORES = ("sqlite", "pg")
_SINGLES = 30
_GAP_SECONDS = 0.05
_REPEATS = 5
_ROOT = Path(__file__).resolve().parent.parent

TARGETS = [
    target
    for store in STORES
    for target in (
        Target(f"{store} submit of a graph", "graph", "<=", 1.5, "plain tasks"),
        Target(f"{store} end of a node", "many dependents", "<=", 20.0, "no dependents"),
        Target(f"{store} workflow, per step", "step", "<=", 3.0, "submit to start"),
    )
]


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    with PrivatePostgres.started() as postgres:
        for number in range(options.rounds):
            for store, server in (("sqlite", None), ("pg", postgres)):
                _measure_graph(report, options, store, server, number)
                _measure_ends(report, options, store, server, number)
                _measure_workflow(report, store, server, number)


def _spec(number: int, after: tuple[str, ...] = ()) -> Spec:
    wanted = task_to_do(number)
    return Spec(
        f"task-{number}", ROLE, title=wanted.title, instructions=wanted.instructions,
        priority=Priority(wanted.priority), labels={"lot": wanted.label}, after=after,
    )  # fmt: skip


def _graph(count: int) -> list[Spec]:
    """Every task but the first comes after one or two of the two hundred before it."""
    rng = Random(7)
    specs = [_spec(0)]
    for number in range(1, count):
        first = max(number - 200, 0)
        after = {rng.randrange(first, number) for _ in range(rng.choice((1, 2)))}
        specs.append(_spec(number, tuple(f"task-{each}" for each in sorted(after))))
    return specs


def _measure_graph(
    report: Report, options: Options, store: str, server: PrivatePostgres | None, number: int
) -> None:
    count = options.graph_nodes
    batches = {"plain tasks": [_spec(each) for each in range(count)], "graph": _graph(count)}
    for side in rotated(list(batches), number):
        with fresh_place(server) as place, Queue.create(place.url) as queue:
            started = time.perf_counter()
            queue.submit_many(batches[side])
            took = (time.perf_counter() - started) * 1e3
        report.add(f"{store} submit of a graph", side, number, took, "ms")


def _measure_ends(
    report: Report, options: Options, store: str, server: PrivatePostgres | None, number: int
) -> None:
    for side, count in (("no dependents", 0), ("many dependents", options.dependents)):
        took = []
        with fresh_place(server) as place, Queue.create(place.url) as queue:
            for repeat in range(_REPEATS):
                root = queue.submit(to="root", instructions=f"number {repeat}")
                first = (repeat + 1) * 100_000
                queue.submit_many([_spec(first + each, (root.id,)) for each in range(count)])
                claim = queue.claim("root")
                assert claim is not None
                started = time.perf_counter()
                claim.complete("done")
                took.append((time.perf_counter() - started) * 1e3)
        report.add(f"{store} end of a node", side, number, median(took), "ms")


def _measure_workflow(
    report: Report, store: str, server: PrivatePostgres | None, number: int
) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(fresh_place(server))
        queue = stack.enter_context(Queue.create(place.url))
        folder = place.folder / "workflows"
        folder.mkdir()
        (folder / "twelve.md").write_text(_twelve())
        stack.enter_context(_serving(place))
        stack.enter_context(_advancing(place, folder))
        runs = Runs(queue._client, folder)  # noqa: SLF001
        queue.wait(runs.start("twelve", run_id="warm-up").id, 60)
        single = _single(queue)
        queue.wait(runs.start("twelve", run_id="run-1").id, 60)
        per_step = _between_steps(queue, "run-1")
    report.add(f"{store} workflow, per step", "submit to start", number, single, "ms")
    report.add(f"{store} workflow, per step", "step", number, per_step, "ms")


def _single(queue: Queue) -> float:
    """Median milliseconds from a submit to the claim of an idle worker, by the ledger's clock."""
    tasks = []
    for number in range(_SINGLES):
        tasks.append(queue.submit(to=ROLE, instructions=f"single {number}"))
        time.sleep(_GAP_SECONDS)
    queue.wait(tasks, 60)
    waits = []
    for task in tasks:
        history = [each.event for each in queue.history(task)]
        claimed = next(event for event in history if event.kind == "claimed")
        waits.append(claimed.at - history[0].at)
    # The clock counts whole milliseconds: half of one is lost on average.
    return max(median(waits), 0.5)


def _between_steps(queue: Queue, run: str) -> float:
    """Median milliseconds from the end of a step to the claim of the next, as the log has it."""
    gaps, ended_at = [], 0
    for number in range(STEPS):
        history = [each.event for each in queue.history(f"{run}.s{number}")]
        at = {event.kind: event.at for event in history}
        if ended_at:
            gaps.append(at["claimed"] - ended_at)
        ended_at = history[-1].at
    return max(median(gaps), 0.5)


def _twelve() -> str:
    lines = [
        f"  - {{id: s{number}, role: {ROLE}, instructions: Step {number}."
        + (f", after: s{number - 1}" if number else "")
        + "}"
        for number in range(STEPS)
    ]
    return "---\nsteps:\n" + "\n".join(lines) + "\n---\n"


@contextmanager
def _child(*words: str) -> Iterator[None]:
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.graphs", *words], cwd=_ROOT, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    child.stdout.readline()  # it says that it is there
    try:
        yield
    finally:
        child.terminate()
        child.wait(30)


def _serving(place: Place) -> AbstractContextManager[None]:
    return _child("serve", place.url)


def _advancing(place: Place, folder: Path) -> AbstractContextManager[None]:
    return _child("advance", place.url, str(folder))


def _noop(claim: Claim) -> None:
    claim.complete("done")


def main() -> None:
    what, url = sys.argv[1], sys.argv[2]
    with Queue(url) as queue:
        print("there", flush=True)
        if what == "serve":
            queue.serve(ROLE, _noop)
            return
        client = queue._client  # noqa: SLF001
        with advancing_runs(client.installation, Path(sys.argv[3]), client.holder):
            time.sleep(600)


if __name__ == "__main__":
    main()
