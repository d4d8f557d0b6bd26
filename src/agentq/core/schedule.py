"""When time matters to a task: the moments behind the one column `wake_at`.

Each moment is a pure function of the task, so a timer can never be lost: whoever holds the row can
work out when to look at it again.
"""

from __future__ import annotations

from agentq.core.states import State
from agentq.core.task import Spec, Task, TaskDetails


def expiry(spec: Spec, details: TaskDetails, submitted_at: int, epoch: int) -> int:
    """When a task that nobody has started yet expires; 0 if it never does."""
    if not spec.ttl_seconds or epoch:
        return 0
    return (details.reopened_at or submitted_at) + spec.ttl_seconds * 1000


def awaits_approval(spec: Spec, details: TaskDetails) -> bool:
    return (spec.requires_approval or spec.irreversible) and not details.approved_by


def approval_deadline(spec: Spec, details: TaskDetails) -> int:
    if not spec.approval_timeout_seconds or not awaits_approval(spec, details):
        return 0
    return details.asked_at + spec.approval_timeout_seconds * 1000


def next_wake(state: State, spec: Spec, details: TaskDetails, submitted_at: int, epoch: int) -> int:
    """The next moment at which time matters to a task without a holder; 0 if none does."""
    if state is State.READY:
        return expiry(spec, details, submitted_at, epoch)
    if state is State.PENDING:
        moments = (
            details.not_before,
            expiry(spec, details, submitted_at, epoch),
            approval_deadline(spec, details),
            details.remind_at if awaits_approval(spec, details) else 0,
        )
        return min((moment for moment in moments if moment), default=0)
    if state in (State.REVIEW, State.BLOCKED):
        return details.remind_at
    return 0


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
    if awaits_approval(task.spec, task.details):
        reasons.append("approval")
    if task.details.not_before:
        reasons.append("time")
    return reasons
