"""Tasks that had to wait although they were ready: told of when there is room, and not before."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.contracts.delivery import role_queue
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.rates import Rate
from agentq.core.states import State
from agentq.core.task import Usage
from agentq.daemon.loop import Runner
from agentq.daemon.loops.capacity import CapacityLoop, _Visit
from agentq.daemon.loops.reconcile import Reconcile
from agentq.daemon.loops.relay import Relay
from agentq.daemon.shared_publisher import SharedPublisher
from agentq.delivery.rabbitmq.consumer import RabbitConsumer
from agentq.delivery.rabbitmq.publisher import RabbitPublisher
from agentq.delivery.rabbitmq.pull_consumer import PullConsumer
from agentq.settings import Settings
from agentq.wiring import WiredInstallation
from tests.daemon.ups import several_ups
from tests.eventually import eventually

ONE_STORE = pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)


@pytest.fixture
def publisher(broker_url: str) -> Iterator[RabbitPublisher]:
    made = RabbitPublisher(broker_url)
    yield made
    made.close()


Take = Callable[[int], list[str]]


@pytest.fixture
def take(broker_url: str) -> Iterator[Take]:
    """Take so many hints of the role `w`; whose they are."""
    consumer = RabbitConsumer(broker_url, role_queue("w"))

    def take_some(count: int) -> list[str]:
        received = consumer.take(count, 10)
        consumer.ack([each.tag for each in received])
        return [json.loads(each.body)["task_id"] for each in received]

    yield take_some
    consumer.close()


class TestCapacity:
    def test_as_many_as_there_is_room_for(
        self, queue: Queue, publisher: RabbitPublisher, broker_url: str
    ) -> None:
        queue.admin.set_limits("w", RoleLimits(max_running=2))
        queue.submit_many({"to": "w", "instructions": str(number)} for number in range(7))
        loop = CapacityLoop(queue._client.installation, SharedPublisher(publisher))
        loop.run_once()
        assert publisher.depth("w") == 2
        eventually(lambda: loop.run_once() and loop._visits["w"].pause)
        assert publisher.depth("w") == 2, "said already, and not yet heard"
        held = queue.claim_many("w", 2)
        _drop_hints(broker_url, publisher)
        loop.run_once()
        assert publisher.depth("w") == 0, "nobody may start"
        held[0].complete("done")
        eventually(lambda: loop.run_once() and publisher.depth("w") == 1)

    def test_a_rate_says_how_many_and_when_to_look_again(
        self, queue: Queue, publisher: RabbitPublisher
    ) -> None:
        queue.admin.set_limits("w", RoleLimits(rate=Rate(1, 2, burst=2)))
        queue.admin.set_key_limits("printer", KeyLimits(3, Rate(1, 3600, burst=1)))
        queue.submit_many({"to": "w", "instructions": str(number)} for number in range(4))
        for number in range(3):
            queue.submit(to="other", instructions=str(number), resources=["printer"])
        loop = CapacityLoop(queue._client.installation, SharedPublisher(publisher))
        loop.run_once()
        assert (publisher.depth("w"), publisher.depth("other")) == (2, 1)
        assert len(queue.claim_many("w", 4)) == 2
        loop._visits["w"] = _Visit(pause=100.0)
        eventually(lambda: loop.run_once() and loop._visits["w"].pause)
        assert loop._visits["w"].due <= time.monotonic() + 2.0, "when the next token is due"

    def test_what_cannot_start_holds_up_nobody(
        self, queue: Queue, publisher: RabbitPublisher, take: Take
    ) -> None:
        queue.admin.set_limits("w", RoleLimits(max_running=1, daily=Usage(usd=5.0)))
        queue.submit(to="other", instructions="prints", resources=["printer"])
        assert queue.claim_many("other", 1)
        queue.submit(to="w", instructions="waits for it", resources=["printer"])
        queue.submit(to="w", instructions="too dear for today", budget={"usd": 9.0})
        able = queue.submit(to="w", instructions="needs nothing")
        CapacityLoop(queue._client.installation, SharedPublisher(publisher)).run_once()
        assert take(1) == [able.id]
        assert publisher.depth("w") == 0

    def test_what_is_refused_all_the_same_is_not_said_over_and_over(
        self, queue: Queue, publisher: RabbitPublisher, broker_url: str
    ) -> None:
        queue.admin.set_limits("w", RoleLimits(max_running=1))
        queue.submit_many({"to": "w", "instructions": str(number)} for number in range(7))
        loop = CapacityLoop(queue._client.installation, SharedPublisher(publisher))
        pauses = []
        for _ in range(20):  # as with a provider that serves nobody for an hour
            loop._visits.get("w", _Visit()).due = loop._ran_at = 0.0
            loop.run_once()
            pauses.append(loop._visits["w"].pause)
            _drop_hints(broker_url, publisher)
        assert loop.tally.counts == {"announced as there is room": 7}, "each once"
        assert pauses[0] == 0 and pauses == sorted(pauses) and pauses[-1] == 5

    def test_reconciliation_leaves_limited_roles_to_it(
        self, queue: Queue, publisher: RabbitPublisher
    ) -> None:
        queue.admin.set_limits("w", RoleLimits(max_running=1))
        for role in ("w", "free"):
            queue.submit_many({"to": role, "instructions": str(number)} for number in range(3))
        Reconcile(queue._client.installation, SharedPublisher(publisher), young_ms=0).run_once()
        assert (publisher.depth("w"), publisher.depth("free")) == (0, 3)

    def test_paused_and_used_up(self, queue: Queue, publisher: RabbitPublisher) -> None:
        queue.submit_many({"to": role, "instructions": "x"} for role in ("paused", "poor", "rich"))
        queue.admin.set_limits("paused", RoleLimits(paused=True))
        for role, usd in (("poor", 1.0), ("rich", 100.0)):
            queue.admin.set_limits(role, RoleLimits(daily=Usage(usd=usd)))
            [claim] = queue.claim_many(role, 1)
            claim.complete("done", cost=Usage(usd=2.0))
            queue.submit(to=role, instructions="another")
        CapacityLoop(queue._client.installation, SharedPublisher(publisher)).run_once()
        assert {role: publisher.depth(role) for role in ("paused", "poor", "rich")} == {
            "paused": 0, "poor": 0, "rich": 1,
        }  # fmt: skip

    def test_a_resource_that_is_free_again(
        self, queue: Queue, publisher: RabbitPublisher, broker_url: str
    ) -> None:
        for number in range(2):
            queue.submit(to="w", instructions=str(number), resources=["printer"])
        queue.submit(to="other", instructions="needs nothing")
        [claim] = queue.claim_many("w", 2)
        its_own = RabbitPublisher(broker_url)
        runner = Runner(
            CapacityLoop(queue._client.installation, SharedPublisher(its_own)),
            queue._client.installation.doorbell,
        )
        runner.start()
        try:
            eventually(lambda: runner.rounds == 1 and not runner.busy_seconds)
            _drop_hints(broker_url, publisher)
            claim.complete("done")
            runner.nudge()
            eventually(lambda: publisher.depth("w") == 1, what="the other one being told of")
        finally:
            runner.stop()
            assert runner.join(10)
            its_own.close()
        assert publisher.depth("other") == 0, "that is the relay's"


def _drop_hints(broker_url: str, publisher: RabbitPublisher) -> None:
    """As workers do that follow a hint and are refused."""
    publisher.depth("w")  # declares it
    pull_consumer = PullConsumer(broker_url, role_queue("w"), "the test")
    pull_consumer.purge()
    pull_consumer.close()


def installation(folder: Path, ledger_url: str, broker_url: str) -> Queue:
    (folder / "agentq.toml").write_text(
        f'[ledger]\nurl = "{ledger_url}"\n[broker]\nurl = "{broker_url}"\n'
        '[artifacts]\nroot = "files"\n[roles.w]\ncommand = ["true"]\nslots = 2\n'
    )
    settings = Settings(ledger_url, str(folder / "files"), "the test")
    queue = Queue(installation=WiredInstallation(settings, create=True))
    queue._client.installation.ledger.open_lanes("delivery", "reply")
    return queue


def all_complete(queue: Queue, ids: list[str]) -> bool:
    tasks = queue._client.installation.ledger_queries.by_id(ids).values()
    return all(task.state is State.COMPLETE for task in tasks)


def submit_some(queue: Queue) -> list[str]:
    specs = ({"to": "w", "instructions": str(number)} for number in range(12))
    return [task.id for task in queue.submit_many(specs)]


class TestWorkers:
    def test_the_relay_wakes_it(self, queue: Queue, publisher: RabbitPublisher) -> None:
        queue._client.installation.ledger.open_lanes("delivery", "reply")
        queue.admin.set_limits("w", RoleLimits(max_running=1))
        queue.submit(to="w", instructions="x")
        woken = threading.Event()
        relay = Relay(queue._client.installation, SharedPublisher(publisher), woken.set)
        runner = Runner(relay, queue._client.installation.doorbell)
        runner.start()
        try:
            assert woken.wait(10), "it has nothing more to say"
            [claim] = queue.claim_many("w", 1)
            woken.clear()
            claim.complete("done")
            assert woken.wait(4), "sooner than it looks by itself"
        finally:
            runner.stop()
            assert runner.join(10)

    @ONE_STORE
    def test_a_limited_role_does_not_starve(
        self, tmp_path: Path, ledger_url: str, broker_url: str
    ) -> None:
        with installation(tmp_path, ledger_url, broker_url) as queue, several_ups(tmp_path) as ups:
            queue.admin.set_limits("w", RoleLimits(max_running=1))
            up = ups.start()
            eventually(lambda: up.worker_pids("w"), what="the worker being started")
            ids = submit_some(queue)
            eventually(lambda: all_complete(queue, ids), what="all being done, one after the other")
            assert up.end() == 0

    @ONE_STORE
    def test_without_its_broker_a_worker_goes_on(self, tmp_path: Path, ledger_url: str) -> None:
        nobody = "amqp://guest:guest@127.0.0.1:9/"
        with installation(tmp_path, ledger_url, nobody) as queue, several_ups(tmp_path) as ups:
            ids = submit_some(queue)
            up = ups.start()
            eventually(lambda: all_complete(queue, ids), what="all being done")
            eventually(lambda: up.said_of("no hints come"), what="it being said")
            assert len(up.said_of("no hints come")) == 1
            assert up.end() == 0
