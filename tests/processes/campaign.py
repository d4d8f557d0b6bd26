"""Killing in a loop: submitters and workers die at any point while tasks flow."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from agentq.client.queue import Queue
from agentq.core.states import State
from tests.eventually import pause
from tests.processes.checker import Verdict, check
from tests.processes.forkserver import Forkserver

WORKERS, SUBMITTERS = 4, 2


def run_kills(
    url: str,
    folder: Path,
    *,
    kills: int,
    seed: int,
    between: Callable[[int], None] = lambda kill: None,
    breath_s: float = 0.12,
) -> Verdict:
    """Kill -9 `kills` processes, one after the other, replacing each; then let the rest drain."""
    chance = random.Random(seed)
    Queue.create(url).close()  # the tables are there before anybody races for them
    with Forkserver(folder) as forkserver:
        numbers = iter(range(1_000_000))

        def submitter() -> None:
            forkserver.bear("submitter", url=url, stem=f"s{seed}-{next(numbers)}")

        def worker() -> None:
            forkserver.bear("worker", url=url, name=f"w{next(numbers)}")

        for _ in range(WORKERS):
            worker()
        for _ in range(SUBMITTERS):
            submitter()
        for kill in range(kills):
            pause(chance.random() * breath_s)
            between(kill)
            victim = chance.choice(sorted(forkserver.alive))
            kind = forkserver.alive[victim]
            forkserver.kill(victim)
            worker() if kind == "worker" else submitter()
        for pid in [pid for pid, kind in forkserver.alive.items() if kind == "submitter"]:
            forkserver.kill(pid)
        with Queue(url) as queue:
            drain(queue)
            acknowledged = {
                words[1] for words in forkserver.lines("submitter") if words[0] == "ack"
            }
            done = {words[1] for words in forkserver.lines("worker") if words[0] == "done"}
            assert acknowledged, f"nothing was submitted: {forkserver.errors()}"
            return check(queue, acknowledged, done)


def drain(queue: Queue, timeout: float = 120) -> None:
    """Wait until nothing is left to do, woken by the log."""
    deadline = time.monotonic() + timeout
    open_states = (State.PENDING, State.READY, State.IN_PROGRESS)
    while any(queue.tasks(state=open_states)):
        assert time.monotonic() < deadline, f"still not drained: {queue.admin.stats()}"
        queue.admin.tick()
        for _ in queue.follow(timeout=0.5):
            break
