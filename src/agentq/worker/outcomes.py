"""Reports the result of an attempt to the ledger. Each kind of outcome has its own trigger."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.errors import AgentqError, Refused, Stale
from agentq.core.task import NO_USAGE
from agentq.core.triggers import FailureKind
from agentq.worker.denials import reason_with_denials

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

#: A provider that does not say when its quota returns is asked again after this.
QUOTA_PAUSE_MS = 5 * 60 * 1000
#: Longest time for which a provider's circuit is opened, whatever the provider says.
QUOTA_PAUSE_MAX_MS = 8 * 24 * 3600 * 1000

#: Outcomes that the ledger knows as failures, by the same name.
_FAILURES = {AttemptOutcome(kind): kind for kind in FailureKind}


def report(attempt: Attempt, verdict: AttemptResult) -> AttemptResult:
    """Report the result once; return it as the ledger accepted it."""
    claim, budget = attempt.claim, attempt.budget
    step = attempt.failed_at or attempt.step
    attempt.begin("report")
    if verdict.outcome is AttemptOutcome.COMPLETED:
        try:
            # Whatever ends completed has passed the role's check, if it has one.
            claim.complete(
                verdict.summary, attempt.evidence.result, budget.unreported, verified=True
            )
            attempt.push()
            return verdict
        except Refused as refusal:
            if isinstance(refusal, Stale):
                raise
            verdict = replace(verdict, outcome=AttemptOutcome.BAD_OUTPUT, summary=str(refusal))
            step = "report"
    reason = reason_with_denials(f"{step}: {verdict.summary}", attempt, verdict)
    if verdict.outcome in _FAILURES:
        claim.fail(reason, _FAILURES[verdict.outcome], budget.unreported)
        return verdict
    budget.report()
    if budget.blocked:
        claim.settled()
        return replace(verdict, outcome=AttemptOutcome.BUDGET)
    if verdict.outcome is AttemptOutcome.QUOTA:
        _wait_for_quota(attempt, verdict, reason)
    elif verdict.outcome is AttemptOutcome.BLOCKED:
        claim.block(verdict.summary)
    else:
        claim.release(reason)
    return verdict


def hand_in_cancelled(attempt: Attempt) -> None:
    """Leave the log and the cost of an attempt whose task was cancelled while it ran."""
    if not attempt.cancelled:
        return
    shared, task_id, epoch = attempt.shared, attempt.task.id, attempt.claim.epoch
    files, cost = attempt.evidence.take_waiting(), attempt.budget.unreported
    try:
        # Not by the claim, which is lost: the ledger takes these two until the agent is gone.
        if cost != NO_USAGE:
            shared.service.spend(shared.who, task_id, epoch, cost)
        if files:
            shared.service.put_artifacts(shared.who, task_id, epoch, files)
        shared.queue.artifacts.live_end(task_id, epoch)
    except (AgentqError, OSError) as error:  # its lease has ended: the live log stays
        shared.show_step(task_id, "report", f"its log and cost are not kept: {error}")


def _wait_for_quota(attempt: Attempt, verdict: AttemptResult, reason: str) -> None:
    """Open the provider's circuit for all its workers, and give the task back unharmed."""
    shared, provider = attempt.shared, attempt.shared.provider
    now = shared.service.now()
    wall = time.time_ns() // 1_000_000
    pause = verdict.resets_at - wall if verdict.resets_at else QUOTA_PAUSE_MS
    until = now + min(max(pause, 1000), QUOTA_PAUSE_MAX_MS)
    if provider:
        # The circuit holds the task back; whoever closes it sets this one free with the others.
        shared.service.open_circuit(shared.who, provider, until, verdict.summary)
        attempt.claim.release(reason)
    else:
        attempt.claim.release(reason, not_before=until)
