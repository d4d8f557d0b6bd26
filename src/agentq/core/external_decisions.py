"""Decisions somebody takes about a task from outside: answer, cancel, reopen."""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.effects import CancelDescendants, CancelTasks, StopHolder
from agentq.core.errors import Refused
from agentq.core.limits import REFUSED_REPORTS_KEPT, overspent
from agentq.core.signals import signals_to_come, taken_signals
from agentq.core.spec_types import check_usage
from agentq.core.states import State
from agentq.core.steps import Step, again, annotated, completed, over
from agentq.core.task import Reported, Task
from agentq.core.values import replace


def answer(task: Task, trigger: t.Answer, now: int) -> Step:
    check_usage("extra_budget", trigger.extra_budget)
    details = annotated(
        task.details, now, trigger.by, "answer", trigger.text, remind_at=0,
        extra_budget=task.details.extra_budget.plus(trigger.extra_budget),
    )  # fmt: skip
    if trigger.resolution is t.Resolution.GIVE_UP:
        reason = f"given up by {trigger.by}" + (f": {trigger.text}" if trigger.text else "")
        details = replace(details, reason=reason, reason_kind="given_up")
        return over(task.spec, State.FAILED, "given_up", details, reason)
    if trigger.resolution is t.Resolution.DONE:
        report = Reported(task.epoch, trigger.by, trigger.text or f"done, says {trigger.by}")
        details = replace(details, report=report, reason="", reason_kind="")
        return completed(task, details, "completed")
    gone = overspent(task.spec.budget, details.extra_budget, details.spent)
    if not gone and details.reason_kind == "budget":
        gone = trigger.used_up
    if gone:
        raise Refused(
            f"{task.id} is blocked because its budget is used up: {gone}. Nothing was changed.",
            "Raise the budget with the answer (`agentq answer --extra-usd …`), or give it up.",
            code="budget",
        )
    details = replace(details, reason="", reason_kind="", asked_at=0, budget_warned=False)
    return again(task, details, now, "answered")


def cancel(task: Task, trigger: t.Cancel, now: int) -> Step:
    reason = f"cancelled by {trigger.by}" + (f": {trigger.reason}" if trigger.reason else "")
    details = replace(task.details, reason=reason, reason_kind="cancelled")
    step = over(task.spec, State.CANCELLED, "cancelled", details, reason)
    if details.review_task:
        why = f"{task.id} was cancelled"
        step.effects = (CancelTasks((details.review_task,), "agentq", why), *step.effects)
    if trigger.tree:
        # Also where none of its children is open: theirs may be.
        step.effects = (*step.effects, CancelDescendants(trigger.by, trigger.reason))
    if task.holder:
        step.effects = (StopHolder(task.holder, task.epoch), *step.effects)
        step.keeps_custody = True
    return step


def stopped(task: Task, trigger: t.Stopped, now: int) -> Step:
    if trigger.epoch != task.epoch or not task.holder:
        return Step(task.state, "")
    return Step(task.state, "stopped")


def requeue(task: Task, trigger: t.Requeue, now: int) -> Step:
    text = trigger.reason or (
        f"was {task.state}: {task.details.reason}" if task.details.reason else ""
    )
    details = annotated(
        task.details, now, trigger.by, "requeue", text,
        failures=0, crashes=0, rounds=0, reason="", reason_kind="", report=None,
        waiting_on=trigger.waiting_on, reopened_at=now, asked_at=0,
        review_task="", accepted_epoch=0, children=trigger.children, escalations=0, asked_of="",
    )  # fmt: skip
    details = taken_signals(details, now, signals_to_come(task))
    if trigger.asks_again:
        # An approval lets a task start once; whoever opens it again asks anew.
        details = replace(details, approved_by="", approved_digest="")
    return again(task, details, now, "requeued")


def applied(task: Task, trigger: t.Applied, now: int) -> Step:
    if (task.details.applied_commit, task.details.applied_branch) == (
        trigger.commit, trigger.branch
    ):  # fmt: skip
        return Step(task.state, "")
    details = replace(
        task.details, applied_at=now, applied_by=trigger.by, applied_commit=trigger.commit,
        applied_branch=trigger.branch,
    )  # fmt: skip
    return Step(task.state, "applied", (), details, keeps_custody=True)


def refuse_report(task: Task, trigger: t.RefuseReport, now: int) -> Step:
    if task.details.refused_reports >= REFUSED_REPORTS_KEPT:
        return Step(task.state, "")
    details = replace(task.details, refused_reports=task.details.refused_reports + 1)
    return Step(task.state, "report_refused", (), details, keeps_custody=True)
