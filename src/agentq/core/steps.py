"""The parts of every decision: the step it takes, its refusals, and the common endings."""

from __future__ import annotations

from typing import Any

import msgspec

from agentq.core.effects import (
    Announce,
    DeliverVerdict,
    Effect,
    Notify,
    OfferWork,
    PublishResult,
    Reply,
    ResolveDependents,
    SpawnNext,
)
from agentq.core.errors import Refused, Stale
from agentq.core.limits import NOTES_KEPT, REMINDER_MS, overspent
from agentq.core.schedule import awaits_approval, remind_ms
from agentq.core.states import TABLE, TERMINAL, State
from agentq.core.task import RUN_ROLE, Note, Spec, Task, TaskDetails
from agentq.core.triggers import Trigger, trigger_name
from agentq.core.values import replace


class Step(msgspec.Struct, gc=False):
    """Where a trigger leads. Fields left at None stay as they are."""

    state: State
    kind: str
    effects: tuple[Effect, ...] = ()
    details: TaskDetails | None = None
    lease_end: int = 0
    holder: str = ""
    epoch: int = -1
    keeps_custody: bool = False
    spec: Spec | None = None


def not_allowed(task: Task | None, trigger: Trigger) -> Refused:
    name = trigger_name(trigger)
    if task is None:
        return Refused(f"{name} needs a task and there is none yet.", "Submit the task first.")
    if hasattr(trigger, "epoch") and name not in ("Comment", "RefuseReport"):
        return stale(task, trigger.epoch)
    if name == "Submit":
        return Refused(
            f"{task.id} is there already.", "Submit under another id.", code="wrong_state"
        )
    able = sorted({str(s) for (s, n) in TABLE if n in (name, _SAME_VERB.get(name)) and s})
    return Refused(
        f"{name} applies to a task that is {' or '.join(able)}; {task.id} is {task.state}."
        " Nothing was changed.",
        _REMEDIES.get(name, _REMEDY).get(task.state, "See `agentq explain` for what it waits for."),
        code="wrong_state",
    )


#: What people do by one command: they approve and reject tasks that wait, and reports.
_SAME_VERB = {"Approve": "Verdict", "Reject": "Verdict"}
_REMEDY = {
    State.FAILED: "A dead letter is reopened with `agentq requeue`.",
    State.EXPIRED: "A dead letter is reopened with `agentq requeue`.",
    State.COMPLETE: "It is over; submit a new task if there is more to do.",
    State.CANCELLED: "It is over; submit a new task if it is wanted after all.",
    State.REVIEW: "It waits for a verdict: `agentq approve` or `agentq reject`.",
    State.BLOCKED: "It waits for `agentq answer`.",
}
_RUN_ANEW = "It is over; `agentq rerun` makes a new task of it, with other words if you like."
#: What to do instead of editing.
_EDIT_REMEDY = {
    State.IN_PROGRESS: "Its agent has read it already. Tell it more with `agentq tell`, or cancel"
    " it and run it anew with other words: `agentq cancel`, then `agentq rerun`.",
    State.REVIEW: "It was done as it stands. Ask for what is missing: `agentq reject --changes`.",
    **dict.fromkeys((State.COMPLETE, State.CANCELLED, State.FAILED, State.EXPIRED), _RUN_ANEW),
}
#: By what was asked for, where it matters.
_REMEDIES = {
    "Edit": _EDIT_REMEDY,
    "Hold": {
        **_REMEDY,
        State.IN_PROGRESS: "Its agent works on it: stop it with `agentq cancel`, or wait until the"
        " attempt is over.",
    },
    "Dispatch": {
        **_REMEDY,
        State.IN_PROGRESS: "It runs already.",
        State.CANCELLED: "It is over; `agentq rerun` makes a new task of it.",
    },
}


def stale(task: Task, epoch: int) -> Stale:
    if task.epoch == 0 and task.state not in TERMINAL:
        ready = task.state is State.READY
        return Stale(
            f"Nobody has claimed {task.id} yet: it is {task.state}. Nothing was recorded.",
            f"Claim it first: `agentq claim {task.id} --as {task.to}`."
            if ready
            else f"`agentq explain {task.id}` says what it waits for; then it can be claimed.",
            code="not_claimed",
        )
    held = "held by another attempt" if task.holder else "not held"
    if task.state in TERMINAL:
        held = "over"
    return Stale(
        f"Attempt {epoch} does not hold {task.id}: the task is {task.state}, {held}, at attempt"
        f" {task.epoch}. Nothing of this was recorded as state.",
        "Stop working on it: whatever this attempt still does will not be accepted.",
    )


def holder_only(task: Task, epoch: int) -> None:
    """Raise `Stale` unless the trigger comes from the attempt that holds the task now.

    One whose task was cancelled holds it until it has stopped: see `transition`.
    """
    if epoch != task.epoch or (task.state is State.CANCELLED and not task.holder):
        raise stale(task, epoch)


def fenced_out(task: Task, epoch: int) -> None:
    """Raise `Stale` unless this attempt holds the task now."""
    if task.state is not State.IN_PROGRESS or epoch != task.epoch:
        raise stale(task, epoch)


def annotated(
    details: TaskDetails, now: int, by: str, kind: str, text: str, **changes: Any
) -> TaskDetails:
    notes = details.notes
    if text:
        notes = (*notes, Note(now, by, kind, text))[-NOTES_KEPT:]
    return replace(details, notes=notes, **changes)


def over(spec: Spec, state: State, kind: str, details: TaskDetails, summary: str = "") -> Step:
    """A terminal step: dependents are resolved, and the outcome is sent to whoever asked for it."""
    if details.waiting_on or details.not_before or details.remind_at:
        details = replace(details, waiting_on=(), not_before=0, remind_at=0)
    if details.yielded or details.awaited_signals:
        details = replace(details, yielded="", awaited_signals=())
    if details.held is not None:
        details = replace(details, held=None)
    effects: list[Effect] = [ResolveDependents(state)]
    if spec.reviews:
        effects.append(DeliverVerdict())
    if spec.reply_to:
        status = "completed" if state is State.COMPLETE else str(state)
        effects.append(Reply(spec.reply_to, status, summary))
    is_run = spec.to == RUN_ROLE
    if state in (State.FAILED, State.EXPIRED):
        effects.append(Notify("run_failed" if is_run else "dead_letter", summary))
    elif is_run and state is State.COMPLETE:
        effects.append(Notify("run_ended", summary))
    return Step(state, kind, tuple(effects), details)


def completed(task: Task, details: TaskDetails, kind: str) -> Step:
    report = details.report
    assert report is not None
    step = over(task.spec, State.COMPLETE, kind, details, report.summary)
    if report.result:
        publish = PublishResult(report.epoch, report.result, report.result_sha256)
        step.effects = (publish, *step.effects)
    if task.spec.next:
        step.effects = (SpawnNext(), *step.effects)
    if task.spec.to != RUN_ROLE:
        step.effects = (*step.effects, OfferWork(report.epoch))
    return step


def blocked(task: Task, details: TaskDetails, now: int, reason: str, kind: str) -> Step:
    if task.spec.irreversible:
        details = replace(details, approved_by="", approved_digest="")
    details = replace(details, reason=reason, reason_kind=kind, remind_at=now + REMINDER_MS)
    effects: tuple[Effect, ...] = (Notify("blocked", reason),)
    if task.spec.reply_to:
        effects = (*effects, Reply(task.spec.reply_to, "blocked", reason))
    return Step(State.BLOCKED, "blocked", effects, details)


def waits(spec: Spec, details: TaskDetails, now: int, kind: str) -> Step:
    """Ready if nothing is left to wait for, else pending; asks for the approval it lacks."""
    effects: tuple[Effect, ...] = ()
    if details.not_before and details.not_before <= now:
        details = replace(details, not_before=0)
    unapproved = awaits_approval(spec, details)
    if unapproved and not details.asked_at:
        details = replace(
            details, asked_at=now, remind_at=now + remind_ms(spec), escalations=0, asked_of=""
        )
        effects = (Notify("approval_wanted", spec.title or spec.instructions[:200]),)
    held_back = details.yielded or details.awaited_signals or details.held is not None
    if details.waiting_on or details.not_before or unapproved or held_back:
        return Step(State.PENDING, kind, effects, details)
    return Step(State.READY, kind, (Announce(spec.to),), details)


def again(task: Task, details: TaskDetails, now: int, kind: str) -> Step:
    """Back to the queue after an attempt, if there is money left to try again.

    An irreversible task needs a new approval first.
    """
    gone = overspent(task.spec.budget, details.extra_budget, details.spent)
    if gone:
        return blocked(task, details, now, f"The budget is used up: {gone}.", "budget")
    if task.spec.irreversible:
        details = replace(details, approved_by="", approved_digest="", asked_at=0)
    return waits(task.spec, details, now, kind)


def unknown_outcome(task: Task, details: TaskDetails, now: int, reason: str) -> Step:
    text = f"{reason} The task is irreversible and its outcome is unknown: a person must look."
    return blocked(task, details, now, text, "unknown_outcome")
