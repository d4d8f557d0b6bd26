"""A coordinator's messages from the broker: one at a time, each held until it is done with.

Nothing is taken ahead: whoever thinks for an hour about one outcome keeps no other from somebody
else, and has only that one given out again if the broker hangs up.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from agentq.contracts.delivery import Received
from agentq.core.errors import AgentqError
from agentq.delivery.rabbitmq.consumer import as_received
from agentq.delivery.rabbitmq.pull_consumer import Tap


class RabbitMailbox:
    """Keeps `contracts.delivery.Mailbox` on RabbitMQ. Used by one thread.

    During an outage `take` gives nothing; it connects again by itself, and what was not settled
    comes again.
    """

    def __init__(self, url: str, queue: str) -> None:
        self._tap = Tap(url, queue, f"mailbox {queue}")
        self._unread: list[str] = []

    @property
    def problem(self) -> AgentqError | None:
        return self._tap.problem

    def unread(self) -> list[str]:
        unread, self._unread = self._unread, []
        return unread

    def take(self, timeout: float) -> Received | None:
        for delivery in self._tap.take(1, timeout):
            message = as_received(delivery, delivery.body or b"")
            if delivery.body is not None:
                return message
            self.put_aside(message, f"it has {delivery.size} bytes.")
        return None

    def away(self) -> AbstractContextManager[None]:
        return self._tap.away()

    def settle(self, tag: int) -> bool:
        return self._tap.settle(tag)

    def put_aside(self, message: Received, reason: str) -> None:
        if self._tap.reject(message.tag, reason):
            name = repr(message.id[:80]) if message.id else "without an id"
            self._unread.append(
                f"Message {name} in {self._tap.queue} went to the dead letters: {reason}"
            )

    def close(self) -> None:
        self._tap.close()
