"""Wakes by events (`wake: {on: [mention, blocked]}`): who should be woken now, and is."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from agentq.core.access import SYSTEM
from agentq.core.errors import Conflict
from agentq.core.schedule import awaits_approval
from agentq.organisation.waking import wake_of
from agentq.settings.profiles import chain_of_command

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.core.task import Task
    from agentq.core.triggers import LogEntry
    from agentq.settings.profiles import Profile

log = logging.getLogger("agentq.daemon.wakes")

#: What happens to a task that may be somebody's business.
EVENTS = frozenset(
    {"submitted", "commented", "blocked", "failed", "expired", "completed", "reported",
     "escalated", "approval_timed_out", "cancelled", "rejected"}
)  # fmt: skip


def waits_for_events(known: Mapping[str, Profile]) -> list[Profile]:
    """The agents that some events wake."""
    return [each for each in known.values() if each.wake.on]


def touched(entries: Iterable[LogEntry]) -> list[str]:
    """The tasks of which something is told here that may wake somebody."""
    return list(dict.fromkeys(each.task_id for each in entries if each.event.kind in EVENTS))


def concerned(tasks: Iterable[Task], known: Mapping[str, Profile]) -> set[str]:
    """The agents whose business these tasks may be: whoever asked for them, the manager of whoever
    does them, who is mentioned; and for approvals all that wait for such."""
    # Also of agents without a tool, whose tasks somebody does by hand.
    by_role = {role: each.name for each in known.values() for role in each.roles}
    found: set[str] = set()
    for task in tasks:
        found.add(by_role.get(task.spec.sender, task.spec.sender))
        found.update(each.name for each in task.details.mentions)
        doer = by_role.get(task.to, "")
        found.update(chain_of_command(known, doer)[:1])
        if doer and known[doer].wake.on:
            found.add(doer)  # its wake is over: what has come up meanwhile is next
        if awaits_approval(task.spec, task.details) or task.details.asked_of:
            found.update(each.name for each in known.values() if "approval" in each.wake.on)
    return {each for each in found if each in known and known[each].wake.on}


def wake_now(
    service: Service, names: Collection[str], known: Mapping[str, Profile]
) -> tuple[int, set[str]]:
    """Wake those of these agents for whom something has come up; how many were, and who must be
    looked at again later: outside their hours, or still busy with the wake before."""
    woken, later, now = 0, set(), service.now()
    for name in sorted(names):
        profile = known.get(name)
        if profile is None or not profile.wake.on:
            continue
        if not profile.hours.is_open(now):
            later.add(name)
            continue
        found = wake_of(service, SYSTEM, profile, known, now, kinds=profile.wake.on)
        if found.spec is None:
            continue  # a wake that is not over says so by its own event when it is
        try:
            service.submit(SYSTEM, [found.spec])
        except Conflict:
            continue  # somebody else was faster, and saw something else
        woken += 1
        log.info("wakes: %s is woken: %s", name, found.spec.title)
    return woken, later
