"""Reconciliation: tasks that are ready and unknown to the broker are announced again.

Hints get lost: a queue is purged, a broker restarted, a worker drops a hint that it could not use.
So where a role has fewer hints than ready tasks, its oldest tasks are announced again, unless they
were lately. A duplicate costs one refused claim.

Roles with limits are left to the capacity loop: most of what is ready there could not start.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.core.effects import Announce
from agentq.daemon.loop import Loop, log
from agentq.daemon.outbound_messages import AT_ONCE, Mark, announce_again

if TYPE_CHECKING:
    from agentq.contracts.installation import Installation
    from agentq.daemon.shared_publisher import SharedPublisher

EVERY_SECONDS = 30.0
#: The relay announces what became ready more recently than this.
YOUNG_MS = 5_000
#: A hint is not published again before so long, or before its role's queue is empty.
AGAIN_SECONDS = 120.0
#: Hints per role and round. If more are missing, the next round follows at once.
ROUND_MAX = 2_000
_REMEMBERED_MAX = 100_000
#: How long to wait at most while the relay has more than one round of work.
_RELAY_WAIT_SECONDS = 30


class Reconcile(Loop):
    """Compares the depth of each role's queue with the ledger."""

    name = "reconcile"
    term = "reconcile"

    def __init__(
        self,
        installation: Installation,
        publisher: SharedPublisher,
        *,
        young_ms: int = YOUNG_MS,
    ) -> None:
        super().__init__()
        self._installation = installation
        self._service = installation.service
        self._publisher = publisher
        self._young_ms = young_ms
        #: By role: when each task, in its version, was last published again.
        self._published: dict[str, dict[Mark, float]] = {}
        self._connection = 0
        self._waited = 0

    def run_once(self) -> float:
        if self._waited < _RELAY_WAIT_SECONDS and self._relay_is_busy():
            self._waited += 1
            return 1.0
        self._waited = 0
        ready = self._unlimited_counts()
        more, young_ms = False, self._young_ms
        for role, count in ready.items():
            depth = self._publisher.depth(role)
            if self._connection != self._publisher.connections:
                # The broker may have lost what it was sent, by the relay too.
                young_ms = 0 if self._connection else young_ms
                self._published.clear()
                self._connection = self._publisher.connections
            published = self._recently_published(role, empty=not depth)
            if count > depth:
                before = self._service.now() - young_ms
                more = self._republish(role, count - depth, before, published) or more
        for role in self._published.keys() - ready.keys():
            del self._published[role]
        return 0.05 if more else EVERY_SECONDS

    def _relay_is_busy(self) -> bool:
        return len(self._service.outbox_batch(SYSTEM, Announce.lane, AT_ONCE)) == AT_ONCE

    def _unlimited_counts(self) -> dict[str, int]:
        limited = {role.name for role in self._service.roles(SYSTEM) if role.is_limited}
        counts = self._service.ready_counts(SYSTEM)
        return {role: count for role, count in counts.items() if role not in limited}

    def _recently_published(self, role: str, *, empty: bool) -> dict[Mark, float]:
        before = time.monotonic() - AGAIN_SECONDS
        published = self._published.get(role, {})
        if empty or len(published) > _REMEMBERED_MAX:
            published = {}
        self._published[role] = {mark: at for mark, at in published.items() if at > before}
        return self._published[role]

    def _republish(
        self, role: str, missing: int, before: int, published: dict[Mark, float]
    ) -> bool:
        """Announce so many that were ready before; True if some are left for the next round."""
        count = min(missing, ROUND_MAX)
        tasks = self._service.most_urgent_ready(SYSTEM, role, count, before, published)
        taken, reason = announce_again(self._installation, self._publisher, tasks)
        published.update(dict.fromkeys(taken, time.monotonic()))
        self.tally.add("announced again", len(taken))
        if reason:
            log.error("reconcile: the broker did not take hints for %s: %s.", role, reason)
            return False
        return missing > ROUND_MAX and len(tasks) == ROUND_MAX
