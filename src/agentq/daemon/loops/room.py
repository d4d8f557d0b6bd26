"""Room: tasks that had to wait although they were ready are announced when they may start.

A role may run so many at once, a task may need what another holds. Whoever follows a hint then is
refused, and the hint is gone. So when there is room again, as many of the most urgent are announced
as fit, and no more: the others would only be refused again.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import ROOM_TOPIC
from agentq.core.task import NOTHING
from agentq.daemon.again import announce_again, most_urgent
from agentq.daemon.loop import Loop, log
from agentq.ledger.codec import limits_of
from agentq.ledger.costs import spent_today

if TYPE_CHECKING:
    from agentq.contracts.store import Reader, RoleRow
    from agentq.core.task import Task
    from agentq.daemon.post import Post
    from agentq.wiring import Parts

#: The net under a ring that nobody gave: some ends are told by processes that know no limits.
_POLL_SECONDS = 5.0
#: Where the number at once is not what is limited, so many are tried.
_FEW = 10
#: Waiting for resources is looked for less often: there every role has to be looked at.
_RESOURCES_SECONDS = 2.0
_LOOKED_THROUGH = 100


class Room(Loop):
    """Minds roles with limits, and tasks with resources."""

    name = "room"
    #: With reconciliation, in one process: both say again what was said before.
    term = "reconcile"
    spacing = 0.05

    def __init__(self, parts: Parts, post: Post) -> None:
        super().__init__()
        self._parts = parts
        self._post = post
        self._resources_at = 0.0

    def topics(self) -> frozenset[str]:
        return frozenset({ROOM_TOPIC})

    def run_once(self) -> float:
        roles = self._parts.store.read(lambda reader: reader.roles())
        for row in roles:
            if row.is_limited:
                fitting = self._parts.store.read(partial(_room, row=row))
                self._announce(row.name, fitting)
        if time.monotonic() >= self._resources_at:
            self._resources_at = time.monotonic() + _RESOURCES_SECONDS
            for row in roles:
                if not row.is_limited:
                    self._announce(row.name, _FEW, with_resources=True)
        return _POLL_SECONDS

    def _announce(self, role: str, fitting: int, *, with_resources: bool = False) -> None:
        """Say so many again, less those that are said already and wait to be heard."""
        if fitting <= 0:
            return
        tasks = self._waiting(role, fitting, with_resources=with_resources)
        if not tasks:
            return
        missing = fitting - self._post.depth(role)
        if missing <= 0:
            return
        taken, reason = announce_again(self._parts, self._post, tasks[:missing])
        self.tally.add("announced as there is room", len(taken))
        if reason:
            log.error("room: the broker did not take hints for %s: %s.", role, reason)

    def _waiting(self, role: str, count: int, *, with_resources: bool) -> list[tuple[int, Task]]:
        store = self._parts.store
        if not with_resources:
            return most_urgent(store, role, count, store.now())
        # Those that need nothing are announced once, by the relay, and hold nobody up.
        tasks = most_urgent(store, role, _LOOKED_THROUGH, store.now())
        return [(key, task) for key, task in tasks if task.spec.resources][:count]


def _room(reader: Reader, row: RoleRow) -> int:
    """How many tasks of a role may be claimed now; a few if any number may."""
    limits = limits_of(row)
    room, _ = limits.room(*reader.occupancy(row.id))
    if room and limits.daily != NOTHING:
        today = spent_today(reader, row.name, reader.now())
        if limits.used_up(today):
            return 0
    return room if room >= 0 else _FEW
