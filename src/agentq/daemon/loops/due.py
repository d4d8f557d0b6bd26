"""Due timers: ended leases, backoffs, delays, expiry, reminders. One column, one loop.

It also has events numbered now and then. On PostgreSQL readers of the log do that; after weeks
without one, the first reader would have millions to number.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import SUBMISSIONS_TOPIC
from agentq.core.access import SYSTEM
from agentq.daemon.loop import Loop

if TYPE_CHECKING:
    from agentq.contracts.service import Service

#: A timer that is set meanwhile is late by no more than this.
_LOOK_SECONDS = 1.0
_NUMBER_SECONDS = 30.0


class Due(Loop):
    """Applies time to every task whose moment has come."""

    name = "due"
    term = "due"
    #: Submissions in their submitters' own transactions are due as soon as those commit.
    topics = frozenset({SUBMISSIONS_TOPIC})

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service
        self._number_at = 0.0

    def run_once(self) -> float:
        if time.monotonic() >= self._number_at:
            self._service.last_position(SYSTEM)
            self._number_at = time.monotonic() + _NUMBER_SECONDS
        wake_at = self._service.next_wake(SYSTEM)
        left = (wake_at - self._service.now()) / 1000 if wake_at else _LOOK_SECONDS
        if left > 0:
            return min(left, _LOOK_SECONDS)
        changed = self._service.tick(SYSTEM)
        self.tally.add("moved by time", changed)
        # Nothing moved: the clock here is a little ahead, or another process has it locked.
        return 0.0 if changed else 0.05
