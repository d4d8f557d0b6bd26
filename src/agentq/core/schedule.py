"""When time matters to a task: the moments behind the one column `wake_at`.

Each moment is a pure function of the task, so a timer can never be lost: whoever holds the row can
work out when to look at it again.
"""

from __future__ import annotations

from agentq.core.limits import REMINDER_MS
from agentq.core.states import State
from agentq.core.task import NO_POLICY, Spec, Task, TaskDetails


def expiry(spec: Spec, details: TaskDetails, submitted_at: int, epoch: int) -> int:
    """When a task that nobody has started yet expires; 0 if it never does."""
    if not spec.ttl_seconds or epoch:
        return 0
    return (details.reopened_at or submitted_at) + spec.ttl_seconds * 1000


def awaits_approval(spec: Spec, details: TaskDetails) -> bool:
    return (spec.requires_approval or spec.irreversible) and not details.approved_by


def awaits_decision(state: State, spec: Spec, details: TaskDetails) -> bool:
    """Whether people are asked to decide about it: to let it start, or, where a policy says how
    that is waited for, about its report."""
    if state is State.REVIEW:
        return spec.approval != NO_POLICY
    return state is State.PENDING and awaits_approval(spec, details)


def approval_deadline(state: State, spec: Spec, details: TaskDetails) -> int:
    """When the time for a decision of people is over; 0 if never, or if it was."""
    if not spec.approval_timeout_seconds or not details.asked_at:
        return 0
    if details.escalations > len(spec.approval.escalate):
        return 0
    if not awaits_decision(state, spec, details):
        return 0
    return details.asked_at + spec.approval_timeout_seconds * 1000


def next_escalation(state: State, spec: Spec, details: TaskDetails) -> int:
    """When somebody else is asked; 0 if nobody is left, or nothing is asked."""
    steps = spec.approval.escalate
    if details.escalations >= len(steps) or not details.asked_at:
        return 0
    if not awaits_decision(state, spec, details):
        return 0
    return details.asked_at + steps[details.escalations].after_seconds * 1000


def remind_ms(spec: Spec) -> int:
    """How long after asking, and after each reminder, people are reminded."""
    return spec.approval.remind_seconds * 1000 or REMINDER_MS


def next_wake(state: State, spec: Spec, details: TaskDetails, submitted_at: int, epoch: int) -> int:
    """The next moment at which time matters to a task without a holder; 0 if none does."""
    if state is State.READY:
        return expiry(spec, details, submitted_at, epoch)
    if state is State.BLOCKED:
        return details.remind_at
    if state not in (State.PENDING, State.REVIEW):
        return 0
    moments = [approval_deadline(state, spec, details), next_escalation(state, spec, details)]
    if state is State.REVIEW or awaits_approval(spec, details):
        moments.append(details.remind_at)
    if state is State.PENDING:
        moments += [details.not_before, expiry(spec, details, submitted_at, epoch)]
    return min((moment for moment in moments if moment), default=0)


def expected_wake(task: Task) -> int | None:
    """What `wake_at` must be by the task's other fields; None while a lease decides it."""
    if task.holder:
        return None
    return next_wake(task.state, task.spec, task.details, task.submitted_at, task.epoch)


def waiting_for(task: Task) -> list[str]:
    """In words, what a pending task waits for."""
    if task.state is not State.PENDING:
        return []
    reasons = [f"dependency {dependency}" for dependency in task.details.waiting_on]
    if task.details.yielded:
        word = "any of the children" if task.details.yielded == "any" else "children"
        reasons.append(f"{word} {', '.join(task.details.children)}")
    reasons += [f"signal {name}" for name in task.details.awaited_signals]
    if awaits_approval(task.spec, task.details):
        reasons.append("approval")
    if task.details.not_before:
        reasons.append("time")
    if task.details.held is not None:
        reasons.append("dispatch")
    return reasons
