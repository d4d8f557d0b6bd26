"""The publisher that the loops of one process share, each in its own thread, a batch at a time.

It also notices a new connection: the broker may have lost its messages, and hints must be published
again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from agentq.contracts.delivery import Message, Publisher
from agentq.core.errors import Unavailable

T = TypeVar("T")


class SharedPublisher:
    """Publishes for all loops of this process."""

    def __init__(self, publisher: Publisher, returned: Callable[[], None] = lambda: None) -> None:
        self._publisher = publisher
        self._returned = returned
        self._guard = threading.Lock()
        self._away = False
        #: How many connections there were.
        self.connections = 0

    def publish(self, messages: Sequence[Message]) -> list[str]:
        """Send all; per message "" once the broker has it, else why not."""
        return self._locked(lambda: self._publisher.publish(messages)) if messages else []

    def depth(self, role: str) -> int:
        """How many hints wait in the queue of a role."""
        return self._locked(lambda: self._publisher.depth(role))

    def _locked(self, call: Callable[[], T]) -> T:
        with self._guard:
            try:
                answer = call()
            except Unavailable:
                self._away = True
                raise
            # A publisher that counts its connections shows those that broke in between, too.
            connections = int(getattr(self._publisher, "connections", 0))
            back = self._away or 0 < self.connections < connections
            self._away, self.connections = False, connections
        if back:
            self._returned()
        return answer
