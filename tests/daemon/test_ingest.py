"""What foreign workers say, by a real broker into the ledger; and `agentq up` between the two."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agentq.client.queue import Queue
from agentq.contracts.delivery import STATUS, Message, role_queue
from agentq.core.states import State
from agentq.daemon.loops.ingest import Ingest
from agentq.daemon.shared_publisher import SharedPublisher
from agentq.delivery.rabbitmq import dead_messages
from agentq.delivery.rabbitmq.consumer import RabbitConsumer
from agentq.delivery.rabbitmq.publisher import RabbitPublisher
from agentq.settings import Settings
from tests.daemon.ups import several_ups
from tests.eventually import eventually
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.parametrize("ledger_url", ["sqlite"], indirect=True)


@pytest.fixture
def settings(ledger_url: str, broker_url: str, tmp_path: Path) -> Settings:
    """An installation with a broker."""
    (tmp_path / "agentq.toml").write_text(
        f'[ledger]\nurl = "{ledger_url}"\n[artifacts]\nroot = "files"\n'
        f'[broker]\nurl = "{broker_url}"\n'
    )
    return Settings(ledger_url, str(tmp_path / "files"), "the test", broker=broker_url)


@pytest.fixture(autouse=True)
def _prepared(queue: Queue) -> None:
    queue.admin.prepare_broker(["w"])


def send_status(publisher: RabbitPublisher, number: int, **fields: Any) -> None:
    said = {"v": 1, "from": "stranger", "message_id": f"m-{number}", **fields}
    message = Message(f"m-{number}", STATUS, "w", json.dumps(said).encode())
    assert publisher.publish([message]) == [""]


def next_of(consumer: RabbitConsumer) -> dict[str, Any]:
    """The next message of a queue, once there is one."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        for each in consumer.take(1, 0.5):
            consumer.ack([each.tag])
            envelope: dict[str, Any] = json.loads(each.body)
            return envelope
    raise AssertionError(f"no message came in time; trouble: {consumer.error!r}")


def test_what_is_said_is_taken_in_and_what_nobody_can_read_is_kept(
    queue: Queue, broker_url: str
) -> None:
    task = queue.submit(to="w", instructions="do it")
    publisher = RabbitPublisher(broker_url)
    loop = Ingest(queue._client.installation, SharedPublisher(publisher))
    send_status(publisher, 1, task_id=task.id, status="started")
    send_status(publisher, 1, task_id=task.id, status="started")
    assert publisher.publish([Message("bad", STATUS, "w", b"{")]) == [""]
    eventually(lambda: loop.run_once() == 0 and sum(loop.tally.counts.values()) >= 3)
    assert loop.tally.counts == {"accepted": 1, "duplicate": 1, "unreadable": 1}
    assert queue.task(task.id).holder == "stranger"
    send_status(publisher, 2, task_id=task.id, status="completed", summary="well")
    send_status(publisher, 3, task_id="task-unknown", status="completed", summary="what?")
    eventually(lambda: loop.run_once() == 0 and sum(loop.tally.counts.values()) >= 5)
    assert queue.task(task.id).state is State.COMPLETE
    assert loop.tally.counts["refused"] == 1
    (dead,) = dead_messages(broker_url, 10)
    assert dead.body == b"{" and "JSON" in dead.reason
    loop.close()
    publisher.close()


def test_the_whole_way_through_up_and_through_a_broker_that_lost_its_disk(
    queue: Queue, broker_url: str, rabbitmq_server: RabbitServer, tmp_path: Path
) -> None:
    with several_ups(tmp_path) as ups:
        up = ups.start("--no-workers")
        task = queue.submit(to="w", instructions="do it", reply_to="results.boss")
        hints = RabbitConsumer(broker_url, role_queue("w"))
        publisher = RabbitPublisher(broker_url)
        assert next_of(hints)["task_id"] == task.id
        send_status(publisher, 1, task_id=task.id, status="started")
        send_status(publisher, 2, task_id=task.id, status="completed", summary="well", result="yes")
        assert queue.wait(task.id, timeout=20).state is State.COMPLETE
        results = RabbitConsumer(broker_url, "results.boss")
        assert next_of(results)["status"] == "completed"
        for each in (hints, results, publisher):
            each.close()
        rabbitmq_server.wipe()
        later = queue.submit(to="w", instructions="again")
        fresh = RabbitConsumer(broker_url, role_queue("w"))
        assert next_of(fresh)["task_id"] == later.id
        fresh.close()
        assert up.end() == 0
        assert "Traceback" not in up.said
        assert "guest:guest" not in up.said
