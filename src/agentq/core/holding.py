"""Decisions that keep a waiting task from starting, and that let it start.

A hold is a reason to wait beside all others: what else a task waits for comes and goes meanwhile,
its time to live runs on, and whoever may cancel or edit it may still. Only a dispatch ends it, or
the end of the task.
"""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.core.steps import Step, waits
from agentq.core.task import HeldBack, Task
from agentq.core.values import replace

#: How the log names the proof of a coordinator: a program, whose word stands below a person's.
BY_COORDINATOR = "coordinator"


def hold(task: Task, trigger: t.Hold, now: int) -> Step:
    """Keep a task from starting. A second hold changes nothing, unless a person takes over what a
    program has held."""
    held = task.details.held
    if held is not None and not _outranks(trigger.how, held.how):
        return Step(task.state, "")
    held = HeldBack(now, trigger.by, trigger.reason, trigger.how)
    return Step(State.PENDING, "held", (), replace(task.details, held=held))


def dispatch(task: Task, trigger: t.Dispatch, now: int) -> Step:
    """End the hold and the delay of a task. One that has neither stays as it is."""
    details, held = task.details, task.details.held
    if held is None and not details.not_before:
        return Step(task.state, "")
    if held is not None and _outranks(held.how, trigger.how):
        raise Refused(
            f"{held.by} holds {task.id}, and what a person holds a coordinator cannot dispatch."
            " Nothing was changed.",
            "A person can.",
            code="not_permitted",
        )
    return waits(task.spec, replace(details, held=None, not_before=0), now, "dispatched")


def _outranks(how: str, other: str) -> bool:
    """Whether one of two is a person, or the system itself, and the other a program."""
    return other == BY_COORDINATOR and how != BY_COORDINATOR
