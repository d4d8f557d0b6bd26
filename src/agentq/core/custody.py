"""Decisions about a task and its holder: the claim, an attempt's triggers, and how it ends."""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.agent_messages import given_messages
from agentq.core.children import check_children
from agentq.core.digests import spec_digest
from agentq.core.effects import Effect, Notify, StopHolder
from agentq.core.errors import Refused
from agentq.core.gates import gates_of, missing_evidence
from agentq.core.limits import CRASHES_MAX, LATE_COSTS_MAX, WARN_SHARE, overspent, shorten
from agentq.core.reserved_names import TASK_FOLDER, is_reserved
from agentq.core.retry import backoff_ms
from agentq.core.reviews import asked_for_review, parse_review
from agentq.core.schedule import expiry
from agentq.core.spec_types import check_usage
from agentq.core.states import State
from agentq.core.steps import (
    Step,
    annotated,
    blocked,
    completed,
    holder_only,
    over,
    stale,
    unknown_outcome,
    waits,
)
from agentq.core.task import NO_DETAILS, NO_GATES, NO_USAGE, Reported, Task, TaskDetails
from agentq.core.values import replace


def claim(task: Task, trigger: t.ClaimTask, now: int) -> Step:
    expires_at = expiry(task.spec, task.details, task.submitted_at, task.epoch)
    if expires_at and now >= expires_at:
        raise Refused(
            f"{task.id} has expired before it started.",
            "`agentq requeue` opens it again once it is among the dead letters.",
            code="expired",
        )
    if task.spec.irreversible and task.details.approved_digest != spec_digest(task.spec):
        raise Refused(
            f"{task.id} is irreversible, and what was approved is not what it says now.",
            "Have it approved again by somebody other than its submitter.",
            code="not_approved",
        )
    details = task.details
    if details is not NO_DETAILS:
        details = replace(
            given_messages(details, task.epoch + 1),
            progress_percent=-1, progress_note="", reason="", reason_kind="", gated=trigger.gated,
            role_gates=trigger.gates, ended_since=0, late_costs=0,
        )  # fmt: skip
    elif trigger.gated or trigger.gates is not NO_GATES:
        details = TaskDetails(gated=trigger.gated, role_gates=trigger.gates)
    return Step(
        State.IN_PROGRESS, "claimed", (), details, now + trigger.lease_ms, trigger.holder,
        task.epoch + 1,
    )  # fmt: skip


def progress(task: Task, trigger: t.Progress, now: int) -> Step:
    holder_only(task, trigger.epoch)
    details = replace(task.details, progress_percent=trigger.percent, progress_note=trigger.note)
    return Step(task.state, "progress", (), details, keeps_custody=True)


def add_artifact(task: Task, trigger: t.AddArtifact, now: int) -> Step:
    holder_only(task, trigger.epoch)
    if task.state in (State.REVIEW, State.COMPLETE) and not belongs_to_report(task, trigger):
        raise stale(task, trigger.epoch)
    return Step(task.state, "artifact_added", keeps_custody=True)


def belongs_to_report(task: Task, file: t.AddArtifact) -> bool:
    """Whether this is what the worker keeps of the attempt that has reported: its output, say. An
    agent that reports by itself does so before its worker can store that."""
    report = task.details.report
    is_its = report is not None and 0 < report.epoch == file.epoch
    return is_its and is_reserved(file.name)


def _charge(
    task: Task, details: TaskDetails, trigger: t.Spend | t.Report | t.FailAttempt
) -> tuple[TaskDetails, str, tuple[Effect, ...]]:
    """Add a cost; say which budget that uses up, and warn once when one runs low."""
    cost = trigger.cost
    if cost is NO_USAGE or cost == NO_USAGE:
        return details, "", ()
    check_usage("cost", cost)
    spent, budget = details.spent.plus(cost), task.spec.budget
    details = replace(details, spent=spent)
    gone = overspent(budget, details.extra_budget, spent) or trigger.used_up
    if gone:
        return details, gone, ()
    effects: tuple[Effect, ...] = ()
    if trigger.running_low:
        effects = (Notify("budget_low", trigger.running_low),)
    low = overspent(budget, details.extra_budget, spent, WARN_SHARE)
    if low and not details.budget_warned:
        details = replace(details, budget_warned=True)
        effects = (Notify("budget_low", low), *effects)
    return details, "", effects


def spend(task: Task, trigger: t.Spend, now: int) -> Step:
    holder_only(task, trigger.epoch)
    if task.state not in (State.IN_PROGRESS, State.CANCELLED):
        return _spent_late(task, trigger, now)
    details, gone, effects = _charge(task, task.details, trigger)
    if task.state is State.CANCELLED:
        # It is over, and nothing is left to block; the others of its tree must hear of it.
        if trigger.used_up:
            effects = (Notify("budget_used_up", trigger.used_up),)
        return Step(task.state, "spent", effects, details, keeps_custody=True)
    if gone and trigger.unless_used_up:
        raise Refused(
            f"The budget of {task.id} is used up by this cost: {gone}. Nothing was recorded.",
            "Stop, hand in what there is, and report with the cost.",
            code="budget",
        )
    if gone:
        step = blocked(task, details, now, f"The budget is used up: {gone}.", "budget")
        step.effects = (StopHolder(task.holder, task.epoch), *step.effects)
        return step
    return Step(task.state, "spent", effects, details, keeps_custody=True)


def _spent_late(task: Task, trigger: t.Spend, now: int) -> Step:
    """What the newest attempt has cost counts after its end as well: its agent may have reported by
    itself, before its worker knew the cost. Nothing can be handed in any more, so a cost that uses
    a budget up is never refused; it keeps the next attempt from starting."""
    late = task.details.late_costs + 1
    if not task.epoch or late > LATE_COSTS_MAX:
        raise stale(task, trigger.epoch)
    details, gone, effects = _charge(task, replace(task.details, late_costs=late), trigger)
    if gone and task.state in (State.PENDING, State.READY):
        return blocked(task, details, now, f"The budget is used up: {gone}.", "budget")
    if trigger.used_up:
        effects = (*effects, Notify("budget_used_up", trigger.used_up))
    return Step(task.state, "spent", effects, details, keeps_custody=True)


def report(task: Task, trigger: t.Report, now: int) -> Step:
    holder_only(task, trigger.epoch)
    if not trigger.verified and must_be_verified(task):
        raise _unverified(task)
    missing = missing_evidence(task.spec, trigger)
    if missing:
        raise Refused(
            f"{task.id} expects the artifacts {', '.join(task.spec.expected_output.artifacts)};"
            f" missing: {', '.join(missing)}. The report was not accepted, the attempt goes on.",
            "Add them with `agentq artifacts put` (or claim.put) and report again.",
            code="evidence_missing",
        )
    check_children(task, trigger)
    if task.spec.reviews:
        parse_review(trigger.data)
    details, _, effects = _charge(task, task.details, trigger)
    if trigger.used_up:
        # What is done is done; but the others of its tree will not start, and nobody is blocked who
        # would say so.
        effects = (*effects, Notify("budget_used_up", trigger.used_up))
    reported = Reported(
        trigger.epoch, task.holder, trigger.summary, trigger.result, trigger.result_sha256,
        trigger.data,
    )  # fmt: skip
    if details is NO_DETAILS:
        details = TaskDetails(report=reported)  # by far the most common: nothing else to carry over
    else:
        details = replace(details, report=reported)
    gates = gates_of(task)
    if gates.person or gates.reviewer:
        step = asked_for_review(task, details, now, trigger.summary)
        step.effects = (*effects, *step.effects)
        return step
    step = completed(task, details, "completed")
    step.effects += effects
    return step


def must_be_verified(task: Task) -> bool:
    """Whether a report counts only if its worker says that a check has passed: whoever claimed the
    task has promised one, or the task itself names a command."""
    return task.details.gated or bool(task.spec.gates.verify)


def _unverified(task: Task) -> Refused:
    command = task.spec.gates.verify
    what = f"`{shorten(command, 200)}` has succeeded in its workspace" if command else (
        "the check of its role has passed"
    )  # fmt: skip
    otherwise = "" if task.details.gated else (
        f" Without one, let `agentq worker {task.to}` do the task."
    )  # fmt: skip
    return Refused(
        f"{task.id} does not count as complete before {what}, which its worker runs. The report was"
        " not accepted, the attempt goes on.",
        f"Write the result to {TASK_FOLDER}/result.md and end your process: the worker checks"
        f" and reports.{otherwise}",
        code="gated",
    )


def fail(task: Task, trigger: t.FailAttempt, now: int) -> Step:
    holder_only(task, trigger.epoch)
    kind, reason = trigger.kind, trigger.reason
    details, gone, effects = _charge(task, task.details, trigger)
    crashed = kind is t.FailureKind.CRASHED
    details = annotated(
        details, now, task.holder, "failure", reason,
        # To run out of money is no failure of the agent: somebody decides, and it goes on.
        failures=details.failures + (not crashed and kind is not t.FailureKind.BUDGET),
        crashes=details.crashes + crashed,
        reason=reason, reason_kind=str(kind), progress_percent=-1, progress_note="",
    )  # fmt: skip
    if task.spec.irreversible:
        return unknown_outcome(task, details, now, f"The attempt failed: {reason.rstrip('.')}.")
    if kind in (t.FailureKind.REFUSED, t.FailureKind.INVALID):
        return over(task.spec, State.FAILED, "failed", details, reason)
    if gone or kind is t.FailureKind.BUDGET:
        return blocked(task, details, now, f"The budget is used up: {gone or reason}", "budget")
    if details.crashes >= CRASHES_MAX:
        return over(task.spec, State.FAILED, "quarantined", details, reason)
    if details.failures >= task.spec.max_attempts:
        return over(task.spec, State.FAILED, "failed", details, reason)
    wait_ms = max(backoff_ms(details.failures + details.crashes, trigger.jitter), 1)
    details = replace(details, not_before=now + wait_ms)
    return Step(State.PENDING, "retrying", effects, details)


def block(task: Task, trigger: t.BlockTask, now: int) -> Step:
    holder_only(task, trigger.epoch)
    return blocked(task, task.details, now, trigger.reason, "asked")


def release(task: Task, trigger: t.Release, now: int) -> Step:
    holder_only(task, trigger.epoch)
    details = replace(
        task.details, interruptions=task.details.interruptions + 1, not_before=trigger.not_before
    )
    if task.spec.irreversible:
        step = unknown_outcome(task, details, now, "The attempt was interrupted.")
    else:
        step = waits(task.spec, details, now, "released")
    if trigger.circuit:
        step.effects = (*step.effects, Notify("circuit_open", trigger.circuit))
    return step


def lease_ended(task: Task, now: int) -> Step:
    reason = f"the lease of attempt {task.epoch} ended: {task.holder} no longer renewed it"
    details = annotated(
        task.details, now, "agentq", "crash", reason,
        crashes=task.details.crashes + 1, progress_percent=-1, progress_note="",
        reason=reason, reason_kind="crashed",
    )  # fmt: skip
    if task.spec.irreversible:
        return unknown_outcome(task, details, now, f"It was under way when {reason}.")
    if details.crashes >= CRASHES_MAX:
        reason = f"{details.crashes} attempts vanished without a word; the last: {reason}"
        details = replace(details, reason=reason, reason_kind="poison")
        return over(task.spec, State.FAILED, "quarantined", details, reason)
    return waits(task.spec, details, now, "lease_ended")


def already_accepted(task: Task, trigger: t.Report) -> bool:
    """Whether this very report was accepted before: a retry after a lost answer."""
    report = task.details.report
    return (
        task.state in (State.COMPLETE, State.REVIEW)
        and report is not None
        and (report.epoch, report.summary, report.result, report.result_sha256, report.data)
        == (trigger.epoch, trigger.summary, trigger.result, trigger.result_sha256, trigger.data)
    )
