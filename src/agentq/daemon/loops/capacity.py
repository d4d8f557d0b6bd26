"""Capacity: ready tasks that had to wait are announced when they may start.

A role may run so many at once, a task may need what another holds. Whoever follows a hint then is
refused, and the hint is gone. So when there is room again, as many of the most urgent that could
start are announced as fit, and no more: the others would only be refused again.

The relay wakes this loop: each connection that listens costs every submission a little. A ring does
not say which role it was about. Roles where what was announced has started are looked at again with
the next ring; the others less and less often. So a hundred roles that wait cost little while one is
busy, and so do tasks that are held up by what cannot be told from here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.daemon.loop import Loop, log
from agentq.daemon.republish import Mark, announce_again

if TYPE_CHECKING:
    from agentq.contracts.installation import Installation
    from agentq.contracts.service_values import RoleStanding
    from agentq.core.task import Task, Usage
    from agentq.daemon.shared_publisher import SharedPublisher

_PAUSE_SECONDS = 0.25
#: How long a role is left alone at most. Some ends are told by processes that know no limits, and
#: ring for nobody; and tasks that need resources may be in any role.
_LIMITED_SECONDS_MAX = 5.0
_OTHERS_SECONDS_MAX = 10.0
#: A role whose queue does not take hints is left alone for so long, and complained of as often.
_REFUSED_SECONDS = 60.0
#: Where the number at once is not what is limited, so many are announced.
_FEW = 10
#: How many ready tasks are looked through for some that could start.
_LOOKED_THROUGH = 100
#: A task that was announced and has not started is passed over for so long.
_AGAIN_SECONDS = 10.0


@dataclass(slots=True)
class _Visit:
    """When a role is looked at again, after which pause, and what was announced when."""

    due: float = 0.0
    pause: float = 0.0
    published: dict[Mark, float] = field(default_factory=dict)


class CapacityLoop(Loop):
    """Announces tasks of limited roles, and tasks with resources, when they may start."""

    name = "room"
    #: With the relay, in one process: that wakes it.
    term = "relay"

    def __init__(self, installation: Installation, publisher: SharedPublisher) -> None:
        super().__init__()
        self._installation = installation
        self._service = installation.service
        self._publisher = publisher
        self._visits: dict[str, _Visit] = {}
        self._ran_at = -_PAUSE_SECONDS

    def run_once(self) -> float:
        early = self._ran_at + _PAUSE_SECONDS - time.monotonic()
        if early > 0:
            return early  # one round for many rings
        self._ran_at = time.monotonic()
        roles = self._service.roles(SYSTEM)
        self._visits = {role.name: self._visits.get(role.name, _Visit()) for role in roles}
        for role in roles:
            visit = self._visits[role.name]
            if time.monotonic() >= visit.due:
                self._visit(role, visit)
        next_due = min((visit.due for visit in self._visits.values()), default=0.0)
        return min(max(next_due - time.monotonic(), _PAUSE_SECONDS), _LIMITED_SECONDS_MAX)

    def _visit(self, role: RoleStanding, visit: _Visit) -> None:
        published, in_vain, reason = self._announce(role, visit)
        self.tally.add("announced as there is room", published)
        if reason:
            log.error("room: the broker did not take hints for %s: %s.", role.name, reason)
            visit.pause = _REFUSED_SECONDS
        elif published and not in_vain:
            visit.pause = 0.0
        else:
            longest = _LIMITED_SECONDS_MAX if role.is_limited else _OTHERS_SECONDS_MAX
            visit.pause = min(max(visit.pause * 2, _PAUSE_SECONDS), longest)
        visit.due = time.monotonic() + visit.pause

    def _announce(self, role: RoleStanding, visit: _Visit) -> tuple[int, bool, str]:
        """Say as many as there is room for, less those that are said already and wait to be heard;
        how many it were, whether earlier ones did not start, and why not the others."""
        free, today = self._service.capacity(SYSTEM, role.name)
        count = free if free >= 0 else _FEW
        tasks = self._startable(role, count, today) if count else []
        before = time.monotonic() - _AGAIN_SECONDS
        visit.published = {mark: at for mark, at in visit.published.items() if at > before}
        fresh = [task for task in tasks if (task.id, task.version) not in visit.published]
        in_vain = len(fresh) < len(tasks)
        missing = count - self._publisher.depth(role.name) if fresh else 0
        if missing <= 0:
            return 0, in_vain, ""
        taken, reason = announce_again(self._installation, self._publisher, fresh[:missing])
        visit.published |= dict.fromkeys(taken, time.monotonic())
        return len(taken), in_vain, reason

    def _startable(self, role: RoleStanding, count: int, today: Usage) -> list[Task]:
        """The most urgent that nothing holds up, as far as can be told here."""
        looked_through, now = max(count, _LOOKED_THROUGH), self._service.now()
        tasks = self._service.most_urgent_ready(SYSTEM, role.name, looked_through, now)
        if not role.is_limited:
            # Those that need nothing are announced once, by the relay, and hold nobody up.
            tasks = [task for task in tasks if task.spec.resources]
        wanted = sorted({name for task in tasks for name in task.spec.resources})
        taken = set(self._service.resource_holders(SYSTEM, wanted))
        found: list[Task] = []
        for task in tasks:
            if taken.isdisjoint(task.spec.resources) and not role.limits.too_small_for(task, today):
                taken.update(task.spec.resources)
                found.append(task)
        return found
