"""agentq through its public SDK: on whichever store the URL names, and with a broker beside it."""

from __future__ import annotations

import ctypes
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from agentq import Queue
from agentq.client.claim import Claim
from agentq.client.client import Client
from agentq.contracts.delivery import Publisher
from agentq.settings import read_file
from agentq.wiring import open_installation
from bench.history import PATTERN_TASKS, multiply_postgres, multiply_sqlite
from bench.servers import broker_of
from bench.side import GIVE_UP_SECONDS, ROLE, Side
from bench.startup import clean_environment
from bench.tasks import TaskToDo, number_in

if TYPE_CHECKING:
    from agentq.worker.processes import Supervisor
    from agentq.worker.worker import Worker

WAIT_SECONDS = 30.0
PR_SET_PDEATHSIG = 1
IDLE_PER_PROCESS = 125


class AgentqSide(Side):
    def create(self) -> None:
        self._queue = Queue.create(self.place.url)
        self._claims: list[Claim] = []

    def submit_one(self, task: TaskToDo) -> None:
        self._queue.submit(
            to=ROLE,
            instructions=task.instructions,
            title=task.title,
            labels={"lot": task.label},
            priority=task.priority,
        )

    def submit_batch(self, tasks: Sequence[TaskToDo]) -> bool:
        self._queue.submit_many(
            [
                {
                    "to": ROLE,
                    "instructions": task.instructions,
                    "title": task.title,
                    "labels": {"lot": task.label},
                    "priority": task.priority,
                }
                for task in tasks
            ]
        )
        return True

    def _run(self, claim: Claim) -> str:
        """Run the body of a claimed task; its summary."""
        return self.body.run(number_in(claim.task.spec.instructions))

    def drain(self, count: int, batch: int) -> float:
        if self._on_postgres:
            with psycopg.connect(self.place.url, autocommit=True) as database:
                database.execute("analyze")
        self.body.expect(count)
        if batch == 1:
            self._drain_one_by_one(count)
        else:
            self._drain_in_batches(count, batch)
        return self.body.seconds_since_first()

    @property
    def _on_postgres(self) -> bool:
        return self.place.url.startswith("postgresql:")

    def submit_times(self, count: int) -> list[float]:
        """Seconds of each of so many submits."""
        found = []
        for task in self.new_tasks(count):
            started = time.perf_counter()
            self.submit_one(task)
            found.append(time.perf_counter() - started)
        return found

    def drain_alone(self, count: int) -> float:
        """Claim and complete so many, one by one, while others may do the same."""
        started = time.perf_counter()
        self._drain_one_by_one(count)
        return time.perf_counter() - started

    def _drain_one_by_one(self, count: int) -> None:
        for _ in range(count):
            claim = self._queue.claim(ROLE)
            assert claim is not None
            with claim:
                claim.complete(summary=self._run(claim))

    def _drain_in_batches(self, count: int, batch: int) -> None:
        """As the raw side does: end these and claim the next in one commit."""
        done = 0
        claims = self._queue.claim_many(ROLE, n=min(batch, count))
        while claims:
            ended = [(claim, self._run(claim)) for claim in claims]
            done += len(claims)
            if done < count:
                wanted = min(batch, count - done)
                refused, claims = self._queue.complete_and_claim(ended, ROLE, wanted)
            else:
                refused, claims = self._queue.complete_many(ended), []
            assert not refused, refused

    def serve(self) -> None:
        while True:
            claim = self._queue.claim(ROLE, wait=WAIT_SECONDS)
            if claim is None:
                continue
            with claim:
                claim.complete(summary=self._run(claim))

    def make_history(self, count: int) -> int:
        self.submit_batch(self.new_tasks(PATTERN_TASKS))
        self._drain_in_batches(PATTERN_TASKS, 100)
        copies = max(1, count // PATTERN_TASKS - 1)
        self._queue.admin.stats()  # by then every event has its place in the log
        if self._on_postgres:
            return multiply_postgres(self.place.url, copies)
        return multiply_sqlite(self.place.sqlite_file, copies)

    def hold_leases(self, count: int, lease_seconds: int) -> None:
        """Claim tasks and hold each as `with claim:` does."""
        while len(self._claims) < count:
            wanted = min(1000, count - len(self._claims))
            claims = self._queue.claim_many(ROLE, n=wanted, lease=lease_seconds)
            assert claims, "fewer tasks waiting than leases to hold"
            self._claims += claims
        for claim in self._claims:
            claim.__enter__()

    def lease_cost(self, windows: int, lease_seconds: int) -> list[float]:
        """Percent of a core used in each window of one heartbeat interval.

        Heartbeats follow the last claim by whole intervals, so a window that starts half an
        interval later holds exactly one.
        """
        interval = lease_seconds / 3
        time.sleep(interval / 2)
        shares = []
        for _ in range(windows):
            before, started = time.process_time(), time.monotonic()
            time.sleep(interval)
            used = time.process_time() - before
            shares.append(100 * used / (time.monotonic() - started))
        lost = sum(claim.lost for claim in self._claims)
        assert not lost, f"{lost} of {len(self._claims)} leases were lost"
        return shares


class UnchainedSide(AgentqSide):
    """The same agentq without digests: what they cost is the difference."""

    def create(self) -> None:
        from agentq.ledger import log_codec, submit

        submit.first_digest = lambda *said: ""  # type: ignore[assignment]
        log_codec.event_digest = lambda *said: ""  # type: ignore[assignment]
        super().create()


class AgentqRabbitSide(AgentqSide):
    """A PostgreSQL ledger, hints on RabbitMQ, and one `agentq up` that carries them there.

    A submit is durable when its commit returns, with what is to be announced in the same commit.
    What `agentq up` still has to say after a timed slice of submits is waited for, untimed: the
    other sides have said theirs by then, and must not be measured beside it.
    """

    def create(self) -> None:
        self._agentq("--url", self.place.url, "init", "--broker", broker_of(self.place),
                     "--artifacts", str(self.place.folder / "artifacts"))  # fmt: skip
        with (self.place.folder / "up.log").open("ab") as log:
            self._up = subprocess.Popen(
                [_program(), "up", "--no-workers"],
                cwd=self.place.folder,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509  (no threads here yet)
            )
        self.connect()

    def connect(self) -> None:
        self._queue = Client(open_installation(read_file(self.place.folder / "agentq.toml")))
        self._waiting = 0

    def _agentq(self, *words: str) -> None:
        subprocess.run(
            [_program(), *words], cwd=self.place.folder, env=clean_environment(), check=True,
            stdin=subprocess.DEVNULL, stdout=sys.stderr,
        )  # fmt: skip

    @property
    def _publisher(self) -> Publisher:
        assert self._queue.installation.publisher is not None
        return self._queue.installation.publisher

    def submit_each(self, count: int) -> float:
        seconds = super().submit_each(count)
        self._waiting += count
        self._await_announced()
        return seconds

    def _await_announced(self) -> None:
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while (depth := self._publisher.depth(ROLE)) < self._waiting:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{depth} of {self._waiting} tasks were announced")
            time.sleep(0.02)

    def drain(self, count: int, batch: int) -> float:
        with psycopg.connect(self.place.url, autocommit=True) as database:
            database.execute("analyze")
        self._waiting = count
        self._await_announced()
        inbox = self._queue.inbox(ROLE)
        self.body.expect(count)
        ended: list[tuple[Claim, str]] = []
        done = 0
        while done < count:
            hints = inbox.take(min(batch, count - done), WAIT_SECONDS)
            refused, claims = self._queue.complete_and_claim(ended, ROLE, batch, hints=hints)
            assert not refused, refused
            inbox.settle(hints)
            ended = [(claim, self._run(claim)) for claim in claims]
            done += len(claims)
        refused = self._queue.complete_many(ended)
        assert not refused, refused
        seconds = self.body.seconds_since_first()
        inbox.close()
        self._waiting = 0
        return seconds

    def serve(self) -> None:
        inbox = self._queue.inbox(ROLE)
        while True:
            hints = inbox.take(1, WAIT_SECONDS)
            claims = self._queue.claim_hinted(ROLE, hints) if hints else []
            inbox.settle(hints)
            for claim in claims:
                claim.complete(summary=self._run(claim))


class IdleWorkers(AgentqRabbitSide):
    """Many workers with nothing to do, as threads.

    Each is a worker in full, with a queue and a connection to the broker of its own. Only what
    holds the database's connections is shared: an idle worker has no use for one.
    """

    def create(self) -> None:
        self.connect()

    def serve(self) -> None:
        from agentq.worker.processes import Supervisor

        with Supervisor() as supervisor:
            threads = [
                threading.Thread(target=self._idle_worker(number, supervisor).run, daemon=True)
                for number in range(IDLE_PER_PROCESS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def _idle_worker(self, number: int, supervisor: Supervisor) -> Worker:
        from agentq.settings.roles import RoleSettings
        from agentq.worker.attempt import WorkerContext
        from agentq.worker.worker import LOOK_SECONDS, Worker
        from agentq.worker.workspaces import Workspaces

        queue = Client(self._queue.installation)
        queue.holder = f"{queue.holder}:{number}"
        shared = WorkerContext(
            queue, supervisor, Workspaces(self.place.folder / "workspaces"), ROLE, RoleSettings(),
            queue.installation.agent("command"), {}, lambda *_: None,
        )  # fmt: skip
        worker = Worker(shared, lambda *_: None, grace=0)
        # A fleet that has run for hours looks at the ledger at all times, not all at one.
        worker._look_at = time.monotonic() + random.uniform(0, LOOK_SECONDS)  # noqa: SLF001
        return worker


def _program() -> str:
    return str(Path(sys.executable).parent / "agentq")


def die_with_parent() -> None:
    """What this side has started ends when its process does, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
