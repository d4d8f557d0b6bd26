"""What the processes of concurrency tests do. They meet at a barrier first, so that they race."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.synchronize import Barrier
from typing import Any, Self

from agentq.contracts.store import Lease
from agentq.core.task import Spec
from agentq.core.triggers import Release, Report
from agentq.ledger.ledger import Ledger
from tests.contracts.conftest import open_store

_meeting: list[Barrier] = []


def _remember_meeting(barrier: Barrier) -> None:
    _meeting.append(barrier)


class Race:
    """Runs a task once per tuple of arguments, each in a process of its own, all starting together.

    Leaving the block waits for all of them.
    """

    def __init__(self, task: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> None:
        listed = list(arguments)
        context = multiprocessing.get_context("spawn")
        self._barrier = context.Barrier(len(listed))
        self._pool = ProcessPoolExecutor(
            len(listed),
            mp_context=context,
            initializer=_remember_meeting,
            initargs=(self._barrier,),
        )
        self._futures = [self._pool.submit(task, *each) for each in listed]

    @property
    def over(self) -> bool:
        return all(future.done() for future in self._futures)

    def results(self) -> list[Any]:
        return [future.result(120) for future in self._futures]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def meet() -> None:
    _meeting[0].wait(60)


def open_and_close(address: str) -> int:
    """Open a ledger that may not exist yet; the version of its schema."""
    meet()
    store = open_store(address)
    try:
        return store.schema_version()
    finally:
        store.close()


def work(address: str, name: str, rounds: int, seed: int) -> int:
    """Submit, claim, renew, finish and let go, at random; how many tasks were submitted."""
    chance = random.Random(seed)
    store = open_store(address)
    ledger = Ledger(store, chance.random)
    meet()
    submitted = 0
    for number in range(rounds):
        count = chance.choice((1, 1, 3, 20))
        ids = [f"{name}-{number}-{n}" for n in range(count)]
        generated = set(ids) if chance.random() < 0.7 else set()
        ledger.submit([Spec(each, "worker") for each in ids], generated)
        submitted += count
        held = ledger.claim("worker", chance.randrange(1, 10), name)
        ledger.heartbeat([Lease(each.key, each.task.epoch, 5000) for each in held])
        done = [each for each in held if chance.random() < 0.7]
        ledger.apply_many([(each.key, Report(each.task.epoch, "done")) for each in done])
        for each in held:
            if each not in done:
                ledger.apply(each.key, Release(each.task.epoch))
    store.close()
    return submitted
