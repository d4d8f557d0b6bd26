"""Decisions about a task that nobody holds: what it waits for, and what passing time does to it."""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.approvals import asking_tick
from agentq.core.children import check_number, child_ended, without_child
from agentq.core.custody import lease_ended
from agentq.core.digests import spec_digest
from agentq.core.effects import Notify
from agentq.core.errors import Refused
from agentq.core.limits import REMINDER_MS
from agentq.core.schedule import awaits_approval, expiry, remind_ms
from agentq.core.states import State
from agentq.core.steps import Step, over, waits
from agentq.core.task import NO_DETAILS, OnDependencyFailure, Spec, Task, TaskDetails
from agentq.core.values import replace

_WAITING = frozenset({State.PENDING, State.BLOCKED})


def submit(trigger: t.Submit, now: int) -> Step:
    spec = trigger.spec
    details = NO_DETAILS
    if trigger.refused:
        details = replace(details, reason=trigger.refused, reason_kind="refused")
        return over(spec, State.FAILED, "failed", details, trigger.refused)
    if trigger.waiting_on or spec.delay_seconds or spec.wait_for:
        not_before = now + spec.delay_seconds * 1000 if spec.delay_seconds else 0
        details = replace(
            details, waiting_on=trigger.waiting_on, not_before=not_before,
            awaited_signals=spec.wait_for,
        )  # fmt: skip
    if trigger.children:
        check_number(spec.id, 0, len(trigger.children))
        details = replace(details, children=trigger.children)
    for dependency, outcome in trigger.ended:
        verdict = _dependency_verdict(spec, details, dependency, outcome)
        if verdict:
            return verdict
    return waits(spec, details, now, "submitted")


def _dependency_verdict(
    spec: Spec, details: TaskDetails, dependency: str, outcome: State
) -> Step | None:
    """What a dependency that did not complete decides; None if the task may still run."""
    if outcome is State.COMPLETE or spec.on_dependency_failure is OnDependencyFailure.RUN:
        return None
    reason = f"its dependency {dependency} is {outcome}"
    details = replace(details, reason=reason, reason_kind="dependency")
    if spec.on_dependency_failure is OnDependencyFailure.SKIP:
        return over(spec, State.CANCELLED, "skipped", details, reason)
    return over(spec, State.FAILED, "failed", details, reason)


def dependency_ended(task: Task, trigger: t.DependencyEnded, now: int) -> Step:
    details = task.details
    is_waited_for = trigger.dependency in details.waiting_on and task.state in _WAITING
    if trigger.dependency in details.children:
        if not is_waited_for:
            return child_ended(task, trigger, now)
        details = without_child(details, trigger)
    if not is_waited_for:
        return Step(task.state, "")
    verdict = _dependency_verdict(task.spec, details, trigger.dependency, trigger.outcome)
    if verdict:
        return verdict
    left = tuple(each for each in details.waiting_on if each != trigger.dependency)
    details = replace(details, waiting_on=left)
    if task.state is State.BLOCKED:
        return Step(State.BLOCKED, "dependency_ended", (), details)
    return waits(task.spec, details, now, "dependency_ended")


def approve(task: Task, trigger: t.Approve, now: int) -> Step:
    details, digest = task.details, spec_digest(task.spec)
    if not awaits_approval(task.spec, details):
        raise Refused(
            f"{task.id} does not wait for an approval.",
            "`agentq explain` says what it waits for.",
            code="wrong_state",
        )
    if task.state is State.BLOCKED and details.reason_kind != "approval_timeout":
        raise Refused(
            f"{task.id} is blocked ({details.reason_kind}), and an approval does not answer that.",
            "Answer it first with `agentq answer`; it then asks for the approval.",
            code="wrong_state",
        )
    if trigger.by in (task.spec.sender, *task.editors) and not trigger.own:
        what = "submitted" if trigger.by == task.spec.sender else "edited"
        raise Refused(
            f"{trigger.by} {what} {task.id} and cannot approve it: an approval comes from"
            " somebody else. Nothing was changed.",
            "Have another person or role approve it.",
            code="self_approval",
        )
    check_digest(task, trigger.digest)
    details = replace(
        details, approved_by=trigger.by, approved_digest=digest, reason="", reason_kind="",
        remind_at=0, escalations=0, asked_of="",
    )  # fmt: skip
    return waits(task.spec, details, now, "approved")


def check_digest(task: Task, digest: str) -> None:
    """Raise `Refused` unless this is the digest of what the task asks for; "" stands for any."""
    now = spec_digest(task.spec)
    if digest not in ("", now):
        raise Refused(
            f"The approval is for payload {digest[:12]}…, but {task.id} is {now[:12]}…."
            " Nothing was approved.",
            "Look at the task again and approve what it says now.",
            code="digest_mismatch",
        )


def reject(task: Task, trigger: t.Reject, now: int) -> Step:
    if task.state is State.PENDING and not awaits_approval(task.spec, task.details):
        raise Refused(
            f"{task.id} does not wait for an approval, so there is nothing to reject.",
            "Use `agentq cancel` to withdraw it.",
            code="wrong_state",
        )
    reason = f"rejected by {trigger.by}" + (f": {trigger.reason}" if trigger.reason else "")
    details = replace(task.details, reason=reason, reason_kind="rejected")
    return over(task.spec, State.FAILED, "rejected", details, reason)


def tick(task: Task, trigger: t.Tick, now: int) -> Step:
    if not task.wake_at or now < task.wake_at:
        return Step(task.state, "")
    if task.state is State.IN_PROGRESS:
        return lease_ended(task, now)
    if task.state is State.CANCELLED:
        return Step(task.state, "stopped")
    expires_at = expiry(task.spec, task.details, task.submitted_at, task.epoch)
    if task.state in (State.PENDING, State.READY) and expires_at and now >= expires_at:
        reason = f"its time to live of {task.spec.ttl_seconds} s passed before it started"
        details = replace(task.details, reason=reason, reason_kind="expired")
        return over(task.spec, State.EXPIRED, "expired", details, reason)
    step = asking_tick(task, now)
    if step is not None:
        return step
    if task.state is State.PENDING:
        return _pending_tick(task, now)
    wait_ms = remind_ms(task.spec) if task.state is State.REVIEW else REMINDER_MS
    details = replace(task.details, remind_at=now + wait_ms)
    return Step(task.state, "reminded", (Notify("reminder", task.details.reason),), details)


def _pending_tick(task: Task, now: int) -> Step:
    if task.details.not_before and now >= task.details.not_before:
        details = task.details
        if details.remind_at and now >= details.remind_at:
            # Both are due at once: one tick must move the moment at which it is looked at again.
            details = replace(details, remind_at=now + remind_ms(task.spec))
        return waits(task.spec, details, now, "waited")
    details = replace(task.details, remind_at=now + remind_ms(task.spec))
    return Step(task.state, "reminded", (Notify("reminder", "approval wanted"),), details)
