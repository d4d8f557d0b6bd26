"""What the service says of an installation as a whole: roles, workers, what waits for people.

Moments are milliseconds of the ledger's clock, and 0 where nobody knows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agentq.contracts.service_values import Circuit
from agentq.core.limits import RoleLimits
from agentq.core.policy_steps import PolicyStep
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Usage

#: How far an overview counts: such a number stands for that many or more.
COUNTED_TO = 1000


@dataclass(frozen=True, slots=True)
class BusySlot:
    """What a worker says of an attempt that it runs: since how many seconds, and its last words."""

    task_id: str
    epoch: int
    step: str = ""
    words: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FurtherRole:
    """Another role that the same process claims for, once it has something to do."""

    role: str
    agent: str = ""
    slots: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a process that claims for a role says of itself. `problem` is why it claims nothing."""

    role: str
    machine: str = ""
    pid: int = 0
    version: str = ""
    agent: str = ""
    slots: int = 0
    problem: str = ""
    is_ending: bool = False
    busy: tuple[BusySlot, ...] = ()
    #: The others that it claims for, as a process does that works for many agents.
    also: tuple[FurtherRole, ...] = ()


@dataclass(frozen=True, slots=True)
class RunningTask:
    """An attempt under way: who holds it, since when, and what is known of how far it has come."""

    task_id: str
    role: str
    title: str
    epoch: int
    holder: str
    changed_at: int
    lease_ends_at: int
    #: -1 until somebody has said it.
    percent: int = -1
    note: str = ""
    cost: Usage = NO_USAGE
    # What its worker says.
    started_at: int = 0
    step: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A process that claims tasks of a role, and what it is doing.

    One that `is_gone` has not reported for longer than its lease. One that does not report holds
    tasks and has never said anything of itself: somebody who claimed by hand, or a program that
    speaks only messages.
    """

    holder: str
    role: str
    reports: bool = True
    is_gone: bool = False
    since: int = 0
    seen_at: int = 0
    machine: str = ""
    pid: int = 0
    version: str = ""
    agent: str = ""
    slots: int = 0
    #: Why it claims nothing; "" if it does.
    problem: str = ""
    #: It claims no more, and ends when what it runs has.
    is_ending: bool = False
    running: tuple[RunningTask, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleOverview:
    """A role: how many tasks of it are in each state that is not over, what it may, what it spent
    today, and who works for it."""

    name: str
    limits: RoleLimits
    pending: int = 0
    ready: int = 0
    running: int = 0
    review: int = 0
    blocked: int = 0
    today: Usage = NO_USAGE
    provider: str = ""
    #: When somebody last asked for its tasks.
    asked_at: int = 0
    workers: int = 0
    slots: int = 0
    #: Why nothing of it is given out now; "" if something is.
    held_back: str = ""


class DecisionKind(StrEnum):
    """What a task waits for that a person decides."""

    APPROVAL = "approval"
    REVIEW = "review"
    QUESTION = "question"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class OpenDecision:
    """A task that waits for a person, and the command that decides it."""

    kind: DecisionKind
    task_id: str
    role: str
    title: str
    since: int
    reason: str
    command: str


@dataclass(frozen=True, slots=True)
class AwaitedDecision:
    """A task that waits for an approval, or for a person to judge its report.

    `digest` and `version` are what a decision may be bound to. `asked_of` is whom its policy asks
    now, after so many escalations of all; `steps` are what passing time does next, the first first.
    """

    kind: DecisionKind
    task_id: str
    role: str
    title: str
    sender: str
    state: State
    waits_for: str
    #: Since when the decision is waited for.
    since: int
    irreversible: bool
    digest: str
    version: int
    epoch: int = 0
    summary: str = ""
    asked_of: str = ""
    escalation: int = 0
    escalations: int = 0
    steps: tuple[PolicyStep, ...] = ()
    cost: Usage = NO_USAGE
    #: The task of a reviewer that is not over, and the newest score; -1 if there is none.
    review_task: str = ""
    score: int = -1


@dataclass(frozen=True, slots=True)
class AwaitedDecisions:
    """What waits for decisions of people: the irreversible first, then what has waited longest.

    With `more` there are, or may be, others that are not listed.
    """

    at: int
    decisions: tuple[AwaitedDecision, ...]
    more: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """An installation at one moment.

    Of what runs and what waits for people the first are listed; the counts say how many there are.
    No count goes beyond `counted_to`. `loops` says which process runs which loop of `agentq up`.
    """

    at: int
    roles: tuple[RoleOverview, ...]
    running: tuple[RunningTask, ...]
    running_count: int
    decisions: tuple[OpenDecision, ...]
    decision_counts: dict[str, int]
    circuits: tuple[Circuit, ...]
    loops: dict[str, str]
    counted_to: int = COUNTED_TO
    #: Up to where the log is proved and sealed, since when, and the digest of that seal.
    proved_position: int = 0
    proved_at: int = 0
    seal: str = ""
