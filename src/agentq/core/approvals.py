"""What passing time does to a task that waits for a decision of people: its approval policy.

Each step is a moment worked out from the task's fields (see `schedule`), so it survives whatever
process was to wait for it: reminders, one escalation after the other, and the end of the time. That
nobody answered is never taken for anybody's answer: the log says that the time passed.
"""

from __future__ import annotations

from agentq.core.digests import spec_digest
from agentq.core.effects import CancelTasks, Notify
from agentq.core.gates import gates_of
from agentq.core.reviews import not_asked
from agentq.core.schedule import approval_deadline, next_escalation, remind_ms
from agentq.core.states import State
from agentq.core.steps import Step, annotated, blocked, completed, over, waits
from agentq.core.task import OnTimeout, Task, TaskDetails
from agentq.core.values import replace

#: Who has approved what nobody approved in time, where the policy says so.
BY_POLICY = "approval-policy"


def asking_tick(task: Task, now: int) -> Step | None:
    """The step that is due of a task that waits for a decision; None if none is."""
    deadline = approval_deadline(task.state, task.spec, task.details)
    if deadline and now >= deadline:
        return _timed_out(task, now)
    due = next_escalation(task.state, task.spec, task.details)
    if due and now >= due:
        return _escalated(task, now)
    return None


def _escalated(task: Task, now: int) -> Step:
    number = task.details.escalations
    step = task.spec.approval.escalate[number]
    # A delay that is over as well would keep the task due, and so be looked at again at once.
    not_before = task.details.not_before if task.details.not_before > now else 0
    details = replace(
        task.details, escalations=number + 1, asked_of=step.to, not_before=not_before,
        remind_at=now + remind_ms(task.spec),
    )  # fmt: skip
    text = f"{step.to}: nobody has decided for {step.after_seconds} s"
    return Step(task.state, "escalated", (Notify("escalated", text),), details)


def _timed_out(task: Task, now: int) -> Step:
    spec, policy = task.spec, task.spec.approval.on_timeout
    verb = "approved" if task.state is State.PENDING else "judged"
    reason = f"nobody {verb} it within {spec.approval_timeout_seconds} s"
    details = task.details
    if policy is OnTimeout.REJECT:
        reason = f"{reason}, and its policy is to reject it then"
        details = not_asked(task, details)
        details = replace(details, reason=reason, reason_kind="approval_timeout")
        return _without_review(
            task, over(spec, State.FAILED, "approval_timed_out", details, reason)
        )
    if policy is OnTimeout.APPROVE and not spec.irreversible and _is_reviewed(task):
        return _approved_by_policy(task, details, reason, now)
    if task.state is State.PENDING:
        # Silence is not a no: the task stops and asks, instead of failing behind people's backs.
        details = replace(details, asked_at=0, escalations=0, asked_of="")
        return blocked(task, details, now, reason, "approval_timeout")
    details = replace(
        details, escalations=len(spec.approval.escalate) + 1, reason=reason,
        reason_kind="approval_timeout", remind_at=now + remind_ms(spec),
    )  # fmt: skip
    return Step(task.state, "approval_timed_out", (Notify("reminder", reason),), details)


def _is_reviewed(task: Task) -> bool:
    """Whether only people are left to decide: their silence does not stand for a reviewer."""
    report = task.details.report
    if task.state is not State.REVIEW or report is None or not gates_of(task).reviewer:
        return True
    return task.details.accepted_epoch == report.epoch


def _approved_by_policy(task: Task, details: TaskDetails, reason: str, now: int) -> Step:
    text = f"{reason}, and its policy is to approve it then"
    details = annotated(details, now, BY_POLICY, "approval", text, remind_at=0)
    if task.state is State.REVIEW:
        details = replace(not_asked(task, details), reason="", reason_kind="")
        return _without_review(task, completed(task, details, "completed"))
    details = replace(
        details, approved_by=BY_POLICY, approved_digest=spec_digest(task.spec), escalations=0,
        asked_of="",
    )  # fmt: skip
    return waits(task.spec, details, now, "approval_timed_out")


def _without_review(task: Task, step: Step) -> Step:
    """The same, and no reviewer goes on with what is decided."""
    if task.details.review_task:
        why = f"{task.id} was decided by its approval policy"
        step.effects = (CancelTasks((task.details.review_task,), "agentq", why), *step.effects)
    return step
