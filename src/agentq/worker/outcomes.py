"""Reports the result of an attempt to the ledger. Each kind of outcome has its own trigger."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.circuits import pause_ms
from agentq.core.errors import AgentqError, Refused, Stale, Unavailable
from agentq.core.states import State
from agentq.core.task import NO_USAGE
from agentq.core.triggers import FailureKind
from agentq.core.values import replace
from agentq.protocol.envelope import json_value
from agentq.worker import yielding
from agentq.worker.branch_push import push_branch, with_push
from agentq.worker.denials import reason_with_denials
from agentq.worker.redaction import redacted_text

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

#: A provider that does not say when its quota returns is asked again after this.
QUOTA_PAUSE_MS = 5 * 60 * 1000
#: Longest time for which a provider's circuit is opened, whatever the provider says.
QUOTA_PAUSE_MAX_MS = 8 * 24 * 3600 * 1000

#: Outcomes of an attempt that its provider has served.
_SERVED = (AttemptOutcome.COMPLETED, AttemptOutcome.BAD_OUTPUT, AttemptOutcome.BLOCKED)
#: Outcomes that the ledger knows as failures, by the same name.
_FAILURES = {AttemptOutcome(kind): kind for kind in FailureKind}


def report(attempt: Attempt, verdict: AttemptResult) -> AttemptResult:
    """Report the result once; return it as the ledger accepted it."""
    claim, budget = attempt.claim, attempt.budget
    step = attempt.failed_at or attempt.step
    if verdict.outcome is AttemptOutcome.SURROUNDINGS:
        attempt.begin("check", "can the role work here?")
        verdict = _judged(attempt, verdict)
    attempt.begin("report")
    if verdict.outcome in _SERVED:
        note_served(attempt)
    if verdict.outcome is AttemptOutcome.COMPLETED:
        try:
            # Whatever ends completed has passed the role's check, if it has one.
            # Pushed before: what went wrong is part of the report, where people see it.
            verdict = replace(verdict, summary=with_push(verdict.summary, push_branch(attempt)))
            evidence = attempt.evidence
            claim.complete(
                verdict.summary, evidence.result, budget.unreported, verified=True,
                data=json_value(evidence.data),
            )  # fmt: skip
            return verdict
        except Refused as refusal:
            if isinstance(refusal, Stale):
                raise
            verdict = replace(verdict, outcome=AttemptOutcome.BAD_OUTPUT, summary=str(refusal))
            step = "report"
    if verdict.outcome is AttemptOutcome.YIELDED:
        budget.report()
        if not budget.blocked:
            verdict = yielding.leave(attempt, verdict)
            if verdict.outcome is AttemptOutcome.YIELDED:
                return verdict
    reason = reason_with_denials(f"{step}: {verdict.summary}", attempt, verdict)
    if verdict.outcome in _FAILURES:
        claim.fail(reason, _FAILURES[verdict.outcome], budget.unreported)
        return verdict
    budget.report()
    if budget.blocked:
        claim.settled()
        return replace(verdict, outcome=AttemptOutcome.BUDGET)
    _give_back(attempt, verdict, reason)
    return verdict


def _give_back(attempt: Attempt, verdict: AttemptResult, reason: str) -> None:
    """Give the task back, which uses no attempt, or block it for a person."""
    claim = attempt.claim
    match verdict.outcome:
        case AttemptOutcome.QUOTA:
            _wait_for_quota(attempt, verdict, reason)
        case AttemptOutcome.SURROUNDINGS:
            claim.interrupt(verdict.summary)
        case AttemptOutcome.OVERLOADED:
            _wait_for_provider(attempt, verdict, reason)
        case AttemptOutcome.BLOCKED:
            claim.block(verdict.summary)
        case _ if verdict.resets_at:
            claim.release(reason, not_before=_on_ledgers_clock(attempt, verdict.resets_at))
        case _:
            claim.release(reason)


def _on_ledgers_clock(attempt: Attempt, moment: int) -> int:
    """A moment of this machine's clock, not in the past, as the ledger's clock has it."""
    wall = time.time_ns() // 1_000_000
    pause = min(max(moment - wall, 1000), QUOTA_PAUSE_MAX_MS)
    return attempt.shared.service.now() + pause


#: Where the ledger takes the log of an attempt that is over: with its report, or its cancel.
_TAKES_LOG = (State.CANCELLED, State.COMPLETE, State.REVIEW)


def hand_in_late(attempt: Attempt) -> None:
    """Leave the cost and the log of an attempt that was over before its agent: its task was
    cancelled while it ran, or the agent has reported by itself."""
    if not attempt.ended:
        return
    shared, task_id, epoch = attempt.shared, attempt.task.id, attempt.claim.epoch
    cost, attempt.budget.unreported = attempt.budget.unreported, NO_USAGE
    try:
        # Not by the claim, which is lost or settled: the ledger takes these two all the same.
        if cost != NO_USAGE:
            shared.service.spend(shared.who, task_id, epoch, cost)
        task = attempt.stored()
        if task is None or task.state not in _TAKES_LOG:
            return
        files = attempt.evidence.take_waiting()
        if files:
            shared.service.put_artifacts(shared.who, task_id, epoch, files)
        shared.queue.artifacts.live_end(task_id, epoch)
    except (AgentqError, OSError) as error:  # another attempt has begun: the live log stays
        shared.warn(task_id, "report", f"its log and cost are not kept: {error}")


def _judged(attempt: Attempt, verdict: AttemptResult) -> AttemptResult:
    """What the attempt comes to, once its role was checked."""
    readiness = attempt.shared.readiness
    if readiness is None:
        return replace(verdict, outcome=verdict.otherwise)
    judged = readiness.judge(verdict)
    return replace(judged, summary=redacted_text(judged.summary, attempt.secrets))


def note_served(attempt: Attempt) -> None:
    """Close the circuit that the provider's failures had opened: it has served this attempt."""
    shared, provider = attempt.shared, attempt.shared.provider
    if attempt.is_served or not provider:
        return
    attempt.is_served = True
    try:
        circuits = shared.service.circuits(shared.who)
        if any(row.provider == provider and row.failures for row in circuits):
            shared.service.reset_circuit(shared.who, provider)
    except Unavailable as error:
        # The next attempt that is served says it again.
        shared.warn(attempt.task.id, "stream", f"the circuit was not reset: {error}")


def _wait_for_provider(attempt: Attempt, verdict: AttemptResult, reason: str) -> None:
    """Open the circuit of a provider that does not serve, and give the task back unharmed."""
    if attempt.shared.provider:
        attempt.claim.interrupt(verdict.summary, attempt.shared.provider)
        return
    pause = pause_ms(attempt.task.details.interruptions + 1)
    attempt.claim.release(reason, not_before=attempt.shared.service.now() + pause)


def _wait_for_quota(attempt: Attempt, verdict: AttemptResult, reason: str) -> None:
    """Open the provider's circuit for all its workers, and give the task back unharmed."""
    shared, provider = attempt.shared, attempt.shared.provider
    resets_at = verdict.resets_at or time.time_ns() // 1_000_000 + QUOTA_PAUSE_MS
    until = _on_ledgers_clock(attempt, resets_at)
    if provider:
        # The circuit holds the task back; whoever closes it sets this one free with the others.
        shared.service.open_circuit(shared.who, provider, until, verdict.summary)
        attempt.claim.release(reason)
    else:
        attempt.claim.release(reason, not_before=until)
