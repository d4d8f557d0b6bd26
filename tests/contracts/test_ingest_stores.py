"""Messages taken into the ledger: alike on every database, and once however many take them in."""

from __future__ import annotations

import json
import threading
from typing import Any

from agentq.contracts.inbound_messages import Incoming, IntakeStatus
from agentq.contracts.store import Store
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Spec, Usage
from agentq.ledger.ledger import Ledger
from tests.contracts.conftest import Backend
from tests.contracts.rows import Clock
from tests.ledger_verbs import ingest


def incoming(status: str, task_id: str, number: int, **fields: Any) -> Incoming:
    plain = {"task_id": task_id, "from": "js-1", "status": status, **fields}
    return Incoming(f"m-{number}", json.dumps(plain).encode(), "answers", "worker")


def ledger_on(store: Store) -> Ledger:
    return Ledger(store, lambda: 0.5)


def problems(ledger: Ledger) -> list[object]:
    return [problem for _, found in ledger.queries.verify() for problem in found]


def test_one_batch_of_everything(store: Store, clock: Clock) -> None:
    ledger = ledger_on(store)
    ledger.submit(
        [
            Spec("a", "worker"),
            Spec("b", "worker", resources=("db",)),
            Spec("c", "worker", resources=("db",)),
            Spec("d", "worker", after=("a",)),
            Spec("e", "worker", budget=Usage(usd=1)),
        ]
    )
    ledger.set_limits("worker", RoleLimits(max_running=2))
    verdicts = ingest(
        ledger,
        [
            incoming("started", "a", 1),
            incoming("started", "b", 2, lease_seconds=5),
            incoming("started", "e", 3),
            incoming("progress", "a", 4, percent=50, note="half"),
            incoming("heartbeat", "b", 5, lease_seconds=300),
            incoming("completed", "a", 6, summary="done"),
            incoming("started", "e", 7),
            incoming("started", "c", 8),
            incoming("started", "a", 1),
            incoming("progress", "e", 9, percent=1, cost={"usd": 3}),
            incoming("failed", "b", 10, summary="no disk", kind="invalid"),
            incoming("started", "c", 11),
        ],
    )
    accepted, refused = IntakeStatus.ACCEPTED, IntakeStatus.REFUSED
    assert [verdict.outcome for verdict in verdicts] == [
        accepted, accepted, refused, accepted, accepted, accepted, accepted, refused,
        IntakeStatus.DUPLICATE, accepted, accepted, accepted,
    ]  # fmt: skip
    assert [json.loads(verdicts[n].answer)["code"] for n in (2, 7, 8)] == [
        "limit",
        "limit",
        "stale",
    ]
    tasks = ledger.queries.by_id(list("abcde"))
    assert {name: task.state for name, task in tasks.items()} == {
        "a": State.COMPLETE, "b": State.FAILED, "c": State.IN_PROGRESS, "d": State.READY,
        "e": State.BLOCKED,
    }  # fmt: skip
    assert problems(ledger) == []


def test_a_renewed_lease_outlives_what_is_saved_beside_it(store: Store, clock: Clock) -> None:
    ledger = ledger_on(store)
    ledger.submit([Spec("a", "worker")])
    ingest(ledger, [incoming("started", "a", 1)])
    clock.now += 50_000
    ingest(
        ledger,
        [incoming("heartbeat", "a", 2, lease_seconds=100), incoming("progress", "a", 3, percent=5)],
    )
    clock.now += 90_000
    ledger.tick()
    assert ledger.queries.find("a")[1].state is State.IN_PROGRESS
    clock.now += 20_000
    ledger.tick()
    assert ledger.queries.find("a")[1].state is State.READY


def test_many_who_take_in_the_same_messages_take_each_once(shared: Backend) -> None:
    # Given the messages of many attempts, when three processes are given all of them at once,
    count = 20
    first = ledger_on(shared.open())
    first.submit([Spec(f"task-{n}", "worker") for n in range(count)])
    starts = [incoming("started", f"task-{n}", n) for n in range(count)]
    ends = [incoming("completed", f"task-{n}", count + n, summary="done") for n in range(count)]
    ledgers = [first, ledger_on(shared.open()), ledger_on(shared.open())]
    taken: list[IntakeStatus] = []
    begin = threading.Barrier(len(ledgers))

    def take_all(ledger: Ledger, turn: int) -> None:
        for batch in (starts, ends):
            begin.wait()
            for at in range(0, count, 5):
                # Each begins elsewhere, so that they meet.
                place = (at + 5 * turn) % count
                taken.extend(v.outcome for v in ingest(ledger, batch[place : place + 5]))

    threads = [
        threading.Thread(target=take_all, args=(ledger, turn))
        for turn, ledger in enumerate(ledgers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    # then each is taken once, and the others are copies.
    assert taken.count(IntakeStatus.ACCEPTED) == 2 * count
    assert taken.count(IntakeStatus.DUPLICATE) == 4 * count
    for n in range(count):
        kinds = [
            each.event.kind for each in first.queries.history(first.queries.find(f"task-{n}")[0])
        ]
        assert kinds == ["submitted", "claimed", "completed"]
    assert problems(first) == []
