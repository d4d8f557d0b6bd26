"""What can be measured: the one small interface that raw drivers, peers and agentq all offer.

A side lives in a process of its own (see bench/host.py), on a database made for one row of one
round. Every method that is timed returns its own seconds, so nothing of the conversation between
the benchmark and the side's process is ever counted.
"""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.body import Body
from bench.tasks import TaskToDo, task_to_do

ROLE = "bench"
FINISH_POLL_SECONDS = 0.002
GIVE_UP_SECONDS = 300.0


@dataclass(frozen=True)
class Place:
    """Where one side keeps everything in one row: a fresh folder and a fresh database."""

    folder: Path
    url: str

    @property
    def sqlite_file(self) -> Path:
        return self.folder / "bench.db"

    @property
    def body_file(self) -> Path:
        return self.folder / "bodies"


class Side(ABC):
    """One contestant. The body of a task writes the task's number to the file."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.body = Body(place.body_file)
        self._made = 0

    @abstractmethod
    def create(self) -> None:
        """Make the schema in an empty database and connect."""

    def connect(self) -> None:
        """Connect to a database that another process of the same side has created."""
        self.create()

    @abstractmethod
    def submit_one(self, task: TaskToDo) -> None:
        """One durable submit."""

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        """All these in one transaction; False when the side has no such call."""
        return False

    @abstractmethod
    def drain(self, count: int, batch: int) -> float:
        """Run `count` waiting tasks; seconds from the first body until all are recorded."""

    @abstractmethod
    def serve(self) -> None:
        """Wait for tasks and run each as it comes, until the process is ended."""

    def new_tasks(self, count: int) -> list[TaskToDo]:
        """Tasks that this process has not submitted yet, made before the clock starts."""
        self._made += count
        return [task_to_do(number) for number in range(self._made - count, self._made)]

    def submit_each(self, count: int) -> float:
        tasks = self.new_tasks(count)
        started = time.perf_counter()
        for task in tasks:
            self.submit_one(task)
        return time.perf_counter() - started

    def submit_bulk(self, count: int, batch: int) -> float | None:
        """Seconds for `count` submits, `batch` in each call; None when not offered."""
        tasks = self.new_tasks(count)
        started = time.perf_counter()
        for first in range(0, count, batch):
            if not self.submit_batch(tasks[first : first + batch]):
                return None
        return time.perf_counter() - started

    def submit_stamped(self, number: int) -> int:
        """One submit, giving the moment just before the call, for latency."""
        task = task_to_do(number)
        before = time.monotonic_ns()
        self.submit_one(task)
        return before

    def await_finish(self, count_unfinished: Callable[[], int]) -> float:
        """Wait for the last body and then for the side's own tables to say that all is done."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        if not self.body.all_ran.wait(GIVE_UP_SECONDS):
            raise TimeoutError(f"not all bodies ran within {GIVE_UP_SECONDS:.0f} s")
        while count_unfinished():
            if time.monotonic() > deadline:
                raise TimeoutError(f"tasks not recorded as done in {GIVE_UP_SECONDS:.0f} s")
            time.sleep(FINISH_POLL_SECONDS)
        return self.body.seconds_since_first()


SIDES = {
    "raw_sqlite": ("bench.limits", "RawSqlite"),
    "plain_pg": ("bench.plain", "PlainPostgres"),
    "raw_pg": ("bench.limits", "RawPostgres"),
    "agentq_sqlite": ("bench.agentq_side", "AgentqSide"),
    "agentq_sqlite_unchained": ("bench.agentq_side", "UnchainedSide"),
    "agentq_pg": ("bench.agentq_side", "AgentqSide"),
    "agentq_http": ("bench.http_side", "AgentqHttpSide"),
    "huey": ("bench.peers.huey_peer", "HueyPeer"),
    "pgqueuer": ("bench.peers.pgqueuer_peer", "PgqueuerPeer"),
    "procrastinate": ("bench.peers.procrastinate_peer", "ProcrastinatePeer"),
    "dbos": ("bench.peers.dbos_peer", "DbosPeer"),
}


def load_side(name: str, place: Place) -> Side:
    module, class_name = SIDES[name]
    made: Side = getattr(importlib.import_module(module), class_name)(place)
    return made
