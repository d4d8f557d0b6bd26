"""How a task stands by its shadow, and what may be said to it now: the guards, apart from the code.

`why_not` names the promise that a trigger would break. It serves twice: before a call, to predict
whether the ledger must accept or refuse it, and after a commit, to judge what it accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.states import State
from agentq.core.task import (
    NO_GATES,
    NO_POLICY,
    Gates,
    OnDependencyFailure,
    Priority,
    Spec,
    Task,
)
from agentq.core.values import replace
from tests.simulation.answers import Judgement, meaning
from tests.simulation.violation import (
    CANCEL,
    FAMILY,
    FENCE,
    GRAPH,
    HOLDS,
    INPUT,
    IRREVERSIBLE,
    LEASE,
    REVIEWS,
    RULES,
    SIGNALS,
    TIMERS,
)

DAY_MS = 24 * 3600 * 1000
CRASHES_MAX = 3
EVIDENCE_KEPT = 10
LATE_COSTS_MAX = 10

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

#: How a coordinator is known, which is no person.
PROGRAM = "coordinator"

HOLDER_SAYS = (
    t.Progress, t.AddArtifact, t.Spend, t.Report, t.FailAttempt, t.BlockTask, t.Release,
    t.TakeMessages, t.Yield,
)  # fmt: skip
#: What a holder still says of a cancelled task until it has stopped.
LAST_WORDS = (t.AddArtifact, t.Spend)


class Peers(Protocol):
    """What a shadow asks about other tasks."""

    def outcome(self, task_id: str) -> State:
        """The state of a task, also of one that was pruned."""
        ...

    def open_children(self, key: int) -> set[str]:
        """The children of a task that are not over."""
        ...

    def waits_for_itself(self, task_id: str, through: Iterable[str]) -> bool:
        """Whether one of these waits for that task, or for what waits for it."""
        ...

    def waiting_parent(self, key: int) -> str:
        """The parent of a task that waits for its children; "" if it does not."""
        ...

    def judgement(self, review: str, reviewed: str) -> Judgement | None:
        """What a complete review says, unless that was delivered before."""
        ...

    def parent_of(self, task_id: str) -> str:
        """Whose child a task is said to be; "" if nobody's."""
        ...

    def role_of(self, task_id: str) -> str:
        """The role of a task that is there; "" for any other."""
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
        self.spent = self.extra = self.late_costs = 0
        self.warned = False
        self.report: tuple[int, str, str, str, str, str] | None = None
        self.completions = self.refused_reports = 0
        self.artifacts: dict[tuple[int, str], str] = {}
        #: Open children it was told of, those that it was told the end of, what it waits for.
        self.children: tuple[str, ...] = ()
        self.ended_children: set[str] = set()
        self.yielded = ""
        #: How many of its children have ended since its newest attempt began.
        self.ended_since = 0
        #: Signals that it waits for, those that came and let nothing go on yet, and all that came.
        self.awaited: list[str] = []
        self.kept: Counter[str] = Counter()
        self.came: Counter[str] = Counter()
        #: Gates of its role when it was claimed; its review; what reviewers and policies did.
        self.role_gates = NO_GATES
        self.review_task, self.rounds, self.escalations = "", 0, 0
        #: Who keeps it from starting, and how that is known; None if nobody does.
        self.held: tuple[str, str] | None = None
        #: The attempt whose report a reviewer has accepted.
        self.accepted = 0
        #: The task that was its parent when it was submitted, by key; 0 if none was or could be.
        self.parent_key = 0
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
        if self.state is BLOCKED:
            return self.remind_at
        if self.state not in (PENDING, REVIEW):
            return 0
        moments = [self.deadline, self.escalates_at]
        if self.state is PENDING:
            moments += [self.not_before, self.expires_at]
        if self.state is REVIEW or self.awaits_approval:
            moments.append(self.remind_at)
        return min((moment for moment in moments if moment), default=0)

    @property
    def is_decided_in_time(self) -> bool:
        """Whether the steps of its approval policy are counted now."""
        if self.state is REVIEW:
            return self.spec.approval != NO_POLICY
        return self.state is PENDING and self.awaits_approval

    @property
    def deadline(self) -> int:
        """When the time for a decision is over; 0 if never, or if it was."""
        timeout = self.spec.approval_timeout_seconds * 1000
        over = self.escalations > len(self.spec.approval.escalate)
        return self.asked_at + timeout if timeout and self.is_decided_in_time and not over else 0

    @property
    def escalates_at(self) -> int:
        """When the next one is asked; 0 if nobody is."""
        left = self.spec.approval.escalate[self.escalations :]
        if not left or not self.is_decided_in_time:
            return 0
        return self.asked_at + left[0].after_seconds * 1000

    @property
    def remind_ms(self) -> int:
        return self.spec.approval.remind_seconds * 1000 or DAY_MS

    @property
    def gates(self) -> Gates:
        """What its report must pass: its own gates and those of its role, the stricter of both."""
        own, role = self.spec.gates, self.role_gates
        rounds = [each.max_rounds for each in (own, role) if each.max_rounds]
        return Gates(
            own.verify or role.verify, own.reviewer or ("" if self.spec.reviews else role.reviewer),
            max(own.min_score, role.min_score), min(rounds, default=3),
            own.person or role.person or self.spec.review,
        )  # fmt: skip

    def parent_state(self, task_id: str) -> State:
        return self.gone.get(task_id) or self.peers.outcome(task_id)

    def needs_a_person(self) -> bool:
        if self.state is REVIEW:
            return not self.review_task
        if self.state is PENDING:
            return self.awaits_approval or bool(self.awaited) or self.held is not None
        return self.state is BLOCKED

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
            held = held or self._is_late_and_taken(trigger)
            if not held or trigger.epoch != self.epoch:
                return FENCE, self._words(trigger)
            if isinstance(trigger, t.Report):
                return self._report_ok(trigger)
            return self._yield_ok(trigger) if isinstance(trigger, t.Yield) else None
        check = _CHECKS[type(trigger)]
        return check(self, trigger, at)

    def _is_late_and_taken(self, trigger: t.Trigger) -> bool:
        """Whether its newest attempt, which is over, may say this: what it cost, a few times; and
        what its worker keeps of it, once it has reported."""
        if not self.epoch or self.state in (RUNNING, CANCELLED, EXPIRED):
            return False
        if isinstance(trigger, t.Spend):
            return self.late_costs < LATE_COSTS_MAX
        reported = self.state in (REVIEW, COMPLETE) and self.report is not None
        return isinstance(trigger, t.AddArtifact) and reported and trigger.name == "output.log"

    def _words(self, trigger: t.Trigger) -> str:
        return f"{trigger} while {self.id} is {self.state} at attempt {self.epoch}"

    def _report_ok(self, trigger: t.Report) -> Objection:
        if self.missing_evidence(trigger):
            return INPUT, f"{self.id} was reported without its evidence"
        left = self.peers.open_children(self.key)
        if left and not trigger.leaves_children:
            return FAMILY, f"{self.id} was reported over its open children {left}"
        if self.spec.reviews and meaning(trigger.data) is None:
            return INPUT, f"the review {self.id} ended without a verdict"
        return None

    def _yield_ok(self, trigger: t.Yield) -> Objection:
        if self.spec.irreversible:
            return IRREVERSIBLE, f"{self.id} left in the middle of what cannot be undone"
        children = self.peers.open_children(self.key)
        if not (children or self.ended_since or trigger.signals):
            return FAMILY, f"{self.id} left and waits for nothing"
        if self.peers.waits_for_itself(self.id, children):
            return FAMILY, f"{self.id} and its children {children} wait for each other"
        return None

    def _claim_ok(self, trigger: t.ClaimTask, at: int) -> Objection:
        if self.state is not READY:
            broken = CANCEL if self.state is CANCELLED else RULES
            return HOLDS if self.held else broken, self._words(trigger)
        if self.awaits_approval:
            return IRREVERSIBLE, f"{self.id} was started without an approval"
        if self.spec.irreversible and self.starts >= self.approvals:
            return IRREVERSIBLE, f"{self.id}: more starts than its {self.approvals} approvals"
        if self.waiting:
            return GRAPH, f"{self.id} was started before {self.waiting}"
        if self.yielded:
            return FAMILY, f"{self.id} was started before its children {self.children} were over"
        if self.awaited or Counter(self.spec.wait_for) - self.came:
            return SIGNALS, f"{self.id} was started, and {self.awaited} had not come"
        if (self.expires_at and at >= self.expires_at) or self.not_before > at:
            return TIMERS, f"{self.id} was started before its time, or after its time to live"
        if self.spec.on_dependency_failure is not OnDependencyFailure.RUN and not self.reopened_at:
            failed = [d for d in self.spec.after if self.parent_state(d) is not COMPLETE]
            if failed:
                return GRAPH, f"{self.id} was started although {failed} did not complete"
        return None

    def _dependency_ok(self, trigger: t.DependencyEnded, at: int) -> Objection:
        awaits = self.state in (PENDING, BLOCKED) and trigger.dependency in self.waiting
        if self.over or not (awaits or trigger.dependency in self.children):
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
        return self._review_ok(trigger) if trigger.review else None

    def _review_ok(self, trigger: t.Verdict) -> Objection:
        """A verdict that no person gave: is it what its review says, of this very report?"""
        said = self.peers.judgement(trigger.review, self.id)
        if trigger.review != self.review_task or said is None:
            return REVIEWS, f"{self.id} waits for {self.review_task}, not for {trigger}"
        told = (trigger.ruling, trigger.score, trigger.feedback)
        if said.of != (self.report or (0,))[0] or said.of != trigger.reviewed:
            return REVIEWS, f"{trigger} of attempt {said.of}, and {self.id} waits with another"
        if told != (said.ruling, said.score, said.notes) or trigger.by != said.role:
            return REVIEWS, f"{trigger} is not what {said} says"
        if said.role == self.spec.to:
            return REVIEWS, f"{said.role} did {self.id} and judges it"
        return None

    def _review_failed_ok(self, trigger: t.ReviewFailed, at: int) -> Objection:
        if self.state is not REVIEW or trigger.review != self.review_task:
            return REVIEWS, self._words(trigger)
        return None

    def _children_ok(self, trigger: t.ChildrenSubmitted, at: int) -> Objection:
        if self.over or not set(trigger.children) - set(self.children):
            return FAMILY, self._words(trigger)
        return None

    def _signal_ok(self, trigger: t.Signal, at: int) -> Objection:
        return (RULES, self._words(trigger)) if self.over else None

    def _cancel_ok(self, trigger: t.Cancel, at: int) -> Objection:
        return (RULES, self._words(trigger)) if self.over else None

    def _stopped_ok(self, trigger: t.Stopped, at: int) -> Objection:
        return None if self.state is CANCELLED else (FENCE, self._words(trigger))

    def _applied_ok(self, trigger: t.Applied, at: int) -> Objection:
        return None if self.state is COMPLETE else (RULES, self._words(trigger))

    def _requeue_ok(self, trigger: t.Requeue, at: int) -> Objection:
        if self.state not in (FAILED, EXPIRED):
            return RULES, self._words(trigger)
        parent = self.peers.waiting_parent(self.key)
        under_way = [each for each in self.spec.after if self.parent_state(each) not in OVER]
        if parent and self.peers.waits_for_itself(parent, under_way):
            return FAMILY, f"{self.id} was reopened: {parent} and it wait for each other"
        return None

    def _edit_ok(self, trigger: t.Edit, at: int) -> Objection:
        # What an agent has asked may be known to those of another role.
        given_away = self.blocked_for == "asked" and trigger.to not in ("", self.spec.to)
        may = self.blocked_for == "approval_timeout" or given_away
        if self.state not in (PENDING, READY) and not (self.state is BLOCKED and may):
            return RULES, self._words(trigger)
        if trigger.to and trigger.to == self.spec.gates.reviewer:
            return INPUT, f"{self.id} was edited, and its own role would review it"
        if trigger.to and self.spec.reviews and trigger.to == self.peers.role_of(self.spec.reviews):
            return REVIEWS, f"{self.id} was edited, and the author's role would do it"
        return None

    def _hold_ok(self, trigger: t.Hold, at: int) -> Objection:
        return None if self.state in (PENDING, READY) else (RULES, self._words(trigger))

    def _dispatch_ok(self, trigger: t.Dispatch, at: int) -> Objection:
        if self.state not in (PENDING, READY):
            return RULES, self._words(trigger)
        if self.held is not None and trigger.how == PROGRAM != self.held[1]:
            return HOLDS, f"a program dispatched {self.id}, which {self.held[0]} holds"
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
        return (RULES, self._words(trigger)) if self.over else None

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
    t.ReviewFailed: Standing._review_failed_ok,
    t.ChildrenSubmitted: Standing._children_ok,
    t.Signal: Standing._signal_ok,
    t.Cancel: Standing._cancel_ok,
    t.Stopped: Standing._stopped_ok,
    t.Requeue: Standing._requeue_ok,
    t.Edit: Standing._edit_ok,
    t.Hold: Standing._hold_ok,
    t.Dispatch: Standing._dispatch_ok,
    t.Tick: Standing._tick_ok,
    t.Applied: Standing._applied_ok,
    t.Comment: Standing._comment_ok,
    t.Tell: Standing._tell_ok,
    t.RefuseReport: Standing._evidence_ok,
}
