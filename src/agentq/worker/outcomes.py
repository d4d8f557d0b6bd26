"""From a verdict to one word in the ledger. Each class of outcome has its own answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from agentq.contracts.agent import Outcome, Verdict
from agentq.core.errors import Refused, Stale
from agentq.core.states import TERMINAL, State
from agentq.core.triggers import FailureKind

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt

#: A provider that does not say when its quota returns is asked again after this.
QUOTA_PAUSE_MS = 5 * 60 * 1000
#: Nobody is believed who says that it takes longer.
QUOTA_PAUSE_MAX_MS = 8 * 24 * 3600 * 1000

_FAILURES = {
    Outcome.TRANSIENT: FailureKind.TRANSIENT,
    Outcome.TIMEOUT: FailureKind.TIMEOUT,
    Outcome.STALLED: FailureKind.STALLED,
    Outcome.CRASHED: FailureKind.CRASHED,
    Outcome.BAD_OUTPUT: FailureKind.BAD_OUTPUT,
    Outcome.REFUSED: FailureKind.REFUSED,
    Outcome.INVALID: FailureKind.INVALID,
    Outcome.BUDGET: FailureKind.BUDGET,
}


def report(attempt: Attempt, verdict: Verdict) -> Verdict:
    """Say it, once. Returns the verdict as the ledger took it."""
    claim = attempt.claim
    step = attempt.failed_at or attempt.step
    attempt.begin("report")
    if verdict.outcome is Outcome.COMPLETED:
        try:
            # Whatever ends completed has passed the role's check, if it has one.
            claim.complete(
                verdict.summary, attempt.evidence.result, attempt.purse.untold, verified=True
            )
            attempt.push()
            return verdict
        except Refused as refusal:
            if isinstance(refusal, Stale):
                raise
            verdict = replace(verdict, outcome=Outcome.BAD_OUTPUT, summary=str(refusal))
            step = "report"
    reason = f"{step}: {verdict.summary}"
    if verdict.outcome in _FAILURES:
        claim.fail(reason, _FAILURES[verdict.outcome], attempt.purse.untold)
        return verdict
    attempt.purse.tell()
    if attempt.purse.is_blocked():
        claim.settled()
        return replace(verdict, outcome=Outcome.BUDGET)
    if verdict.outcome is Outcome.QUOTA:
        _wait_for_quota(attempt, verdict, reason)
    elif verdict.outcome is Outcome.BLOCKED:
        claim.block(verdict.summary)
    else:
        claim.release(reason)
    return verdict


def reported_itself(attempt: Attempt) -> bool:
    """Whether the agent has reported this attempt, with `agentq complete` or the SDK."""
    claim = attempt.claim
    task = attempt.stored()
    if task is None or task.epoch != claim.epoch:
        return False
    return task.state in TERMINAL or task.state in (State.REVIEW, State.BLOCKED, State.PENDING)


def _wait_for_quota(attempt: Attempt, verdict: Verdict, reason: str) -> None:
    """Open the provider's circuit for all its workers, and give the task back unharmed."""
    desk, provider = attempt.desk, attempt.desk.provider
    now = desk.service.now()
    wall = time.time_ns() // 1_000_000
    pause = verdict.resets_at - wall if verdict.resets_at else QUOTA_PAUSE_MS
    until = now + min(max(pause, 1000), QUOTA_PAUSE_MAX_MS)
    if provider:
        # The circuit holds the task back; whoever closes it sets this one free with the others.
        desk.service.open_circuit(desk.who, provider, until, verdict.summary)
        attempt.claim.release(reason)
    else:
        attempt.claim.release(reason, not_before=until)
