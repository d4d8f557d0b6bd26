"""A worker and the messages of a broker: what it follows, and what it puts aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.contracts.delivery import DEAD, Message
from agentq.core.states import State
from agentq.delivery.rabbitmq import RabbitConsumer, RabbitPublisher
from tests.worker.fleet import ROLE, Fleet, open_fleet, script

pytestmark = pytest.mark.beside("the broker's address stays with the server")


@pytest.fixture
def broker(rabbitmq_url: str) -> str:
    return rabbitmq_url


@pytest.fixture
def fleet(tmp_path: Path, broker: str) -> Iterator[Fleet]:
    with open_fleet(tmp_path, broker=broker) as opened:
        opened.queue.admin.prepare_broker([ROLE])
        yield opened


def publish(broker: str, *task_ids: str) -> None:
    """As anybody may who can write to the task exchange."""
    publisher = RabbitPublisher(broker)
    envelopes = {each: json.dumps({"v": 1, "task_id": each, "to": ROLE}) for each in task_ids}
    sent = [
        Message(f"by-hand-{each}", "agentq.tasks", ROLE, text.encode())
        for each, text in envelopes.items()
    ]
    assert publisher.publish(sent) == [""] * len(sent)
    publisher.close()


def test_an_envelope_nobody_submitted_becomes_a_dead_letter(fleet: Fleet, broker: str) -> None:
    """Beside it a real task, whose hint is followed and forgotten, one that is over, and one that
    was edited to be for others."""
    over = fleet.queue.submit(to=ROLE, instructions="not needed any more")
    fleet.queue.cancel(over.id, "ann")
    moved = fleet.queue.submit(to=ROLE, instructions="for others")
    fleet.queue.edit(moved, "ann", to="others")
    task = fleet.queue.submit(to=ROLE, instructions="work")
    publish(broker, over.id, moved.id, task.id, "task-of-a-stranger")
    dead = RabbitConsumer(broker, DEAD)
    try:
        with fleet.worker(fleet.settings(command=script("print('done')"))):
            found = dead.take(1, 20)
            assert fleet.queue.wait(task.id, 20).state is State.COMPLETE
        assert [json.loads(each.body)["task_id"] for each in found] == ["task-of-a-stranger"]
        assert dead.take(1, 0.2) == [], "hints that came too late are no dead letters"
    finally:
        dead.close()
    assert fleet.queue.task(moved).state is State.READY
    (message,) = fleet.queue.admin.dead_messages()
    assert message.id == "by-hand-task-of-a-stranger"
    assert "the ledger has no task of this id" in message.reason
    assert fleet.queue._client.installation.publisher is not None
    assert fleet.queue._client.installation.publisher.depth(ROLE) == 0
