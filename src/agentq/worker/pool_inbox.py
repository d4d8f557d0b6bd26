"""What wakes one worker of many in a process: whoever hears all rings passes them on."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Sequence

from agentq.contracts.delivery import Hint


class PoolInbox:
    """Rung from another thread. Needs no listener of its own: no socket, no connection."""

    names_tasks = False
    error = ""

    def __init__(self) -> None:
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._control_received = False
        #: The number of a file that was closed may be another's at once.
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Let the worker look. Any thread may, also when the worker is over."""
        with self._lock:
            if self._bell >= 0:
                os.eventfd_write(self._bell, 1)

    def take(self, count: int, timeout: float, wake_fd: int = -1) -> list[Hint]:
        poller = select.poll()
        poller.register(self._bell, select.POLLIN)
        if wake_fd >= 0:
            poller.register(wake_fd, select.POLLIN)
        ready = poller.poll(max(timeout, 0) * 1000)
        if not any(fd == self._bell for fd, _ in ready):
            return []
        os.eventfd_read(self._bell)
        # A ring does not say whether it was for the role or the holder: it counts as both.
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
        """Let go of the file; a ring that comes later wakes nobody."""
        with self._lock:
            bell, self._bell = self._bell, -1
        os.close(bell)
