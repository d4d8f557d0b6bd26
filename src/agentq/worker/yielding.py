"""An attempt that leaves and goes on later: what its agent asks for, and how the worker does it.

`agentq yield` inside an attempt is a request to the worker. It is checked as the ledger would, and
answered; then the agent is stopped within its grace, what it wrote is kept and brought to where the
next attempt finds it, and the task is yielded last: after that nothing of the attempt could be
stored. An agent that just ends while its children are open is taken to have meant the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from agentq.contracts.agent import AttemptOutcome, AttemptResult
from agentq.core.errors import Refused, Stale
from agentq.core.limits import SUMMARY_CHARS_MAX, shorten
from agentq.core.schedule import waiting_for
from agentq.core.task import Task
from agentq.core.transition import transition
from agentq.core.triggers import Yield
from agentq.core.values import replace
from agentq.protocol.secret_detection import redact
from agentq.protocol.spec_validation import check_signal_name
from agentq.worker.redaction import redacted_text
from agentq.worker.stream import Stop

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.core.access import Principal
    from agentq.worker.attempt import Attempt

#: How the note of a yield begins that no agent has asked for, and how often that is done: an agent
#: that submits children each time and never looks at them must not go on for ever.
ENDED_OVER_CHILDREN = "The attempt ended while its children were not over"
_ENDS_MAX = 10


class YieldingService:
    """The service as an agent asks it: a yield of its own attempt goes to the worker first."""

    def __init__(self, service: Service, attempt: Attempt) -> None:
        self._service = service
        self._attempt = attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    def yield_attempt(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        wait: str = "all",
        note: str = "",
        signals: Sequence[str] = (),
    ) -> Task:
        attempt, service = self._attempt, self._service
        task = attempt.stored() if (task_id, epoch) == (who.task_id, who.epoch) else None
        if task is None:
            return service.yield_attempt(who, task_id, epoch, wait, note, signals)
        names = tuple(check_signal_name(each) for each in signals)
        said = redacted_text(redact(note), attempt.secrets)
        asked = Yield(epoch, wait, shorten(said, SUMMARY_CHARS_MAX), names)
        decided = transition(task, asked, service.now()).task
        attempt.wanted_yield = asked
        attempt.stop(Stop(AttemptOutcome.YIELDED, _words(decided)))
        return decided


def service_for_agent(attempt: Attempt) -> Service:
    """What the API of an attempt asks."""
    return cast("Service", YieldingService(attempt.shared.service, attempt))


def judged(attempt: Attempt, verdict: AttemptResult, task: Task | None) -> AttemptResult:
    """The verdict on an attempt that leaves: its agent has asked for it, or has ended while the
    children of the task, as it is stored, are open."""
    if attempt.wanted_yield is not None:
        if verdict.outcome not in (AttemptOutcome.COMPLETED, AttemptOutcome.YIELDED):
            return verdict  # it had another end before it could leave
        reason = verdict.summary if verdict.outcome is AttemptOutcome.YIELDED else ""
        return replace(verdict, outcome=AttemptOutcome.YIELDED, summary=reason)
    children = task.details.children if task is not None else ()
    if verdict.outcome is not AttemptOutcome.COMPLETED or task is None or not children:
        return verdict
    before = [each for each in task.details.notes if each.text.startswith(ENDED_OVER_CHILDREN)]
    if len(before) >= _ENDS_MAX:
        why = (
            f"{len(before) + 1} attempts have ended while children of the task were not over. Wait"
            " for them (`agentq yield`), or complete without them (`agentq complete"
            " --leave-children`)."
        )
        return replace(verdict, outcome=AttemptOutcome.BAD_OUTPUT, summary=why)
    note = f"{ENDED_OVER_CHILDREN} ({', '.join(children[:5])}), so it was left until they are."
    if verdict.summary:
        note += f" It said: {verdict.summary}"
    attempt.wanted_yield = Yield(task.epoch, note=shorten(note, SUMMARY_CHARS_MAX))
    return replace(verdict, outcome=AttemptOutcome.YIELDED, summary=note)


def unless_cancelled(attempt: Attempt, verdict: AttemptResult) -> AttemptResult:
    """The same verdict; of one whose task was cancelled before it could leave, that it was."""
    if verdict.outcome is AttemptOutcome.YIELDED and attempt.cancelled:
        return replace(verdict, outcome=AttemptOutcome.CANCELLED, summary="it was cancelled")
    return verdict


def leave(attempt: Attempt, verdict: AttemptResult) -> AttemptResult:
    """Yield, once everything is stored; or fail, with the reason for the next attempt."""
    asked = attempt.wanted_yield
    assert asked is not None
    try:
        task = attempt.claim.yield_(asked.wait, asked.note, signals=asked.signals)
    except Refused as refusal:
        if isinstance(refusal, Stale):
            raise
        return replace(verdict, outcome=AttemptOutcome.BAD_OUTPUT, summary=str(refusal))
    return replace(verdict, summary=_words(task))


def _words(task: Task) -> str:
    waits = waiting_for(task)
    return f"waits for {', '.join(waits)}" if waits else "what it waits for is there"
