"""How a task stands by its shadow, and what may be said to it now: the guards, apart from the code.

`why_not` names the promise that a trigger would break. It serves twice: before a call, to predict
whether the ledger must accept or refuse it, and after a commit, to judge what it accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.states import State
from agentq.core.task import OnDependencyFailure, Priority, Spec, Task
from agentq.core.values import replace
from tests.simulation.violation import (
    CANCEL,
    FENCE,
    GRAPH,
    INPUT,
    IRREVERSIBLE,
    LEASE,
    RULES,
    TIMERS,
)

DAY_MS = 24 * 3600 * 1000
CRASHES_MAX = 3
EVIDENCE_KEPT = 10

PENDING, READY, RUNNING = State.PENDING, State.READY, State.IN_PROGRESS
REVIEW, BLOCKED = State.REVIEW, State.BLOCKED
COMPLETE, FAILED, CANCELLED, EXPIRED = (
    State.COMPLETE,
    State.FAILED,
    State.CANCELLED,
    State.EXPIRED,
)
OVER = frozenset({COMPLETE, FAILED, CANCELLED, EXPIRED})

#: The promise that would be broken, and how; None if all is well.
Objection = tuple[str, str] | None

HOLDER_SAYS = (
    t.Progress, t.AddArtifact, t.Spend, t.Report, t.FailAttempt, t.BlockTask, t.Release,
    t.TakeMessages,
)  # fmt: skip
#: What a holder still says of a cancelled task until it has stopped.
LAST_WORDS = (t.AddArtifact, t.Spend)


class Peers(Protocol):
    """What a shadow asks about other tasks."""

    def outcome(self, task_id: str) -> State:
        """The state of a task, also of one that was pruned."""
        ...


class Standing:
    """The facts about one task, by the events that were committed."""

    def __init__(self, key: int, spec: Spec, peers: Peers) -> None:
        self.key, self.spec, self.id, self.peers = key, spec, spec.id, peers
        #: What was asked for first, which edits do not change.
        self.submitted = spec
        self.digest = spec_digest(spec)
        self.state = PENDING
        self.version = self.epoch = 0
        self.submitted_at = self.updated_at = 0
        self.holder, self.lease_end = "", 0
        self.waiting: tuple[str, ...] = ()
        self.not_before = self.asked_at = self.remind_at = self.reopened_at = 0
        self.approved, self.approvals, self.starts = False, 0, 0
        self.blocked_for = ""
        self.editors: set[str] = set()
        self.failures = self.crashes = self.interruptions = 0
        self.spent = self.extra = 0
        self.warned = False
        self.report: tuple[int, str, str, str, str] | None = None
        self.completions = self.refused_reports = 0
        self.artifacts: dict[tuple[int, str], str] = {}
        #: How those it came after had ended when they were pruned. Their ids may live on.
        self.gone: dict[str, State] = {}
        #: The task as `transition` replays it, kept by the checker.
        self.task: Task | None = None

    # -- questions -------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def awaits_approval(self) -> bool:
        return (self.spec.requires_approval or self.spec.irreversible) and not self.approved

    @property
    def expires_at(self) -> int:
        if not self.spec.ttl_seconds or self.epoch:
            return 0
        return (self.reopened_at or self.submitted_at) + self.spec.ttl_seconds * 1000

    def due_at(self) -> int:
        """The next moment at which time matters; 0 if there is none."""
        if self.holder:
            return self.lease_end
        if self.state is READY:
            return self.expires_at
        if self.state in (REVIEW, BLOCKED):
            return self.remind_at
        if self.state is not PENDING:
            return 0
        moments = [self.not_before, self.expires_at]
        if self.awaits_approval:
            moments.append(self.remind_at)
            if self.spec.approval_timeout_seconds:
                moments.append(self.asked_at + self.spec.approval_timeout_seconds * 1000)
        return min((moment for moment in moments if moment), default=0)

    def parent_state(self, task_id: str) -> State:
        return self.gone.get(task_id) or self.peers.outcome(task_id)

    def needs_a_person(self) -> bool:
        return self.state in (REVIEW, BLOCKED) or (self.state is PENDING and self.awaits_approval)

    def missing_evidence(self, report: t.Report) -> list[str]:
        brought = {name for epoch, name in self.artifacts if epoch == report.epoch}
        brought |= {name.split(".")[0] for name in brought}
        if report.summary:
            brought.add("summary")
        if report.result:
            brought.add("result")
        return [name for name in self.spec.expected_output.artifacts if name not in brought]

    # -- may this be said now? -------------------------------------------------------------------

    def why_not(self, trigger: t.Trigger, at: int) -> Objection:
        """Which promise this trigger would break if it were accepted at that moment."""
        if isinstance(trigger, HOLDER_SAYS):
            last_words = isinstance(trigger, LAST_WORDS) and self.state is CANCELLED
            held = self.state is RUNNING or (last_words and self.holder)
            if not held or trigger.epoch != self.epoch:
                return FENCE, self._words(trigger)
            if isinstance(trigger, t.Report) and self.missing_evidence(trigger):
                return INPUT, f"{self.id} was reported without its evidence"
            return None
        check = _CHECKS[type(trigger)]
        return check(self, trigger, at)

    def _words(self, trigger: t.Trigger) -> str:
        return f"{trigger} while {self.id} is {self.state} at attempt {self.epoch}"

    def _claim_ok(self, trigger: t.ClaimTask, at: int) -> Objection:
        if self.state is not READY:
            broken = CANCEL if self.state is CANCELLED else RULES
            return broken, self._words(trigger)
        if self.awaits_approval:
            return IRREVERSIBLE, f"{self.id} was started without an approval"
        if self.spec.irreversible and self.starts >= self.approvals:
            return IRREVERSIBLE, f"{self.id}: more starts than its {self.approvals} approvals"
        if self.waiting:
            return GRAPH, f"{self.id} was started before {self.waiting}"
        if self.expires_at and at >= self.expires_at:
            return TIMERS, f"{self.id} was started after its time to live"
        if self.not_before > at:
            return TIMERS, f"{self.id} was started before its time"
        if self.spec.on_dependency_failure is not OnDependencyFailure.RUN and not self.reopened_at:
            failed = [d for d in self.spec.after if self.parent_state(d) is not COMPLETE]
            if failed:
                return GRAPH, f"{self.id} was started although {failed} did not complete"
        return None

    def _dependency_ok(self, trigger: t.DependencyEnded, at: int) -> Objection:
        if self.state not in (PENDING, BLOCKED) or trigger.dependency not in self.waiting:
            return GRAPH, self._words(trigger)
        if self.peers.outcome(trigger.dependency) is not trigger.outcome:
            return GRAPH, f"{trigger.dependency} did not end as {self.id} was told"
        return None

    def _approve_ok(self, trigger: t.Approve, at: int) -> Objection:
        timed_out = self.state is BLOCKED and self.blocked_for == "approval_timeout"
        asks = self.state is PENDING or timed_out
        if not asks or not self.awaits_approval:
            return RULES, self._words(trigger)
        if trigger.by in {self.spec.sender, *self.editors} and not trigger.own:
            return IRREVERSIBLE, f"{trigger.by} approved {self.id}, its own task"
        if trigger.digest and trigger.digest != self.digest:
            return IRREVERSIBLE, f"the approval of {self.id} was for another payload"
        return None

    def _reject_ok(self, trigger: t.Reject, at: int) -> Objection:
        if self.state is BLOCKED or (self.state is PENDING and self.awaits_approval):
            return None
        return RULES, self._words(trigger)

    def _answer_ok(self, trigger: t.Answer, at: int) -> Objection:
        if self.state is not BLOCKED:
            return RULES, self._words(trigger)
        allowed = self.spec.budget.tokens + self.extra + trigger.extra_budget.tokens
        retry = trigger.resolution is t.Resolution.RETRY
        if retry and self.spec.budget.tokens and self.spent >= allowed:
            return RULES, f"{self.id} was answered without the budget to go on"
        return None

    def _verdict_ok(self, trigger: t.Verdict, at: int) -> Objection:
        if self.state is not REVIEW or self.report is None or trigger.by == self.report[1]:
            return RULES, self._words(trigger)
        return None

    def _cancel_ok(self, trigger: t.Cancel, at: int) -> Objection:
        return (RULES, self._words(trigger)) if self.over else None

    def _stopped_ok(self, trigger: t.Stopped, at: int) -> Objection:
        return None if self.state is CANCELLED else (FENCE, self._words(trigger))

    def _applied_ok(self, trigger: t.Applied, at: int) -> Objection:
        return None if self.state is COMPLETE else (RULES, self._words(trigger))

    def _requeue_ok(self, trigger: t.Requeue, at: int) -> Objection:
        return None if self.state in (FAILED, EXPIRED) else (RULES, self._words(trigger))

    def _edit_ok(self, trigger: t.Edit, at: int) -> Objection:
        timed_out = self.state is BLOCKED and self.blocked_for == "approval_timeout"
        if self.state not in (PENDING, READY) and not timed_out:
            return RULES, self._words(trigger)
        return None

    def _tick_ok(self, trigger: t.Tick, at: int) -> Objection:
        due = self.due_at()
        if due and at >= due:
            return None
        if self.holder:
            return LEASE, f"{self.id} lost its lease at {at}, renewed until {due}"
        return TIMERS, f"{self.id} was ticked at {at}, due at {due}"

    def _comment_ok(self, trigger: t.Comment, at: int) -> Objection:
        if trigger.epoch and (self.state is not RUNNING or trigger.epoch != self.epoch):
            return FENCE, self._words(trigger)
        return None

    def _tell_ok(self, trigger: t.Tell, at: int) -> Objection:
        return (RULES, self._words(trigger)) if self.over or self.state is REVIEW else None

    def _evidence_ok(self, trigger: t.RefuseReport, at: int) -> Objection:
        if self.refused_reports >= EVIDENCE_KEPT:
            return RULES, f"{self.id} keeps more than {EVIDENCE_KEPT} refused reports"
        if self.state is RUNNING and trigger.epoch == self.epoch:
            return INPUT, f"the holder's own report of {self.id} was refused"
        return None


def said_anew(spec: Spec, trigger: t.Edit) -> Spec:
    """What is asked for after an edit."""
    if trigger.to:
        spec = replace(spec, to=trigger.to)
    if trigger.title:
        spec = replace(spec, title=trigger.title)
    if trigger.priority:
        spec = replace(spec, priority=Priority(trigger.priority))
    if trigger.instructions:
        spec = replace(
            spec, instructions=trigger.instructions, context_sha256=trigger.context_sha256
        )
    return spec


_CHECKS: dict[type, Callable[[Standing, Any, int], Objection]] = {
    t.ClaimTask: Standing._claim_ok,
    t.DependencyEnded: Standing._dependency_ok,
    t.Approve: Standing._approve_ok,
    t.Reject: Standing._reject_ok,
    t.Answer: Standing._answer_ok,
    t.Verdict: Standing._verdict_ok,
    t.Cancel: Standing._cancel_ok,
    t.Stopped: Standing._stopped_ok,
    t.Requeue: Standing._requeue_ok,
    t.Edit: Standing._edit_ok,
    t.Tick: Standing._tick_ok,
    t.Applied: Standing._applied_ok,
    t.Comment: Standing._comment_ok,
    t.Tell: Standing._tell_ok,
    t.RefuseReport: Standing._evidence_ok,
}
