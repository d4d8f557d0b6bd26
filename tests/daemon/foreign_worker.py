"""A worker that is no agentq, as tests play one: it says things, and reads what it is told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import amqp

from agentq.client.queue import Queue
from agentq.contracts.delivery import INGEST, STATUS
from agentq.daemon.loop import Runner
from agentq.daemon.loops.ingest import Ingest
from agentq.daemon.shared_publisher import SharedPublisher
from agentq.delivery.rabbitmq.publisher import RabbitPublisher
from tests.delivery.foreign_messages import stranger

ROLE = "w"
_numbers = count(1)


class ForeignWorker:
    """Speaks on a channel of its own, under any name."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self.address: str = channel.queue_declare("", exclusive=True).queue
        #: By the id of what they answer; the newest counts.
        self.answers: dict[str, dict[str, Any]] = {}
        channel.basic_consume(self.address, no_ack=True, callback=self._answered)

    def _answered(self, message: Any) -> None:
        answer = json.loads(message.body)
        self.answers[answer["in_reply_to"]] = answer

    def send_status(
        self, status: str, task_id: str, sender: str = "stranger", **fields: Any
    ) -> str:
        """Say it, and the id that its answer will name. `role`: for which it is said."""
        role = fields.pop("role", ROLE)
        said = {"v": 1, "task_id": task_id, "from": sender, "status": status, **fields}
        said.setdefault("message_id", f"m-{next(_numbers)}")
        self.send(json.dumps(said).encode(), role)
        return str(said["message_id"])

    def send(self, body: bytes, role: str = ROLE, **properties: Any) -> None:
        """Send anything at all."""
        properties = {"reply_to": self.address, "delivery_mode": 2, **properties}
        self._channel.basic_publish_confirm(amqp.Message(body, **properties), STATUS, role)

    def listen(self, seconds: float = 0.05) -> None:
        try:
            self._channel.connection.drain_events(timeout=seconds)
        except TimeoutError:
            return

    def answer(self, id: str, seconds: float = 10) -> dict[str, Any]:
        """The answer to this message, once it is there."""
        deadline = time.monotonic() + seconds
        while id not in self.answers:
            assert time.monotonic() < deadline, f"nobody answered {id}"
            self.listen()
        return self.answers[id]

    def ask(self, status: str, task_id: str, sender: str = "stranger", **fields: Any) -> str:
        """Say it and wait; "accepted", or the code of the refusal."""
        answer = self.answer(self.send_status(status, task_id, sender, **fields))
        return str(answer.get("code", answer["status"]))

    def waiting(self) -> int:
        """How many messages nobody has taken yet."""
        return int(self._channel.queue_declare(INGEST, passive=True).message_count)


@contextmanager
def connect_foreign_worker(url: str) -> Iterator[ForeignWorker]:
    with stranger(url) as channel:
        yield ForeignWorker(channel)


@contextmanager
def ingesting(queue: Queue, url: str) -> Iterator[Ingest]:
    """The loop in a thread of its own, as `agentq up` runs it."""
    publisher = RabbitPublisher(url)
    loop = Ingest(queue._client.installation, SharedPublisher(publisher))
    runner = Runner(loop, queue._client.installation.doorbell)
    runner.start()
    try:
        yield loop
        assert runner.alive, "it died"
    finally:
        runner.stop()
        assert runner.join(10)
        publisher.close()
