"""Workers with real agents, killed and stopped: every task ends once, and no agent is left over."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from tests.eventually import eventually
from tests.processes.noisy_agent import PEAK_MEGABYTES_MAX, run_noisy_agent
from tests.processes.warm_parent import AgentqProcess, WarmParent
from tests.processes.worker_fleet import WorkerFleet, run_worker_kills
from tests.ways import REMOTE, Elsewhere, served

pytestmark = pytest.mark.both_ways


@pytest.fixture
def elsewhere(queue: Queue, way: str) -> Iterator[Elsewhere | None]:
    """The server that workers reach the ledger through; None beside it."""
    if way != REMOTE:
        yield None
        return
    with served(queue._client.installation.settings) as found:
        yield found


@pytest.mark.parametrize(("kills", "tasks"), [(3, 6), pytest.param(10, 20, marks=pytest.mark.long)])
def test_every_task_ends_once_under_kills(
    tmp_path: Path,
    queue: Queue,
    session_seed: int,
    elsewhere: Elsewhere | None,
    parent: WarmParent,
    kills: int,
    tasks: int,
) -> None:
    """`make chaos` does so 300 times, with workers that start from nothing."""
    run_worker_kills(
        tmp_path, queue, kills=kills, tasks=tasks, seed=session_seed, elsewhere=elsewhere,
        parent=parent,
    )  # fmt: skip


@pytest.mark.long
def test_a_noisy_agent_needs_no_memory(tmp_path: Path) -> None:
    """The long form, ten gigabytes, is in `make chaos`."""
    heard = run_noisy_agent(tmp_path, 100_000_000, patience=120)
    assert heard.state is State.COMPLETE
    assert heard.peak_mb < PEAK_MEGABYTES_MAX
    assert heard.log_bytes < heard.disk_bytes < 10_000_000


def test_no_agent_outlives_its_worker(
    tmp_path: Path, queue: Queue, elsewhere: Elsewhere | None
) -> None:
    fleet = WorkerFleet(tmp_path, 600, elsewhere)
    queue.submit_many({"to": "w", "instructions": "run"} for _ in range(3))
    worker = fleet.start()
    eventually(lambda: len(fleet.traces()) == 3)
    assert len(fleet.alive()) == 6
    worker.kill()
    worker.wait()
    eventually(lambda: not fleet.alive())


def test_a_stopped_worker_wakes_up_to_nothing(
    tmp_path: Path, queue: Queue, elsewhere: Elsewhere | None
) -> None:
    fleet = WorkerFleet(tmp_path, 600, elsewhere)
    task = queue.submit(to="w", instructions="run")
    first = fleet.start()
    second: AgentqProcess | None = None
    try:
        eventually(lambda: len(fleet.traces()) == 1)
        # Given a worker that is stopped past its lease while its agent runs on
        first.send_signal(signal.SIGSTOP)
        _, _, *of_first = fleet.traces()[0]
        # When another takes the task over
        second = fleet.start()
        eventually(lambda: len(fleet.traces()) == 2)
        assert fleet.traces()[1][1] == 2 and fleet.alive() >= set(of_first)
        # And the first wakes up, then its agent and all of its tree are ended
        first.send_signal(signal.SIGCONT)
        eventually(lambda: fleet.alive().isdisjoint(of_first))
        # And nothing of it was accepted: the second holds the task
        held = queue.task(task.id)
        assert held.state is State.IN_PROGRESS and held.epoch == 2
        kinds = [entry.event.kind for entry in queue.history(task.id)]
        assert kinds.count("completed") == 0 and kinds.count("claimed") == 2
    finally:
        for worker in (first, second):
            if worker is not None:
                worker.send_signal(signal.SIGTERM)
                worker.wait(30)
    eventually(lambda: not fleet.alive())
