"""A whole cluster under faults: PostgreSQL, RabbitMQ, S3, daemons and workers.

Tasks flow in while workers and daemons are killed, servers are restarted, a broker loses its disk
and a worker is stopped past its lease. In the end every accepted task has ended once, and every
state and file is proved.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.errors import Unavailable
from agentq.core.states import State
from agentq.settings import read_file
from agentq.wiring import WiredInstallation
from tests.eventually import eventually, pause
from tests.processes.checker import Verdict, check
from tests.processes.warm_parent import AgentqProcess, WarmParent, start_agentq
from tests.servers.postgres import PostgresServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.seaweed import SeaweedServer

WORKERS, DAEMONS = 3, 2
LEASE_SECONDS = 4
ROLE = "w"
#: An agent that leaves a file and says something, quickly.
PROGRAM = 'echo evidence > "$AGENTQ_ARTIFACTS/notes.md"; echo "done: $AGENTQ_TASK_ID"'
DRAIN_SECONDS = 150


@dataclass(frozen=True)
class Plan:
    """What happens to the cluster."""

    kills: int
    postgres_restarts: int = 1
    broker_restarts: int = 1
    broker_wipes: int = 1
    store_restarts: int = 1
    pauses: int = 1
    #: Tasks that come in before each kill.
    tasks: int = 3
    seed: int = 0

    def incidents(self) -> dict[int, list[str]]:
        """By the number of the kill before which they happen."""
        chance = random.Random(self.seed)
        counts = {
            "postgres": self.postgres_restarts,
            "broker": self.broker_restarts,
            "wipe": self.broker_wipes,
            "store": self.store_restarts,
            "pause": self.pauses,
        }
        planned: dict[int, list[str]] = {}
        for what, count in counts.items():
            for _ in range(count):
                planned.setdefault(chance.randrange(self.kills), []).append(what)
        return planned


@dataclass
class Cluster:
    """One installation on three servers, and its processes."""

    folder: Path
    postgres: PostgresServer
    broker: RabbitServer
    store: SeaweedServer
    environment: dict[str, str]
    #: What its processes are forked from; each starts from nothing without one.
    parent: WarmParent | None = None
    alive: dict[int, tuple[str, AgentqProcess]] = field(default_factory=dict)
    started: int = 0

    def bear(self, kind: str) -> None:
        words = ["worker", ROLE, "--grace", "1s"]
        if kind == "daemon":
            words = ["up", "--no-workers", "--term", "3s"]
        self.started += 1
        process = start_agentq(
            self.parent, *words, cwd=self.folder, env=self.environment,
            log=self.folder / f"{kind}-{self.started}.log",
        )  # fmt: skip
        self.alive[process.pid] = (kind, process)

    def kill(self, pid: int) -> str:
        kind, process = self.alive.pop(pid)
        process.kill()
        process.wait()
        return kind

    def happens(self, what: str, chance: random.Random) -> None:
        if what == "postgres":
            self.postgres.restart(chance.choice(["fast", "immediate"]))
        elif what == "broker":
            self.broker.restart()
        elif what == "wipe":
            self.broker.wipe()
        elif what == "store":
            self.store.restart()
        else:
            self._pause(chance)

    def _pause(self, chance: random.Random) -> None:
        """Stop a worker past its lease; when it goes on, others have its tasks."""
        workers = [process for kind, process in self.alive.values() if kind == "worker"]
        stopped = chance.choice(workers)
        stopped.send_signal(signal.SIGSTOP)
        pause(LEASE_SECONDS + 1)
        stopped.send_signal(signal.SIGCONT)

    def errors(self) -> str:
        """What processes said that nobody expected."""
        logs = sorted(self.folder.glob("*.log"))
        bad = [(log.name, text) for log in logs if "Traceback" in (text := log.read_text())]
        return "\n".join(f"{name}:\n{text[-3000:]}" for name, text in bad[:3])

    def end(self) -> None:
        for _, process in self.alive.values():
            process.terminate()
        for _, process in self.alive.values():
            try:
                process.wait(20)
            except (subprocess.TimeoutExpired, AssertionError):
                process.kill()
                process.wait()
        self.alive.clear()


@contextmanager
def founded(
    folder: Path,
    postgres: PostgresServer,
    broker: RabbitServer,
    store: SeaweedServer,
    parent: WarmParent | None = None,
) -> Iterator[Cluster]:
    """An installation on these servers, with nothing running yet."""
    with postgres.fresh_database() as url, broker.fresh_host() as address:
        (folder / "agentq.toml").write_text(
            f'[ledger]\nurl = "{url}"\n\n[broker]\nurl = "{address}"\n\n[artifacts]\n'
            f'root = "{store.fresh_root()}"\nendpoint = "{store.endpoint}"\nregion = "us-east-1"\n'
            f"\n[roles.{ROLE}]\ncommand = ['/bin/sh', '-c', '{PROGRAM}']\nslots = 3\n"
            f'lease = "{LEASE_SECONDS}s"\ngrace = "1s"\n'
        )
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")},
            **store.environment,
        }
        cluster = Cluster(folder, postgres, broker, store, environment, parent)
        subprocess.run(
            [sys.executable, "-m", "agentq", "init"], cwd=folder, env=environment, check=True,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield cluster
        finally:
            cluster.end()


def run_cluster(
    cluster: Cluster, plan: Plan, between: Callable[[int], None] = lambda kill: None
) -> Verdict:
    """Let it all happen; then let the cluster come to rest and look at everything."""
    chance = random.Random(plan.seed)
    incidents = plan.incidents()
    acknowledged: set[str] = set()
    with Queue(installation=WiredInstallation(read_file(cluster.folder / "agentq.toml"))) as queue:
        for kind, count in (("daemon", DAEMONS), ("worker", WORKERS)):
            for _ in range(count):
                cluster.bear(kind)
        for kill in range(plan.kills):
            between(kill)
            acknowledged |= _submit(queue, plan.tasks)
            for what in incidents.get(kill, ()):
                cluster.happens(what, chance)
                acknowledged |= _submit(queue, plan.tasks)
            pause(chance.random() * 0.3)
            cluster.bear(cluster.kill(chance.choice(sorted(cluster.alive))))
        _drain(queue, cluster)
        verdict = check(queue, acknowledged, set())
    problems = cluster.errors()
    assert not problems, problems
    return verdict


def _submit(queue: Queue, count: int) -> set[str]:
    """Those that were accepted; a server that is away accepts nothing."""
    try:
        tasks = queue.submit_many({"to": ROLE, "instructions": f"task {n}"} for n in range(count))
    except Unavailable:
        return set()
    return {task.id for task in tasks}


def _drain(queue: Queue, cluster: Cluster) -> None:
    waiting = (State.PENDING, State.READY, State.IN_PROGRESS)
    try:
        eventually(
            lambda: not any(queue.tasks(state=waiting)), DRAIN_SECONDS, "the end of all work"
        )
    except AssertionError as late:
        raise AssertionError(f"{late}: {queue.admin.stats()}\n{cluster.errors()}") from late
