"""A queue that a stranger has for himself: its role waits, and nobody else does."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from agentq.client.queue import Queue
from agentq.daemon.loops.reconcile import Reconcile
from agentq.daemon.loops.relay import Relay
from agentq.daemon.shared_publisher import SharedPublisher
from agentq.delivery.rabbitmq.publisher import RabbitPublisher
from tests.delivery.foreign_messages import stranger
from tests.eventually import eventually


@pytest.fixture
def publisher(broker_url: str) -> Iterator[RabbitPublisher]:
    made = RabbitPublisher(broker_url)
    yield made
    made.close()


@pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)
def test_one_locked_role_holds_up_no_other(
    queue: Queue, publisher: RabbitPublisher, broker_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue._client.installation.ledger.open_lanes("delivery", "reply")
    shared = SharedPublisher(publisher)
    relay = Relay(queue._client.installation, shared)
    reconcile = Reconcile(queue._client.installation, shared, young_ms=-1000)
    with stranger(broker_url) as channel:
        # Given tasks of three roles, and a stranger who has the queue of one,
        channel.queue_declare("agentq.role.locked", exclusive=True)
        for role in ("a", "locked", "z"):
            queue.submit(to=role, instructions="x")
        # when they are announced, then those of the others are,
        with caplog.at_level(logging.ERROR, "agentq.daemon"):
            relay.run_once()
        assert relay.tally.counts == {"announced": 2, "not taken by the broker": 1}
        assert "RESOURCE_LOCKED" in caplog.text
        # and when the broker has lost them, then those of the others are said again.
        for role in ("a", "z"):
            channel.queue_purge(f"agentq.role.{role}")
        reconcile.run_once()
        assert [publisher.depth(role) for role in ("a", "locked", "z")] == [1, 0, 1]
    # When the stranger has gone, then so is the trouble.
    eventually(lambda: reconcile.run_once() and publisher.depth("locked") == 1)
