"""Workers with real agents, killed and stopped: every task ends once, and no agent is left over."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import TERMINAL, State
from agentq.ledger.views import Wanted

KILLS = 50
TASKS = 90
#: An agent that leaves a trace of itself and of a child in a session of its own, then works a bit.
AGENT = """\
import os, subprocess, sys, time
trace = open(os.environ["TRACE"], "a", buffering=1)
orphan = subprocess.Popen(["sleep", "600"], start_new_session=True)
who = os.environ["AGENTQ_TASK_ID"], os.environ["AGENTQ_EPOCH"], os.getpid(), orphan.pid
trace.write("{} {} {} {}\\n".format(*who))
time.sleep(float(os.environ["WORK"]))
print("done")
"""


class Fleet:
    """Workers of one role as processes of their own."""

    def __init__(self, folder: Path, work: float) -> None:
        self.folder = folder
        self.trace = folder / "trace"
        (folder / "agent.py").write_text(AGENT)
        (folder / "agentq.toml").write_text(
            '[roles.w]\ncommand = ["' + sys.executable + '", "' + str(folder / "agent.py") + '"]\n'
            'slots = 3\nlease = "3s"\ngrace = "1s"\nenvironment = ["TRACE", "WORK"]\n'
        )
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")},
            "TRACE": str(self.trace),
            "WORK": str(work),
        }
        self._started = 0

    def start(self) -> subprocess.Popen[bytes]:
        self._started += 1
        with (self.folder / f"worker-{self._started}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "agentq", "worker", "w", "--grace", "1s"],
                cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log,
            )  # fmt: skip

    def traces(self) -> list[tuple[str, int, int, int]]:
        if not self.trace.exists():
            return []
        rows = [line.split() for line in self.trace.read_text().splitlines()]
        return [(row[0], int(row[1]), int(row[2]), int(row[3])) for row in rows if len(row) == 4]

    def alive(self) -> set[int]:
        pids = {pid for _, _, *both in self.traces() for pid in both}
        return {pid for pid in pids if _runs(pid)}


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(true: Callable[[], object], seconds: float) -> None:
    deadline, beat = time.monotonic() + seconds, threading.Event()
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        beat.wait(0.02)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    (tmp_path / ".agentq").mkdir()
    return Queue(f"sqlite:///{tmp_path}/.agentq/ledger.db")


def test_every_task_ends_once_under_kills(tmp_path: Path, queue: Queue, session_seed: int) -> None:
    chance = random.Random(session_seed)
    fleet = Fleet(tmp_path, work=0.05)
    queue.submit_many({"to": "w", "instructions": f"task {n}"} for n in range(TASKS))
    workers = [fleet.start() for _ in range(3)]
    try:
        for _ in range(KILLS):
            seen = len(fleet.traces())
            _until_news(fleet, queue, seen)
            victim = chance.randrange(len(workers))
            workers[victim].kill()
            workers[victim].wait()
            workers[victim] = fleet.start()
        until(lambda: _open_tasks(queue) == 0, 120)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    until(lambda: not fleet.alive(), 5)
    ends: dict[str, int] = {}
    for entry in queue.events(limit=100_000):
        if entry.event.state in TERMINAL:
            ends[entry.task_id] = ends.get(entry.task_id, 0) + 1
    assert len(ends) == TASKS and set(ends.values()) == {1}
    assert [problems for _, problems in queue.verify() if problems] == []
    queue.close()


def _open_tasks(queue: Queue) -> int:
    queue.tick()
    waiting = tuple(state for state in State if state not in TERMINAL)
    return len(queue.tasks(Wanted(states=waiting, limit=1000)).tasks)


def _until_news(fleet: Fleet, queue: Queue, seen: int) -> None:
    """An agent has started since, or there is nothing left to start."""
    deadline, beat = time.monotonic() + 10, threading.Event()
    while len(fleet.traces()) <= seen and time.monotonic() < deadline and _open_tasks(queue):
        beat.wait(0.02)


def test_no_agent_outlives_its_worker(tmp_path: Path, queue: Queue) -> None:
    fleet = Fleet(tmp_path, work=600)
    queue.submit_many({"to": "w", "instructions": "run"} for _ in range(3))
    worker = fleet.start()
    until(lambda: len(fleet.traces()) == 3, 30)
    assert len(fleet.alive()) == 6
    worker.kill()
    worker.wait()
    until(lambda: not fleet.alive(), 5)
    queue.close()


def test_a_stopped_worker_wakes_up_to_nothing(tmp_path: Path, queue: Queue) -> None:
    fleet = Fleet(tmp_path, work=600)
    task = queue.submit(to="w", instructions="run")
    first = fleet.start()
    second: subprocess.Popen[bytes] | None = None
    try:
        until(lambda: len(fleet.traces()) == 1, 30)
        # Given a worker that is stopped past its lease while its agent runs on
        first.send_signal(signal.SIGSTOP)
        _, _, *of_first = fleet.traces()[0]
        # When another takes the task over
        second = fleet.start()
        until(lambda: len(fleet.traces()) == 2, 30)
        assert fleet.traces()[1][1] == 2 and fleet.alive() >= set(of_first)
        # And the first wakes up, then its agent and all of its tree are ended
        first.send_signal(signal.SIGCONT)
        until(lambda: fleet.alive().isdisjoint(of_first), 10)
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
    until(lambda: not fleet.alive(), 5)
    queue.close()
