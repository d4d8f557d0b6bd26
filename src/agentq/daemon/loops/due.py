"""Due timers: ended leases, backoffs, delays, expiry, reminders. One column, one loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.daemon.loop import Loop

if TYPE_CHECKING:
    from agentq.wiring import Parts

#: A timer that was set meanwhile is late by no more than this: one look at an index.
_LOOK_SECONDS = 1.0


class Due(Loop):
    """Applies time to every task whose moment has come."""

    name = "due"
    term = "due"

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self._parts = parts

    def run_once(self) -> float:
        store = self._parts.store
        wake_at = self._parts.views.next_wake()
        left = (wake_at - store.now()) / 1000 if wake_at else _LOOK_SECONDS
        if left > 0:
            return min(left, _LOOK_SECONDS)
        changed = self._parts.ledger.tick()
        self.tally.add("moved by time", changed)
        # Nothing moved: the clock here is a little ahead, or somebody else has it locked.
        return 0.0 if changed else 0.05
