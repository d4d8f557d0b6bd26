"""Hints by a doorbell: a ring says that something came, and the ledger says what."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.contracts.delivery import Hint
from agentq.contracts.doorbell import Doorbell, holder_topic, role_topic


class DoorbellInbox:
    """One ear for both: for the role, and for those who want this holder to look.

    A ring does not say which of the two it was, so it counts as both. To look once too often is
    cheap; a second ear would be a second connection to the database for each worker.
    """

    names_tasks = False
    #: A bell that cannot be heard costs delay: whoever waits here looks by itself anyway.
    error = ""

    def __init__(self, doorbell: Doorbell, role: str, holder: str) -> None:
        self._waiter = doorbell.listen((role_topic(role), holder_topic(holder)))
        self._control_received = False

    def take(self, count: int, timeout: float, wake_fd: int = -1) -> list[Hint]:
        if not self._waiter.wait(timeout, wake_fd):
            return []
        self._control_received = True
        return [Hint()] if count > 0 else []

    @property
    def control_received(self) -> bool:
        control_received, self._control_received = self._control_received, False
        return control_received

    def settle(self, hints: Sequence[Hint]) -> None:
        """A ring is over when it was heard."""

    def reject(self, hints: Sequence[Hint], reason: str) -> None:
        """A ring names nothing that could be kept."""

    def close(self) -> None:
        self._waiter.close()
