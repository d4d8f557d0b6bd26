"""Wakes by events: follows the log, and wakes agents whose business something is."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.core.access import SYSTEM
from agentq.daemon.loop import Loop
from agentq.organisation.wake_events import concerned, touched, waits_for_events, wake_now
from agentq.settings.profile_changes import ProfileFolder

if TYPE_CHECKING:
    from agentq.contracts.service import Service

#: How often files are looked at, those that wait for their hours, and everybody: a question climbs
#: by the clock, and what was told before this process led is in nobody's log but the ledger's.
_FILES_SECONDS, _LATER_SECONDS, _ALL_SECONDS = 5.0, 30.0, 600.0
_AT_ONCE = 500


class WakesLoop(Loop):
    """Any number of processes may wake: the same wake comes once."""

    name = "wakes"
    term = "wakes"
    topics = frozenset({EVENTS_TOPIC})

    def __init__(self, service: Service, folder: Path) -> None:
        super().__init__()
        self._service = service
        self._folder = ProfileFolder(folder)
        self._files_at = self._later_at = self._all_at = 0.0
        self._position = -1
        self._later: set[str] = set()

    def run_once(self) -> float:
        now = time.monotonic()
        if now >= self._files_at:
            self._files_at = now + _FILES_SECONDS
            change = self._folder.look()
            if change.added or change.changed:
                self._all_at = 0.0
        known = self._folder.profiles
        if not waits_for_events(known):
            self._position = -1
            return _FILES_SECONDS
        names = self._concerned()
        if now >= self._all_at:
            self._all_at = now + _ALL_SECONDS
            names = {each.name for each in waits_for_events(known)}
        if now >= self._later_at:
            self._later_at = now + _LATER_SECONDS
            names |= self._later
            self._later = set()
        if names:
            woken, later = wake_now(self._service, names, known)
            self._later |= later
            self.tally.add("woken", woken)
        return _FILES_SECONDS

    def _concerned(self) -> set[str]:
        """Whose business is what was told since the last round."""
        service = self._service
        if self._position < 0:
            self._position = service.last_position(SYSTEM)
            self._all_at = 0.0
            return set()
        names: set[str] = set()
        while entries := service.events_after(SYSTEM, self._position, _AT_ONCE):
            self._position = entries[-1].position
            if ids := touched(entries):
                tasks = service.tasks_by_id(SYSTEM, ids)
                names |= concerned(tasks.values(), self._folder.profiles)
        return names
