"""Pruning: deletes tasks that ended long ago with their files, and what dead submitters left.

Never what a live task refers to: the ledger decides, and checks again under lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.service_values import FilesLeft
from agentq.core.access import SYSTEM
from agentq.core.durations import DURATION_SECONDS_MAX
from agentq.daemon.loop import Loop, log

if TYPE_CHECKING:
    from agentq.contracts.service import Service

EVERY_SECONDS = 3600.0
#: After files of deleted tasks could not be removed.
AGAIN_SECONDS = 300.0


class Prune(Loop):
    """Deletes what ended more than `keep` seconds ago; 0 keeps every task."""

    name = "prune"
    term = "prune"

    def __init__(self, service: Service, keep: int = 0) -> None:
        super().__init__()
        self._service = service
        self._keep = keep
        self._logged = ""

    def run_once(self) -> float:
        try:
            # Expired idempotency keys and contexts of no task are removed in any case.
            seconds = self._keep or DURATION_SECONDS_MAX
            pruned = self._service.prune(SYSTEM, self._service.now() - seconds * 1000)
        except FilesLeft as left:
            # Not an error of the round: the runner would retry within seconds, over all tasks.
            if left.why != self._logged:
                self._logged = left.why
                log.warning("prune: tries again in %.0f s: %s", AGAIN_SECONDS, left)
            self.tally.add("tasks deleted", left.deleted)
            return AGAIN_SECONDS
        self._logged = ""
        self.tally.add("tasks deleted", pruned)
        return EVERY_SECONDS
