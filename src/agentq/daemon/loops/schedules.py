"""Schedules: what is due is submitted; until then the loop sleeps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import SCHEDULES_TOPIC
from agentq.contracts.schedule_values import DeclaredSchedule, ScheduleState
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, Unavailable
from agentq.daemon.loop import Loop, log

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.schedules.sources import ScheduleSource

#: How often it is looked whether files were written.
LOOK_SECONDS = 5.0
#: How many rows that are due, or will be first, are read at once.
_AT_ONCE = 100
#: Pause after a round in which something was due and nothing could be done.
_AGAIN_SECONDS = 0.2


class SchedulesLoop(Loop):
    """Fires schedules. Any number of processes may: the ledger lets each occurrence come once."""

    name = "schedules"
    term = "schedules"
    topics = frozenset({SCHEDULES_TOPIC})

    def __init__(self, service: Service, sources: Sequence[ScheduleSource]) -> None:
        super().__init__()
        self._service = service
        self._sources = {source.kind: source for source in sources}
        self._look_at = 0.0

    def run_once(self) -> float:
        if time.monotonic() >= self._look_at:
            for source in self._sources.values():
                self.tally.add("changed", source.sync(self._service))
            self._look_at = time.monotonic() + LOOK_SECONDS
        first = self._service.waking_schedules(SYSTEM, _AT_ONCE)
        now = self._service.now()
        due = [each for each in first if each.wake_at <= now and each.kind in self._sources]
        if due:
            done = sum(self._fire(each, now) for each in due)
            return 0.0 if done else _AGAIN_SECONDS
        until_look = self._look_at - time.monotonic()
        waiting = [each.wake_at for each in first if each.wake_at > now]
        return max(0.0, min([until_look, *((at - now) / 1000 for at in waiting[:1])]))

    def _fire(self, state: ScheduleState, now: int) -> bool:
        """Carry out what is due of one schedule; whether its row has changed."""
        try:
            planned = self._sources[state.kind].firing(self._service, state, now)
            if planned is None:
                return True
            fired = self._service.fire_schedule(SYSTEM, planned.firing, planned.contexts)
        except Unavailable:
            raise
        except AgentqError as error:
            if error.code in ("early", "repeated"):  # clocks differ, or the row has changed
                return False
            log.warning("schedules: %s does not run: %s", state.name, error.cause)
            # It is due again when the file is mended.
            broken = DeclaredSchedule(state.name, digest=state.digest, problem=error.cause)
            return bool(self._service.declare_schedules(SYSTEM, [broken]))
        if fired.done:
            self.tally.add("submitted", len(fired.tasks))
        return fired.done
