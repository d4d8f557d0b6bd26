"""A coordinator's messages from the broker: one at a time, each held until it is done with.

Nothing is taken ahead: whoever thinks for an hour about one outcome keeps no other from somebody
else, and has only that one given out again if the broker hangs up.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from agentq.contracts.delivery import ReceivedMessage
from agentq.core.errors import AgentqError
from agentq.delivery.rabbitmq.consumer import as_received
from agentq.delivery.rabbitmq.pull_consumer import PullConsumer


class RabbitMailbox:
    """Keeps `contracts.delivery.Mailbox` on RabbitMQ. Used by one thread.

    During an outage `take` gives nothing; it connects again by itself, and what was not settled
    comes again.
    """

    def __init__(self, url: str, queue: str) -> None:
        self._pull_consumer = PullConsumer(url, queue, f"mailbox {queue}")
        self._unread: list[str] = []

    @property
    def problem(self) -> AgentqError | None:
        return self._pull_consumer.problem

    def unread(self) -> list[str]:
        unread, self._unread = self._unread, []
        return unread

    def take(self, timeout: float) -> ReceivedMessage | None:
        for delivery in self._pull_consumer.take(1, timeout):
            message = as_received(delivery, delivery.body or b"")
            if delivery.body is not None:
                return message
            self.put_aside(message, f"it has {delivery.size} bytes.")
        return None

    def away(self) -> AbstractContextManager[None]:
        return self._pull_consumer.away()

    def settle(self, tag: int) -> bool:
        return self._pull_consumer.settle(tag)

    def put_aside(self, message: ReceivedMessage, reason: str) -> None:
        if self._pull_consumer.reject(message.tag, reason):
            name = repr(message.id[:80]) if message.id else "without an id"
            self._unread.append(
                f"Message {name} in {self._pull_consumer.queue} went to the dead letters: {reason}"
            )

    def close(self) -> None:
        self._pull_consumer.close()
