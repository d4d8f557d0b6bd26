"""Whole messages from one queue: what workers report, and results for a coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentq.delivery.rabbitmq.pull_consumer import PullConsumer
from agentq.delivery.rabbitmq.wire import Delivery


@dataclass(frozen=True, slots=True)
class RabbitMessage:
    """A message. `tag` is the receipt that `ack` and `reject` need."""

    id: str
    body: bytes
    tag: int
    headers: Mapping[str, Any] = field(default_factory=dict)
    redelivered: bool = False
    routing_key: str = ""
    #: Where the sender waits for an answer, and by which word it knows what it is an answer to.
    reply_to: str = ""
    correlation_id: str = ""


class RabbitConsumer:
    """Messages of one queue, taken by as many as are wanted. Used by one thread.

    During an outage `take` gives nothing and `error` says why; it connects again by itself, and
    what was not acknowledged comes again.
    """

    def __init__(self, url: str, queue: str) -> None:
        self._pull_consumer = PullConsumer(url, queue, f"consumer {queue}")
        #: What the last `take` found too long: without its body, and how many bytes that had.
        self.too_long: list[tuple[RabbitMessage, int]] = []

    @property
    def error(self) -> str:
        """Why there is no broker; "" if there is one."""
        return self._pull_consumer.error

    def take(self, count: int, timeout: float, wake_fd: int = -1) -> list[RabbitMessage]:
        """Up to `count` as soon as there are any; none after `timeout` seconds, or when the file
        `wake_fd` can be read. What is too long to be an envelope goes to the dead letters;
        `too_long` lists it, for whoever answers.
        """
        taken = []
        self.too_long = []
        for delivery in self._pull_consumer.take(count, timeout, wake_fd):
            if delivery.body is None:
                self._pull_consumer.reject(delivery.tag, f"it has {delivery.size} bytes")
                self.too_long.append((as_received(delivery, b""), delivery.size))
                continue
            taken.append(as_received(delivery, delivery.body))
        return taken

    def ack(self, tags: Iterable[int]) -> None:
        """Acknowledge messages that are done with, in one frame if possible."""
        self._pull_consumer.ack(tags)

    def reject(self, tag: int, reason: str) -> None:
        """Nobody can read this: to the dead letters with it, and the reason."""
        self._pull_consumer.reject(tag, reason)

    def give_back(self, tags: Iterable[int]) -> None:
        """These cannot be seen to now; they come again, to whoever takes next."""
        self._pull_consumer.give_back(tags)

    def close(self) -> None:
        """What was not acknowledged comes again, to whoever takes next."""
        self._pull_consumer.close()


def as_received(delivery: Delivery, body: bytes) -> RabbitMessage:
    """Return a delivery as the contract's message."""
    properties = delivery.properties()
    headers = properties.get("application_headers")
    return RabbitMessage(
        id=str(properties.get("message_id", "")),
        body=body,
        tag=delivery.tag,
        headers=headers if isinstance(headers, dict) else {},
        redelivered=delivery.redelivered,
        routing_key=delivery.routing_key,
        reply_to=str(properties.get("reply_to", "")),
        correlation_id=str(properties.get("correlation_id", "")),
    )
