"""Decisions about a task that nobody holds: what it waits for, and what passing time does to it."""

from __future__ import annotations

from dataclasses import replace

from agentq.core import triggers as t
from agentq.core.custody import lease_ended
from agentq.core.digests import spec_digest
from agentq.core.effects import Notify
from agentq.core.errors import Refused
from agentq.core.limits import REMINDER_MS
from agentq.core.schedule import approval_deadline, awaits_approval, expiry
from agentq.core.states import State
from agentq.core.steps import Step, blocked, over, waits
from agentq.core.task import EMPTY_MEMO, Memo, OnDependencyFailure, Spec, Task


def submit(trigger: t.Submit, now: int) -> Step:
    spec = trigger.spec
    memo = EMPTY_MEMO
    if trigger.waiting_on or spec.delay_seconds:
        not_before = now + spec.delay_seconds * 1000 if spec.delay_seconds else 0
        memo = replace(memo, waiting_on=trigger.waiting_on, not_before=not_before)
    for dependency, outcome in trigger.ended:
        verdict = _dependency_verdict(spec, memo, dependency, outcome)
        if verdict:
            return verdict
    return waits(spec, memo, now, "submitted")


def _dependency_verdict(spec: Spec, memo: Memo, dependency: str, outcome: State) -> Step | None:
    """What a dependency that did not complete decides; None if the task may still run."""
    if outcome is State.COMPLETE or spec.on_dependency_failure is OnDependencyFailure.RUN:
        return None
    reason = f"its dependency {dependency} is {outcome}"
    memo = replace(memo, reason=reason, reason_kind="dependency")
    if spec.on_dependency_failure is OnDependencyFailure.SKIP:
        return over(spec, State.CANCELLED, "skipped", memo, reason)
    return over(spec, State.FAILED, "failed", memo, reason)


def dependency_ended(task: Task, trigger: t.DependencyEnded, now: int) -> Step:
    memo = task.memo
    if trigger.dependency not in memo.waiting_on:
        return Step(task.state, "")
    verdict = _dependency_verdict(task.spec, memo, trigger.dependency, trigger.outcome)
    if verdict:
        return verdict
    left = tuple(each for each in memo.waiting_on if each != trigger.dependency)
    memo = replace(memo, waiting_on=left)
    if task.state is State.BLOCKED:
        return Step(State.BLOCKED, "dependency_ended", (), memo)
    return waits(task.spec, memo, now, "dependency_ended")


def approve(task: Task, trigger: t.Approve, now: int) -> Step:
    memo, digest = task.memo, spec_digest(task.spec)
    if not awaits_approval(task.spec, memo):
        raise Refused(
            f"{task.id} does not wait for an approval.",
            "`agentq explain` says what it waits for.",
            code="wrong_state",
        )
    if task.state is State.BLOCKED and memo.reason_kind != "approval_timeout":
        raise Refused(
            f"{task.id} is blocked ({memo.reason_kind}), and an approval does not answer that.",
            "Answer it first with `agentq answer`; it then asks for the approval.",
            code="wrong_state",
        )
    if trigger.by == task.spec.sender and not trigger.own:
        raise Refused(
            f"{trigger.by} submitted {task.id} and cannot approve it: an approval comes from"
            " somebody else. Nothing was changed.",
            "Have another person or role approve it.",
            code="self_approval",
        )
    if trigger.digest and trigger.digest != digest:
        raise Refused(
            f"The approval is for payload {trigger.digest[:12]}…, but {task.id} is"
            f" {digest[:12]}…. Nothing was approved.",
            "Look at the task again and approve what it says now.",
            code="digest_mismatch",
        )
    memo = replace(
        memo, approved_by=trigger.by, approved_digest=digest, reason="", reason_kind="",
        remind_at=0,
    )  # fmt: skip
    return waits(task.spec, memo, now, "approved")


def reject(task: Task, trigger: t.Reject, now: int) -> Step:
    if task.state is State.PENDING and not awaits_approval(task.spec, task.memo):
        raise Refused(
            f"{task.id} does not wait for an approval, so there is nothing to reject.",
            "Use `agentq cancel` to withdraw it.",
            code="wrong_state",
        )
    reason = f"rejected by {trigger.by}" + (f": {trigger.reason}" if trigger.reason else "")
    memo = replace(task.memo, reason=reason, reason_kind="rejected")
    return over(task.spec, State.FAILED, "rejected", memo, reason)


def tick(task: Task, trigger: t.Tick, now: int) -> Step:
    if not task.wake_at or now < task.wake_at:
        return Step(task.state, "")
    if task.state is State.IN_PROGRESS:
        return lease_ended(task, now)
    if task.state is State.CANCELLED:
        return Step(task.state, "stopped")
    expires_at = expiry(task.spec, task.memo, task.submitted_at, task.epoch)
    if task.state in (State.PENDING, State.READY) and expires_at and now >= expires_at:
        reason = f"its time to live of {task.spec.ttl_seconds} s passed before it started"
        memo = replace(task.memo, reason=reason, reason_kind="expired")
        return over(task.spec, State.EXPIRED, "expired", memo, reason)
    if task.state is State.PENDING:
        return _pending_tick(task, now)
    memo = replace(task.memo, remind_at=now + REMINDER_MS)
    return Step(task.state, "reminded", (Notify("reminder", task.memo.reason),), memo)


def _pending_tick(task: Task, now: int) -> Step:
    deadline = approval_deadline(task.spec, task.memo)
    if deadline and now >= deadline:
        # Silence is not a no: the task stops and asks, instead of failing behind people's backs.
        reason = f"nobody approved it within {task.spec.approval_timeout_seconds} s"
        return blocked(task, replace(task.memo, asked_at=0), now, reason, "approval_timeout")
    if task.memo.not_before and now >= task.memo.not_before:
        memo = task.memo
        if memo.remind_at and now >= memo.remind_at:
            # Both are due at once: one tick must move the moment at which it is looked at again.
            memo = replace(memo, remind_at=now + REMINDER_MS)
        return waits(task.spec, memo, now, "waited")
    memo = replace(task.memo, remind_at=now + REMINDER_MS)
    return Step(task.state, "reminded", (Notify("reminder", "approval wanted"),), memo)
