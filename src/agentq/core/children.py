"""Decisions about a task and its children: who they are, when they end, and waiting for them.

A task knows its open children, because its own transaction submits them and theirs tells it when
they end. So whether a parent may complete, and whether one that has yielded goes on, is decided
from its fields alone. How a child ended never decides about its parent: that is for the parent's
next attempt to judge.
"""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import CHILDREN_MAX, SIGNALS_KEPT
from agentq.core.signals import taken_signals
from agentq.core.states import State
from agentq.core.steps import Step, annotated, holder_only, waits
from agentq.core.task import Task, TaskDetails
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
    check_number(task.id, len(held), len(new))
    ended = tuple(each for each in task.details.ended_children if each[0] not in new)
    details = replace(task.details, children=(*held, *new), ended_children=ended)
    return Step(task.state, "children_submitted", (), details, keeps_custody=True)


def check_number(parent: str, held: int, new: int) -> None:
    """Raise `Refused` for more children than a task may have open."""
    if held + new > CHILDREN_MAX:
        raise Refused(
            f"{parent} has {held} open children and may have {CHILDREN_MAX}; {new} more were to"
            " come. Nothing was submitted.",
            "Wait until some of them are over, or let them submit the rest.",
            code="too_many_children",
        )


def child_ended(task: Task, trigger: t.DependencyEnded, now: int) -> Step:
    """Note how a child ended; a task that has waited for it goes on."""
    details = without_child(task.details, trigger)
    if task.state is not State.PENDING or details.yielded == task.details.yielded:
        return Step(task.state, "child_ended", (), details, keeps_custody=True)
    return waits(task.spec, details, now, "child_ended")


def without_child(details: TaskDetails, trigger: t.DependencyEnded) -> TaskDetails:
    """The details after a child has ended, whom a task that has yielded may have waited for."""
    child = trigger.dependency
    left = tuple(each for each in details.children if each != child)
    ended = (*details.ended_children, (child, trigger.outcome))[-CHILDREN_MAX:]
    waits_on = details.yielded == WAIT_FOR_ALL and bool(left)
    return replace(
        details, children=left, ended_children=ended, ended_since=details.ended_since + 1,
        yielded=details.yielded if waits_on else "",
    )  # fmt: skip


def yield_(task: Task, trigger: t.Yield, now: int) -> Step:
    """The holder leaves its slot until its children are over and its signals have come."""
    holder_only(task, trigger.epoch)
    if trigger.wait not in (WAIT_FOR_ALL, WAIT_FOR_ANY):
        raise Invalid(
            f"An attempt waits for {WAIT_FOR_ALL} of its children or for {WAIT_FOR_ANY}; got"
            f" {trigger.wait!r}.",
            "Leave it out to wait for all of them.",
        )
    if task.spec.irreversible:
        raise Refused(
            f"{task.id} is irreversible: it runs once, and cannot leave and go on later. The"
            " attempt goes on.",
            "Let another task come after its children, or report what was done.",
            code="irreversible",
        )
    if len(trigger.signals) > SIGNALS_KEPT:
        raise Invalid(
            f"An attempt waits for at most {SIGNALS_KEPT} signals, got {len(trigger.signals)}.",
            "Wait for the first of them; the next attempt waits for the others.",
        )
    details = task.details
    if not (details.children or details.ended_since or trigger.signals):
        # Without this an agent that yields and yields would be started for ever.
        raise Refused(
            f"{task.id} has no open children, none has ended while this attempt ran, and it waits"
            " for no signal: there is nothing to yield for. The attempt goes on.",
            "Submit children first (`agentq submit`), or name a signal with --signal.",
            code="nothing_to_wait_for",
        )
    # One that ended while the attempt ran may be unknown to it: it must not wait for another.
    is_over = not details.children or (trigger.wait == WAIT_FOR_ANY and details.ended_since)
    details = taken_signals(details, now, trigger.signals)
    details = annotated(
        details, now, task.holder, "yield", trigger.note,
        yielded="" if is_over else trigger.wait, progress_percent=-1, progress_note="",
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
