"""Due timers: ended leases, backoffs, delays, expiry, reminders. One column, one loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.daemon.loop import Loop

if TYPE_CHECKING:
    from agentq.contracts.service import Service

#: A timer that was set meanwhile is late by no more than this: one look at an index.
_LOOK_SECONDS = 1.0


class Due(Loop):
    """Applies time to every task whose moment has come."""

    name = "due"
    term = "due"

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    def run_once(self) -> float:
        wake_at = self._service.next_wake(SYSTEM)
        left = (wake_at - self._service.now()) / 1000 if wake_at else _LOOK_SECONDS
        if left > 0:
            return min(left, _LOOK_SECONDS)
        changed = self._service.tick(SYSTEM)
        self.tally.add("moved by time", changed)
        # Nothing moved: the clock here is a little ahead, or somebody else has it locked.
        return 0.0 if changed else 0.05
