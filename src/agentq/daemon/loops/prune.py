"""Pruning: tasks that ended long ago go, with their files; and what dead submitters left behind.

Never anything that a live task refers to: the ledger says what may go, and asks again under lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.durations import DURATION_SECONDS_MAX
from agentq.daemon.loop import Loop

if TYPE_CHECKING:
    from agentq.client.queue import Queue

EVERY_SECONDS = 3600.0


class Prune(Loop):
    """Deletes what ended more than `keep` seconds ago; 0 keeps every task."""

    name = "prune"
    term = "prune"

    def __init__(self, queue: Queue, keep: int = 0, *, every: float = EVERY_SECONDS) -> None:
        super().__init__()
        self._queue = queue
        self._keep = keep
        self._every = every

    def run_once(self) -> float:
        # Names that nobody need remember and contexts that nobody wants go in any case.
        pruned = self._queue.prune(self._keep or DURATION_SECONDS_MAX)
        self.tally.add("tasks deleted", pruned)
        return self._every
