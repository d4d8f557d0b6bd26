"""Pruning: tasks that ended long ago go, with their files; and what dead submitters left behind.

Never anything that a live task refers to: the ledger says what may go, and asks again under lock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agentq.contracts.service_values import FilesLeft
from agentq.core.access import SYSTEM
from agentq.core.durations import DURATION_SECONDS_MAX
from agentq.daemon.loop import Loop

if TYPE_CHECKING:
    from agentq.contracts.service import Service

log = logging.getLogger("agentq.daemon")

EVERY_SECONDS = 3600.0
#: After files of deleted tasks could not be removed.
AGAIN_SECONDS = 300.0


class Prune(Loop):
    """Deletes what ended more than `keep` seconds ago; 0 keeps every task."""

    name = "prune"
    term = "prune"

    def __init__(self, service: Service, keep: int = 0, *, every: float = EVERY_SECONDS) -> None:
        super().__init__()
        self._service = service
        self._keep = keep
        self._every = every
        self._again = min(every, AGAIN_SECONDS)
        self._logged = ""

    def run_once(self) -> float:
        try:
            # Names that nobody need remember and contexts that nobody wants go in any case.
            seconds = self._keep or DURATION_SECONDS_MAX
            pruned = self._service.prune(SYSTEM, self._service.now() - seconds * 1000)
        except FilesLeft as left:
            # The runner would come back within seconds, and each time look at every task.
            if left.why != self._logged:
                self._logged = left.why
                log.warning("prune: tries again in %.0f s: %s", self._again, left)
            self.tally.add("tasks deleted", left.deleted)
            return self._again
        self._logged = ""
        self.tally.add("tasks deleted", pruned)
        return self._every
