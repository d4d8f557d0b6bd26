"""What caused a task, and when agents that cause each other's tasks are stopped.

A task that an attempt submits has its task as parent; one that wakes an agent names, by a label,
what it is woken for. So every task knows its cause, and chains of causes can be followed. Agents
that only cause more work go round in circles: caps on how long such a chain grows within a day, on
how much one task brings forth and on how fast a role submits put an end to that.
"""

from __future__ import annotations

import msgspec

from agentq.core.limits import DAY_MS
from agentq.core.task import Spec, Task

#: The label that names the task which a task is about, where that is not its parent.
CAUSE_LABEL = "caused_by"
HOUR_MS = 3600 * 1000


class LoopCaps(msgspec.Struct, frozen=True):
    """What agents may cause by themselves; 0 is no cap."""

    #: How many tasks in a row, each the cause of the next, within a day.
    depth: int = 25
    #: How many tasks the attempts at one task may submit.
    fan_out: int = 1000
    #: How many tasks the attempts of one role may submit in an hour.
    per_hour: int = 1000


def cause_of(spec: Spec) -> str:
    """The task that has caused this one; "" if nobody knows of any."""
    return spec.parent or spec.labels.get(CAUSE_LABEL, "")


def is_recent(task: Task, now: int) -> bool:
    """Whether a task still counts as a link of a chain."""
    return task.submitted_at > now - DAY_MS


def beyond_caps(caps: LoopCaps, depth: int, children: int, recent: int, count: int) -> str:
    """Why `count` more tasks would be too many, in words; empty if they are not.

    `depth` is how long the chain is with the new tasks, `children` how many their parent has had,
    `recent` how many its role has submitted within the hour.
    """
    if caps.depth and depth > caps.depth:
        return f"it would be number {depth} in a chain of causes, and {caps.depth} may follow"
    if caps.fan_out and children + count > caps.fan_out:
        return f"its task has {children} children, and may have {caps.fan_out} in all"
    if caps.per_hour and recent + count > caps.per_hour:
        return f"its role has submitted {recent} tasks within an hour, and may {caps.per_hour}"
    return ""
