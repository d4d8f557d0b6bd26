"""Decisions about a task and its children: who they are, when they end, and waiting for them.

A task knows its open children, because its own transaction submits them and theirs tells it when
they end. So whether a parent may complete, and whether one that has yielded goes on, is decided
from its fields alone. How a child ended never decides about its parent: that is for the parent's
next attempt to judge.
"""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import CHILDREN_MAX
from agentq.core.signals import taken_signals
from agentq.core.states import State
from agentq.core.steps import Step, annotated, holder_only, waits
from agentq.core.task import Task
from agentq.core.values import replace

#: For what an attempt that yields may wait.
WAIT_FOR_ALL, WAIT_FOR_ANY = "all", "any"
_NAMED_MAX = 5


def children_submitted(task: Task, trigger: t.ChildrenSubmitted, now: int) -> Step:
    """Note open children."""
    held = task.details.children
    new = tuple(each for each in trigger.children if each not in held)
    if not new:
        return Step(task.state, "")
    if len(held) + len(new) > CHILDREN_MAX:
        raise Refused(
            f"{task.id} has {len(held)} open children and may have {CHILDREN_MAX};"
            f" {len(new)} more were to come. Nothing was submitted.",
            "Wait until some of them are over, or let them submit the rest.",
            code="too_many_children",
        )
    ended = tuple(each for each in task.details.ended_children if each[0] not in new)
    details = replace(task.details, children=(*held, *new), ended_children=ended)
    return Step(task.state, "children_submitted", (), details, keeps_custody=True)


def child_ended(task: Task, trigger: t.DependencyEnded, now: int) -> Step:
    """Note how a child ended; a task that has waited for it goes on."""
    child = trigger.dependency
    left = tuple(each for each in task.details.children if each != child)
    ended = (*task.details.ended_children, (child, trigger.outcome))[-CHILDREN_MAX:]
    details = replace(task.details, children=left, ended_children=ended)
    waited = task.details.yielded
    if not waited or (waited == WAIT_FOR_ALL and left):
        return Step(task.state, "child_ended", (), details, keeps_custody=True)
    details = replace(details, yielded="")
    if task.state is not State.PENDING:
        return Step(task.state, "child_ended", (), details, keeps_custody=True)
    return waits(task.spec, details, now, "child_ended")


def yield_(task: Task, trigger: t.Yield, now: int) -> Step:
    """The holder leaves its slot until its children are over and its signals have come."""
    holder_only(task, trigger.epoch)
    if trigger.wait not in (WAIT_FOR_ALL, WAIT_FOR_ANY):
        raise Invalid(
            f"An attempt waits for {WAIT_FOR_ALL} of its children or for {WAIT_FOR_ANY}; got"
            f" {trigger.wait!r}."
        )
    if task.spec.irreversible:
        raise Refused(
            f"{task.id} is irreversible: it runs once, and cannot leave and go on later. The"
            " attempt goes on.",
            "Let another task come after its children, or report what was done.",
            code="irreversible",
        )
    details = task.details
    if not (details.children or details.ended_children or trigger.signals):
        raise Refused(
            f"{task.id} has no children and waits for no signal, so there is nothing to yield for."
            " The attempt goes on.",
            "Submit children first (`agentq submit`), or name a signal with --signal.",
            code="nothing_to_wait_for",
        )
    details = taken_signals(details, now, trigger.signals)
    details = annotated(
        details, now, task.holder, "yield", trigger.note,
        yielded=trigger.wait if details.children else "", progress_percent=-1, progress_note="",
        # Whoever gets as far as this is no poison: what vanished before counts no longer.
        crashes=0,
    )  # fmt: skip
    return waits(task.spec, details, now, "yielded")


def check_children(task: Task, report: t.Report) -> None:
    """Raise `Refused` for a report over open children, unless it says that they are left."""
    open_ones = task.details.children
    if not open_ones or report.leaves_children:
        return
    named = ", ".join(open_ones[:_NAMED_MAX])
    more = f" and {len(open_ones) - _NAMED_MAX} more" if len(open_ones) > _NAMED_MAX else ""
    raise Refused(
        f"{task.id} has {len(open_ones)} open children: {named}{more}. The report was not accepted,"
        " the attempt goes on.",
        "`agentq yield` leaves and goes on when they are over; `agentq complete --leave-children`"
        " completes without them.",
        code="open_children",
    )
