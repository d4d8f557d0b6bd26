"""Hints by a doorbell: a ring says that something came, and the ledger says what."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.contracts.delivery import Hint
from agentq.contracts.doorbell import Doorbell, holder_topic, role_topic


class DoorbellInbox:
    """One waiter for two topics: that of the role, and that of this holder.

    A ring does not say which of the two it was, so it counts as both. To look once too often is
    cheap; a second waiter would be a second connection to the database for each worker.
    """

    names_tasks = False
    #: A doorbell that fails costs delay only: whoever waits here polls anyway.
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
        """Do nothing: a ring needs no receipt."""

    def reject(self, hints: Sequence[Hint], reason: str) -> None:
        """Do nothing: a ring carries no message that could be kept."""

    def close(self) -> None:
        self._waiter.close()
