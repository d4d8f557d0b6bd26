"""Pruning: tasks that ended long ago go, with their files; and what dead submitters left behind.

Never anything that a live task refers to: the ledger says what may go, and asks again under lock.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agentq.contracts.service_values import FilesLeft
from agentq.core.durations import DURATION_SECONDS_MAX
from agentq.daemon.loop import Loop

if TYPE_CHECKING:
    from agentq.client.queue import Queue

log = logging.getLogger("agentq.daemon")

EVERY_SECONDS = 3600.0
#: After files of deleted tasks could not be removed.
AGAIN_SECONDS = 300.0


class Prune(Loop):
    """Deletes what ended more than `keep` seconds ago; 0 keeps every task."""

    name = "prune"
    term = "prune"

    def __init__(self, queue: Queue, keep: int = 0, *, every: float = EVERY_SECONDS) -> None:
        super().__init__()
        self._queue = queue
        self._keep = keep
        self._every = every
        self._again = min(every, AGAIN_SECONDS)
        self._told = ""

    def run_once(self) -> float:
        try:
            # Names that nobody need remember and contexts that nobody wants go in any case.
            pruned = self._queue.prune(self._keep or DURATION_SECONDS_MAX)
        except FilesLeft as left:
            # The runner would come back within seconds, and each time look at every task.
            if left.why != self._told:
                self._told = left.why
                log.warning("prune: tries again in %.0f s: %s", self._again, left)
            self.tally.add("tasks deleted", left.deleted)
            return self._again
        self._told = ""
        self.tally.add("tasks deleted", pruned)
        return self._every
