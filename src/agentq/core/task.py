"""The data model: what was asked for (`Spec`), its state (`Task`), and the rest (`TaskDetails`).

The `Spec` that was submitted never changes, so idempotency can bind to it and every process may
keep it; what edits have changed is kept beside it (`TaskDetails.edited`). A `Task` is what is asked
for now plus a handful of fields that change on each step; what only some tasks need lives in
`TaskDetails`, empty for most, so that the hot path stays narrow.
All times are integer milliseconds of the store's clock; durations of a spec are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from agentq.core.states import TERMINAL, State
from agentq.core.values import replace

DEFAULT_ATTEMPTS = 3
DEFAULT_LEASE_SECONDS = 60
#: The role of runs of workflows. Workers of other roles do their steps.
RUN_ROLE = "workflow-runner"


class Priority(StrEnum):
    """How urgent a task is. `rank` sorts: the lowest is claimed first."""

    URGENT = "urgent"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"

    @property
    def rank(self) -> int:
        return PRIORITY_RANK[self]


PRIORITY_RANK = {Priority.URGENT: 0, Priority.HIGH: 1, Priority.NORMAL: 2, Priority.LOW: 3}


class OnDependencyFailure(StrEnum):
    """What becomes of a task when something it comes after did not complete."""

    FAIL = "fail"
    SKIP = "skip"
    RUN = "run"


class ExpectedOutput(msgspec.Struct, frozen=True):
    """The evidence a report must bring. A name is met by a file of that name or that stem."""

    format: str = "markdown"
    artifacts: tuple[str, ...] = ()


class Usage(msgspec.Struct, frozen=True):
    """Money, tokens, turns and wall time: a budget, or what was spent."""

    usd: float = 0.0
    tokens: int = 0
    turns: int = 0
    seconds: float = 0.0
    #: Of a cost: the part of `usd` that no tool has named, worked out from tokens and prices.
    estimated_usd: float = 0.0

    def plus(self, other: Usage) -> Usage:
        return Usage(
            round(self.usd + other.usd, 9),
            self.tokens + other.tokens,
            self.turns + other.turns,
            round(self.seconds + other.seconds, 3),
            round(self.estimated_usd + other.estimated_usd, 9),
        )


class Gates(msgspec.Struct, frozen=True):
    """What stands between a report and `complete`, beside the evidence that a spec expects.

    They are passed in this order: the worker runs `verify` in the workspace; a task of the role
    `reviewer` judges the report, with a score of at least `min_score` or else changes are asked
    for, at most `max_rounds` times (0: 3) before a person is asked; a `person` accepts it.
    """

    verify: str = ""
    reviewer: str = ""
    min_score: int = 0
    max_rounds: int = 0
    person: bool = False


class OnTimeout(StrEnum):
    """What becomes of a task that nobody has decided about in time."""

    HOLD = "hold"
    REJECT = "reject"
    APPROVE = "approve"


class Escalation(msgspec.Struct, frozen=True):
    """Who else is asked, once somebody has been waited for so long."""

    after_seconds: int
    to: str


class ApprovalPolicy(msgspec.Struct, frozen=True):
    """What happens while a decision of people is waited for: reminders (0: once a day), who is
    asked next and when, and what follows if the time is over (`approval_timeout_seconds`)."""

    remind_seconds: int = 0
    escalate: tuple[Escalation, ...] = ()
    on_timeout: OnTimeout = OnTimeout.HOLD


NO_USAGE = Usage()
NO_OUTPUT_EXPECTED = ExpectedOutput()
NO_GATES = Gates()
NO_POLICY = ApprovalPolicy()


class Spec(msgspec.Struct, frozen=True):
    """What the submitter asked for. Immutable; its digest is what an approval binds to."""

    id: str
    to: str
    sender: str = "coordinator"
    type: str = "task"
    title: str = ""
    priority: Priority = Priority.NORMAL
    instructions: str = ""
    context_ref: str = ""
    context_sha256: str = ""
    expected_output: ExpectedOutput = NO_OUTPUT_EXPECTED
    ttl_seconds: int = 0
    timeout_seconds: int = 0
    delay_seconds: int = 0
    lease_seconds: int = DEFAULT_LEASE_SECONDS
    max_attempts: int = DEFAULT_ATTEMPTS
    after: tuple[str, ...] = ()
    #: Those of them whose work a git workspace starts from; several are merged, in this order.
    base: tuple[str, ...] = ()
    on_dependency_failure: OnDependencyFailure = OnDependencyFailure.FAIL
    next: tuple[Spec, ...] = ()
    resources: tuple[str, ...] = ()
    idempotency_key: str = ""
    irreversible: bool = False
    requires_approval: bool = False
    approval_timeout_seconds: int = 0
    review: bool = False
    budget: Usage = NO_USAGE
    #: What this task and all that descend from it may spend together.
    tree_budget: Usage = NO_USAGE
    reply_to: str = ""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    traceparent: str = ""
    parent: str = ""
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)
    gates: Gates = NO_GATES
    approval: ApprovalPolicy = NO_POLICY
    #: Signals that must have come before it starts.
    wait_for: tuple[str, ...] = ()
    #: Plain data that templates and the agent may use.
    inputs: Mapping[str, Any] = msgspec.field(default_factory=dict)
    #: Of a next task: an expression that gives a list. There is one task for each item of it.
    each: str = ""
    #: Of a run: the name of its workflow.
    workflow: str = ""
    #: Of a review: the task whose report it judges. Only the ledger writes it.
    reviews: str = ""

    @property
    def needs_approval(self) -> bool:
        return self.requires_approval or self.irreversible


class Reported(msgspec.Struct, frozen=True):
    """A worker's report of its work. It counts only once the gates have accepted it."""

    epoch: int
    by: str
    summary: str = ""
    result: str = ""
    result_sha256: str = ""
    #: The structured result, as JSON; "" if there is none.
    data: str = ""


class ReceivedSignal(msgspec.Struct, frozen=True):
    """A signal that came for a task, kept until something waits for it and takes it."""

    at: int
    by: str
    name: str
    data: str = ""
    is_taken: bool = False


class Note(msgspec.Struct, frozen=True):
    """A note for the next attempt: an answer, a reviewer's feedback, an earlier failure."""

    at: int
    by: str
    kind: str
    text: str


class Mention(msgspec.Struct, frozen=True):
    """Somebody was named in a comment (`@name`), and has not said anything there since."""

    name: str
    at: int
    by: str
    text: str


class Edited(msgspec.Struct, frozen=True):
    """What edits have made of a spec. Empty fields are as they were submitted.

    Instructions come with their context: without a digest there is none. `version` is that of the
    task when it was last edited, and `by` are all who did: it is not theirs to approve.
    """

    version: int
    by: tuple[str, ...] = ()
    to: str = ""
    title: str = ""
    priority: str = ""
    instructions: str = ""
    context_sha256: str = ""


def edited_spec(spec: Spec, edited: Edited) -> Spec:
    """The spec with what edits have changed of it."""
    changes: dict[str, Any] = {}
    if edited.to:
        changes["to"] = edited.to
    if edited.title:
        changes["title"] = edited.title
    if edited.priority:
        changes["priority"] = Priority(edited.priority)
    if edited.instructions:
        changes |= {
            "instructions": edited.instructions,
            "context_sha256": edited.context_sha256,
        }
    return replace(spec, **changes)


class HeldBack(msgspec.Struct, frozen=True):
    """Somebody keeps a task from starting. `how` says how anybody knows who it was."""

    at: int
    by: str
    reason: str = ""
    how: str = ""


class ToldMessage(msgspec.Struct, frozen=True):
    """A message of a person to the agent of a task; `epoch` is the first attempt that was given it,
    in its prompt or while it ran, and 0 while there is none."""

    number: int
    at: int
    by: str
    text: str
    epoch: int = 0


class TaskDetails(msgspec.Struct, frozen=True):
    """The part of a task's state that most tasks never need."""

    failures: int = 0
    crashes: int = 0
    interruptions: int = 0
    rounds: int = 0
    waiting_on: tuple[str, ...] = ()
    not_before: int = 0
    approved_by: str = ""
    approved_digest: str = ""
    reason: str = ""
    reason_kind: str = ""
    notes: tuple[Note, ...] = ()
    report: Reported | None = None
    progress_percent: int = -1
    progress_note: str = ""
    spent: Usage = NO_USAGE
    extra_budget: Usage = NO_USAGE
    budget_warned: bool = False
    remind_at: int = 0
    asked_at: int = 0
    reopened_at: int = 0
    refused_reports: int = 0
    #: How many tool calls of its attempts were not allowed.
    denied: int = 0
    #: Whoever holds it now has promised to check the work before it counts.
    gated: bool = False
    #: When its work was brought into a branch, by whom, and the commit that it is there.
    applied_at: int = 0
    applied_by: str = ""
    applied_commit: str = ""
    applied_branch: str = ""
    #: What has changed since it was submitted; None for most tasks.
    edited: Edited | None = None
    messages: tuple[ToldMessage, ...] = ()
    #: The attempt whose holder takes messages while it runs; 0 if none did.
    listening: int = 0
    #: Its children that are not over, and how the others ended, the newest last.
    children: tuple[str, ...] = ()
    ended_children: tuple[tuple[str, State], ...] = ()
    #: How many of them have ended since its newest attempt began, which may not know of these.
    ended_since: int = 0
    #: While an attempt has yielded: whether it waits for `all` of its children or `any`.
    yielded: str = ""
    #: Signals that it waits for, and those that have come.
    awaited_signals: tuple[str, ...] = ()
    signals: tuple[ReceivedSignal, ...] = ()
    #: The gates that the settings of its role add, as they were when it was claimed.
    role_gates: Gates = NO_GATES
    #: The task that reviews its report, and the attempt whose report a reviewer has accepted.
    review_task: str = ""
    accepted_epoch: int = 0
    #: The newest score of a reviewer; -1 if there is none.
    score: int = -1
    #: How many steps of its approval policy were taken, and who was asked last.
    escalations: int = 0
    asked_of: str = ""
    #: Who was mentioned in comments and has not answered, the newest last.
    mentions: tuple[Mention, ...] = ()
    #: By which the newest comments are known again.
    comment_marks: tuple[str, ...] = ()
    #: How often its newest attempt has said what it cost after its end.
    late_costs: int = 0
    #: Who keeps it from starting until it is dispatched; None for most tasks.
    held: HeldBack | None = None


NO_DETAILS = TaskDetails()


class Task(msgspec.Struct, frozen=True):
    """One unit of work and how it stands.

    `wake_at` is the next moment at which time matters to it, 0 if none. While there is a holder it
    is the end of the lease: custody that heartbeats extend without an event, so it is the one field
    that replaying the log does not promise to give back.
    """

    spec: Spec
    state: State
    version: int
    epoch: int
    submitted_at: int
    updated_at: int
    wake_at: int = 0
    holder: str = ""
    details: TaskDetails = NO_DETAILS

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def to(self) -> str:
        return self.spec.to

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def is_over(self, epoch: int) -> bool:
        """Whether that attempt has ended. A cancelled one goes on until its holder lets go."""
        held = self.state is State.IN_PROGRESS or bool(self.holder)
        return self.epoch > epoch or (self.epoch == epoch and not held)

    @property
    def edited_context(self) -> str:
        """The digest of the context that an edit brought; "" if its context is the first one."""
        return self.details.edited.context_sha256 if self.details.edited else ""

    @property
    def editors(self) -> tuple[str, ...]:
        """Who has changed what it asks for."""
        return self.details.edited.by if self.details.edited else ()

    @property
    def summary(self) -> str:
        return self.details.report.summary if self.details.report else ""

    @property
    def reason(self) -> str:
        return self.details.reason
