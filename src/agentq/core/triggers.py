"""Triggers: everything that can be applied to a task, as frozen values that the log keeps.

Triggers of a holder carry the `epoch` of its attempt: the fencing token. Whatever chance or clock a
decision needs (`jitter`) comes inside the trigger, so that replaying the log decides alike.

Where somebody decides from outside, `by` is their name and `how` says how anybody knows it: a
`token` spoke, the name was `stated`, or an attempt, a coordinator or the system itself asked.
"""

from __future__ import annotations

from typing import TypeAlias, get_args

import msgspec

from agentq.core.choices import FailureKind as FailureKind  # noqa: PLC0414 - exported
from agentq.core.choices import Resolution as Resolution  # noqa: PLC0414
from agentq.core.choices import Ruling as Ruling  # noqa: PLC0414
from agentq.core.states import State
from agentq.core.task import NO_GATES, NO_USAGE, Gates, Spec, Usage


class Submit(msgspec.Struct, frozen=True, gc=False):
    """`ended` names the dependencies that were already over, `waiting_on` those that are not.

    `refused` says why a task that its submitter was promised cannot be accepted after all: it is
    born as a dead letter. `children` are submitted together with it.
    """

    spec: Spec
    waiting_on: tuple[str, ...] = ()
    ended: tuple[tuple[str, State], ...] = ()
    refused: str = ""
    children: tuple[str, ...] = ()


class DependencyEnded(msgspec.Struct, frozen=True, gc=False):
    """A task that this one comes after is over."""

    dependency: str
    outcome: State


class Approve(msgspec.Struct, frozen=True, gc=False):
    """Somebody lets the task start. `own` says that they have submitted it as well, and that the
    settings (`four_eyes`) let a person approve that."""

    by: str
    digest: str = ""
    how: str = ""
    own: bool = False


class Reject(msgspec.Struct, frozen=True, gc=False):
    """Somebody refuses to let the task start, or to go on with it."""

    by: str
    reason: str = ""
    how: str = ""


class ClaimTask(msgspec.Struct, frozen=True, gc=False):
    """A worker takes the task for as long as it renews its lease.

    `gated` says that it will check the work itself: a report that does not say so is refused.
    `gates` are those of its role's settings, beside the task's own.
    """

    holder: str
    lease_ms: int
    gated: bool = False
    gates: Gates = NO_GATES


class Progress(msgspec.Struct, frozen=True, gc=False):
    """The holder reports its progress."""

    epoch: int
    percent: int
    note: str = ""


class AddArtifact(msgspec.Struct, frozen=True, gc=False):
    """The holder left a file as evidence."""

    epoch: int
    name: str
    size: int
    sha256: str
    media_type: str = "application/octet-stream"


class Spend(msgspec.Struct, frozen=True, gc=False):
    """The holder reports what it has spent since its last report of costs.

    A task may share a budget with the tree it belongs to, which other tasks spend as well. In words
    that the ledger adds: which of it this cost uses up (`used_up`), or is about to (`running_low`).
    The same goes for every trigger with a cost.

    `unless_used_up` asks to refuse a cost that uses a budget up, instead of blocking the task: a
    holder that stops by itself hands in what it has first, and reports with the cost. Of an attempt
    that is over already there is nothing to hand in: its cost is recorded in any case.
    """

    epoch: int
    cost: Usage
    used_up: str = ""
    running_low: str = ""
    unless_used_up: bool = False


class Report(msgspec.Struct, frozen=True, gc=False):
    """`artifacts` are the names recorded for this attempt when it reported: what the gate sees.
    `verified` says that the check which a gated claim promised has passed. `data` is the structured
    result, as JSON. `leaves_children` says that open children are meant to go on without it."""

    epoch: int
    summary: str = ""
    result: str = ""
    result_sha256: str = ""
    artifacts: tuple[str, ...] = ()
    cost: Usage = NO_USAGE
    used_up: str = ""
    running_low: str = ""
    verified: bool = False
    data: str = ""
    leaves_children: bool = False


class FailAttempt(msgspec.Struct, frozen=True, gc=False):
    """`jitter` in [0, 1) picks the point within the backoff."""

    epoch: int
    reason: str
    kind: FailureKind = FailureKind.TRANSIENT
    cost: Usage = NO_USAGE
    jitter: float = 0.5
    used_up: str = ""
    running_low: str = ""


class BlockTask(msgspec.Struct, frozen=True, gc=False):
    """The holder stops and asks somebody up the chain."""

    epoch: int
    reason: str


class Release(msgspec.Struct, frozen=True, gc=False):
    """Give the task back without using an attempt: clean shutdown, quota, an open circuit.

    `circuit` says which circuit this attempt has opened, in words that the ledger adds: people are
    told.
    """

    epoch: int
    reason: str = ""
    not_before: int = 0
    circuit: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Somebody answers a blocked task.

    `extra_tree` is what this adds to the budget of the tree it belongs to, `used_up` what of that
    is used up all the same, in words.
    """

    by: str
    text: str = ""
    resolution: Resolution = Resolution.RETRY
    extra_budget: Usage = NO_USAGE
    extra_tree: Usage = NO_USAGE
    used_up: str = ""
    how: str = ""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """A reviewer judges the report. `review` is the task whose structured result this is, and
    `reviewed` the attempt whose report it has judged; a person's verdict has neither."""

    by: str
    ruling: Ruling
    feedback: str = ""
    how: str = ""
    score: int = -1
    review: str = ""
    reviewed: int = 0


class ReviewFailed(msgspec.Struct, frozen=True, gc=False):
    """The task that was to judge the report is over without a verdict: a person must."""

    review: str
    outcome: State
    reason: str = ""


class Yield(msgspec.Struct, frozen=True, gc=False):
    """The holder leaves its slot until its children are over (`wait`: all of them, or any), and
    until these signals have come. The next attempt goes on from there."""

    epoch: int
    wait: str = "all"
    note: str = ""
    signals: tuple[str, ...] = ()


class ChildrenSubmitted(msgspec.Struct, frozen=True, gc=False):
    """Tasks were submitted with this one as their parent, or opened again."""

    children: tuple[str, ...]


class Signal(msgspec.Struct, frozen=True, gc=False):
    """Somebody sends a signal; it is kept until something waits for it."""

    by: str
    name: str
    data: str = ""
    how: str = ""


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """Somebody withdraws the task; with `tree` its open children as well, and theirs."""

    by: str
    reason: str = ""
    how: str = ""
    tree: bool = False


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The holder of a cancelled task says that its agent is gone."""

    epoch: int


class Requeue(msgspec.Struct, frozen=True, gc=False):
    """`waiting_on` names the dependencies that are still under way when it is reopened, `children`
    its own that are. `asks_again`: what was approved before is approved no longer."""

    by: str
    reason: str = ""
    waiting_on: tuple[str, ...] = ()
    how: str = ""
    children: tuple[str, ...] = ()
    asks_again: bool = False


class Applied(msgspec.Struct, frozen=True, gc=False):
    """Somebody has brought the work of a complete task into a branch of theirs."""

    by: str
    commit: str
    branch: str = ""
    how: str = ""


class Edit(msgspec.Struct, frozen=True, gc=False):
    """Somebody changes what a waiting task asks for. Empty fields stay as they are; instructions
    come with the digest of their context, if they have one."""

    by: str
    to: str = ""
    title: str = ""
    priority: str = ""
    instructions: str = ""
    context_sha256: str = ""
    how: str = ""


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Somebody keeps a waiting task from starting, until it is dispatched."""

    by: str
    reason: str = ""
    how: str = ""


class Dispatch(msgspec.Struct, frozen=True, gc=False):
    """Somebody ends a hold and a delay: the task starts as soon as nothing else keeps it."""

    by: str
    how: str = ""


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time passed: `now` reached the task's `wake_at`."""


class Comment(msgspec.Struct, frozen=True, gc=False):
    """`epoch` is set when the holder of an attempt comments, and is then fenced like any write.

    `denied` says that so many tool calls of the attempt were not allowed, and the text which ones:
    that becomes a note for the next attempt. With `replaces` the text tells of all of them so far,
    and takes the place of the note that this attempt left before; `denied` counts the new ones.

    `mentions` are those whom the text names. With a `cause` the same words of the same author for
    the same cause, while the task stands as it stood, are one comment. With `notify` people are
    told, as of something of that kind; only the ledger itself says that.
    """

    by: str
    text: str
    epoch: int = 0
    how: str = ""
    denied: int = 0
    replaces: bool = False
    mentions: tuple[str, ...] = ()
    cause: str = ""
    notify: str = ""


class Tell(msgspec.Struct, frozen=True, gc=False):
    """A message of a person to the agent: for the attempt that runs, and for those after it."""

    by: str
    message: str
    how: str = ""


class TakeMessages(msgspec.Struct, frozen=True, gc=False):
    """The holder takes the messages that it has not been given, and says so that it takes some."""

    epoch: int


class RefuseReport(msgspec.Struct, frozen=True, gc=False):
    """A late report of a fenced-out attempt, kept as evidence; it changes nothing else."""

    epoch: int
    by: str
    claim: str
    text: str = ""


Trigger: TypeAlias = (
    Submit
    | DependencyEnded
    | Approve
    | Reject
    | ClaimTask
    | Progress
    | AddArtifact
    | Spend
    | Report
    | FailAttempt
    | BlockTask
    | Release
    | Answer
    | Verdict
    | ReviewFailed
    | Yield
    | ChildrenSubmitted
    | Signal
    | Cancel
    | Stopped
    | Requeue
    | Applied
    | Edit
    | Hold
    | Dispatch
    | Tick
    | Comment
    | Tell
    | TakeMessages
    | RefuseReport
)

#: Classes whose stored name is another. Names are stored: a class that is renamed goes in here.
_STORED_NAMES = {"ClaimTask": "Claim", "FailAttempt": "Fail", "BlockTask": "Block"}
#: Every kind of trigger by the name that the log, the transition table and refusals use.
TRIGGERS: dict[str, type] = {
    _STORED_NAMES.get(kind.__name__, kind.__name__): kind for kind in get_args(Trigger)
}
_NAMES = {kind: name for name, kind in TRIGGERS.items()}


def trigger_name(trigger: Trigger) -> str:
    """Return the stored name of a trigger's kind."""
    return _NAMES[type(trigger)]


class Event(msgspec.Struct, frozen=True, gc=False):
    """One line of a task's history: what happened, by which trigger, and the state it left."""

    version: int
    at: int
    kind: str
    trigger: Trigger
    state: State
    epoch: int = 0


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """An event as the log holds it: with its task and its place in the order of commits."""

    position: int
    task_id: str
    event: Event
