"""Capacity: ready tasks that had to wait are announced when they may start.

A claim beyond the limit of a role, or for a resource that another task holds, is refused and its
hint gone. So when there is capacity again, as many of the most urgent tasks are announced as fit;
more would only be refused again.

The relay wakes this loop, as each listener costs every submission a little. A ring does not name
the role. A role whose announced tasks have started is checked at the next ring, the others less and
less often, so that a hundred waiting roles cost little.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.daemon.loop import Loop, log
from agentq.daemon.outbound_messages import Mark, announce_again

if TYPE_CHECKING:
    from agentq.contracts.installation import Installation
    from agentq.contracts.service_values import RoleStanding
    from agentq.core.task import Task, Usage
    from agentq.daemon.shared_publisher import SharedPublisher

_PAUSE_SECONDS = 0.25
#: The longest pause between two checks of a role. Some processes know no limits and do not ring
#: when a task ends; and tasks that need resources may be in any role.
_LIMITED_SECONDS_MAX = 5.0
_OTHERS_SECONDS_MAX = 10.0
#: Pause after the broker refused hints of a role.
_REFUSED_SECONDS = 60.0
#: How many are announced where the number of running tasks is not limited.
_FEW = 10
#: How many ready tasks are looked through for some that could start.
_LOOKED_THROUGH = 100
#: A task that was announced and has not started is not announced again for so long.
_AGAIN_SECONDS = 10.0


@dataclass(slots=True)
class _Visit:
    """When a role is checked again, after which pause, and what was announced when."""

    due: float = 0.0
    pause: float = 0.0
    published: dict[Mark, float] = field(default_factory=dict)


class CapacityLoop(Loop):
    """Announces tasks of limited roles, and tasks with resources, when they may start."""

    name = "room"
    #: In the relay's process, which wakes it.
    term = "relay"

    def __init__(self, installation: Installation, publisher: SharedPublisher) -> None:
        super().__init__()
        self._installation = installation
        self._service = installation.service
        self._publisher = publisher
        self._visits: dict[str, _Visit] = {}
        self._ran_at = -_PAUSE_SECONDS
        #: When the next task of the role that is visited may start by a rate; 0: no rate says.
        self._next_at = 0

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
        if self._next_at and not reason:
            # A rate names the moment: nobody rings then.
            left = (self._next_at - self._service.now()) / 1000
            visit.due = min(visit.due, time.monotonic() + max(left, _PAUSE_SECONDS))

    def _announce(self, role: RoleStanding, visit: _Visit) -> tuple[int, bool, str]:
        """Announce as many as fit, less the hints that still wait in the queue. Return how many,
        whether earlier ones did not start, and why the broker refused others."""
        capacity = self._service.capacity(SYSTEM, role.name)
        self._next_at = capacity.next_at
        count = capacity.free if capacity.free >= 0 else _FEW
        tasks = self._startable(role, count, capacity.today) if count else []
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
        """The most urgent tasks that no limit or resource known here holds up."""
        looked_through, now = max(count, _LOOKED_THROUGH), self._service.now()
        tasks = self._service.most_urgent_ready(SYSTEM, role.name, looked_through, now)
        if not role.is_limited:
            # Tasks without resources are announced once, by the relay.
            tasks = [task for task in tasks if task.spec.resources]
        wanted = sorted({name for task in tasks for name in task.spec.resources})
        keys = self._service.key_limits(SYSTEM, wanted) if wanted else {}
        moments = [key.next_at for key in keys.values() if key.next_at]
        self._next_at = min(moments, default=0)
        free = {name: key.free for name, key in keys.items()}
        found: list[Task] = []
        for task in tasks:
            names = set(task.spec.resources)
            if all(free[name] for name in names) and not role.limits.too_small_for(task, today):
                free |= {name: free[name] - 1 for name in names}
                found.append(task)
        return found
