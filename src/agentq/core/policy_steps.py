"""What passing time will do to a task that people are asked about, told before it happens.

It says what `approvals` will decide: explanations, lists and evidence show it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from agentq.core.durations import format_duration
from agentq.core.gates import gates_of
from agentq.core.schedule import approval_deadline, awaits_approval, next_escalation
from agentq.core.states import State
from agentq.core.task import NO_POLICY, OnTimeout, Task


class PolicyStepKind(StrEnum):
    """What passing time does while people are asked."""

    REMIND = "remind"
    ESCALATE = "escalate"
    TIMEOUT = "timeout"


class PolicyStep(msgspec.Struct, frozen=True):
    """A step to come: when, who is asked then (`escalate`), what becomes of it (`timeout`)."""

    kind: PolicyStepKind
    at: int
    to: str = ""
    outcome: str = ""


def is_asked(task: Task) -> bool:
    """Whether it waits for an approval, or for a verdict on its report."""
    if task.state is State.BLOCKED:
        return task.details.reason_kind == "approval_timeout"
    if task.state is State.PENDING:
        return awaits_approval(task.spec, task.details)
    return task.state is State.REVIEW


def upcoming_steps(task: Task) -> tuple[PolicyStep, ...]:
    """What passing time will do to a task that waits for a decision, the next first."""
    if not is_asked(task):
        return ()
    spec, details, state = task.spec, task.details, task.state
    steps = [PolicyStep(PolicyStepKind.REMIND, details.remind_at)]
    moment = next_escalation(state, spec, details)
    if moment:
        to = spec.approval.escalate[details.escalations].to
        steps.append(PolicyStep(PolicyStepKind.ESCALATE, moment, to))
    moment = approval_deadline(state, spec, details)
    steps.append(PolicyStep(PolicyStepKind.TIMEOUT, moment, outcome=str(_outcome(task))))
    return tuple(sorted((each for each in steps if each.at), key=_when))


def _outcome(task: Task) -> OnTimeout:
    """What the end of the time comes to: silence lets nothing irreversible start, and does not
    stand for a reviewer."""
    outcome, report = task.spec.approval.on_timeout, task.details.report
    if outcome is not OnTimeout.APPROVE:
        return outcome
    reviewer = task.state is State.REVIEW and gates_of(task).reviewer
    unseen = reviewer and (report is None or task.details.accepted_epoch != report.epoch)
    return OnTimeout.HOLD if task.spec.irreversible or unseen else outcome


#: Of what falls on one moment, the end of the time comes first, as `approvals` has it.
_FIRST = (PolicyStepKind.TIMEOUT, PolicyStepKind.ESCALATE, PolicyStepKind.REMIND)
_OUTCOMES = {"hold": "held", "reject": "rejected", "approve": "approved"}


def _when(step: PolicyStep) -> tuple[int, int]:
    return step.at, _FIRST.index(step.kind)


def step_words(step: PolicyStep, now: int) -> str:
    """A step to come, as people say it."""
    when = f"in {format_duration(max(step.at - now + 999, 0) // 1000)}"
    if step.kind is PolicyStepKind.ESCALATE:
        return f"{step.to} is asked {when}"
    if step.kind is PolicyStepKind.TIMEOUT:
        return f"it is {_OUTCOMES[step.outcome]} {when}"
    return f"a reminder {when}"


def asked_words(task: Task) -> str:
    """Who is asked now by its policy; "" if nobody in particular."""
    details, most = task.details, len(task.spec.approval.escalate)
    if not details.asked_of:
        return ""
    return f"{details.asked_of} (escalation {min(details.escalations, most)} of {most})"


def policy_words(task: Task, now: int) -> str:
    """Who is asked, and what happens if nobody decides; "" without a policy of its own."""
    if task.spec.approval == NO_POLICY and not task.spec.approval_timeout_seconds:
        return ""
    parts = [f"{asked} is asked"] if (asked := asked_words(task)) else []
    steps = [step_words(each, now) for each in upcoming_steps(task)]
    if steps:
        parts.append(f"unless somebody decides: {', '.join(steps)}")
    return "; ".join(parts)
