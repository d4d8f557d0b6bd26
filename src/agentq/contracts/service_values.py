"""What the service answers with: plain values in users' words, and never a row of a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentq.contracts.artifacts import ArtifactInfo as ArtifactInfo  # noqa: PLC0414 - a value too
from agentq.core.errors import Unavailable
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.phases import COORDINATION_SHARE_MAX, Phase
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Task, Usage
from agentq.core.triggers import LogEntry

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks to list; empty fields do not restrict. `cursor` comes from the page before."""

    states: tuple[State, ...] = ()
    role: str = ""
    sender: str = ""
    type: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    cursor: int = 0
    limit: int = 50
    #: Only those on which this one was mentioned and has not said anything since. Goes alone.
    mentioning: str = ""


class Page(msgspec.Struct, frozen=True):
    """Newest first. `cursor` is 0 on the last page."""

    tasks: tuple[Task, ...]
    cursor: int


class NextAttempt(msgspec.Struct, frozen=True):
    """An attempt at a task of this role that is ready in this version; it gets this epoch."""

    task_id: str
    epoch: int
    role: str
    holder: str
    version: int


class Stats(msgspec.Struct, frozen=True):
    """Counts by role and state, ages in milliseconds, and what waits to leave."""

    by_role: dict[str, dict[str, int]]
    oldest_ready_ms: dict[str, int]
    outbox: dict[str, int]
    last_position: int
    #: How long the oldest effect of a lane waits to leave, where that is known.
    oldest_effect_ms: dict[str, int] = msgspec.field(default_factory=dict)


class Circuit(msgspec.Struct, frozen=True):
    """A provider that does not serve before `open_until`; moments are the ledger's milliseconds.

    With `failures` it has failed so often in a row: after `open_until` one task alone is given out,
    and while it is `probing` that task is under way. With a `role`, and no provider, it is that
    role which cannot work: its circuit has no end, and needs a person.
    """

    provider: str
    open_until: int
    reason: str
    opened_at: int
    opened_by: str
    failures: int = 0
    probing: bool = False
    role: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """`headline` in one sentence, each cause with what to do about it."""

    task: Task
    headline: str
    causes: tuple[tuple[str, str], ...]


class Problem(msgspec.Struct, frozen=True):
    """Something that does not add up, and whose it is: the row or file, what was expected there,
    what was found, and what to do."""

    task_id: str
    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    advice: str = ""


class Replayed(msgspec.Struct, frozen=True):
    """Each event with the task it left, and what does not add up (nothing: it is proved)."""

    task: Task
    steps: tuple[tuple[LogEntry, Task], ...]
    problems: tuple[Problem, ...]


class PhaseTotal(msgspec.Struct, frozen=True):
    """How long tasks were in a phase, added up over all of them, and what that cost."""

    phase: Phase
    span_ms: int
    cost: Usage = NO_USAGE


class Bottleneck(msgspec.Struct, frozen=True):
    """What took most time, other than working, on the way to the last end; whose tasks it were,
    and in words what to do about it."""

    phase: Phase
    role: str
    span_ms: int
    text: str


class Overhead(msgspec.Struct, frozen=True):
    """Milliseconds. `path` names the tasks of the critical path, first to last.

    `phases` divide the lives of all tasks, so their sum is longer than the wall. `cut` says that
    there were more tasks than are measured at once, and that the oldest were left out.
    """

    tasks: int
    attempts: int
    running: int
    work_ms: int
    wall_ms: int
    critical_path_ms: int
    path: tuple[str, ...]
    phases: tuple[PhaseTotal, ...] = ()
    bottleneck: Bottleneck | None = None
    cut: bool = False

    @property
    def overhead_ms(self) -> int:
        return self.wall_ms - self.critical_path_ms

    @property
    def gain_ms(self) -> int:
        return self.work_ms - self.wall_ms

    @property
    def share(self) -> float | None:
        return self.overhead_ms / self.gain_ms if self.gain_ms > 0 else None

    @property
    def flagged(self) -> bool:
        """Whether coordination took too much of the gain, or all that could have been one."""
        possible = self.work_ms > self.critical_path_ms
        return possible and self.overhead_ms > COORDINATION_SHARE_MAX * max(self.gain_ms, 0)

    @property
    def lives_ms(self) -> int:
        """How long all tasks lived, added up."""
        return sum(each.span_ms for each in self.phases)


class RoleQuality(msgspec.Struct, frozen=True):
    """How reviewers judged the work of a role.

    Scores are from 0 to 100; None where nobody gave one. `mean_rounds` is how many verdicts it took
    until a report was accepted, and `newest_scores` has the newest first.
    """

    role: str
    tasks: int
    verdicts: int
    accepted: int
    changes: int
    rejected: int
    mean_rounds: float | None = None
    mean_score: float | None = None
    median_score: float | None = None
    min_score: int | None = None
    newest_scores: tuple[int, ...] = ()


class Quality(msgspec.Struct, frozen=True):
    """By role. `cut` says that there were more tasks than are looked at."""

    roles: tuple[RoleQuality, ...]
    cut: bool = False


class KnownAs(msgspec.Struct, frozen=True):
    """Whom the ledger takes somebody for. `role` is what a worker works for; "" is any, or none."""

    kind: str
    name: str
    role: str = ""


class TokenInfo(msgspec.Struct, frozen=True):
    """A token as it is listed: all but its secret. Moments are 0 where there is none."""

    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: int
    created_by: str
    expires_at: int = 0
    revoked_at: int = 0
    revoked_by: str = ""

    def is_good(self, now: int) -> bool:
        """Whether whoever shows it is let in at that moment."""
        return not self.revoked_at and (not self.expires_at or now < self.expires_at)


class AuditOutcome(StrEnum):
    """What became of what an entry of the audit log is about."""

    DONE = "done"
    REFUSED = "refused"


class AuditEntry(msgspec.Struct, frozen=True):
    """A decision that was taken, or a request that was refused.

    `how` says how anybody knows who it was (a token, an attempt, a user of the machine), `origin`
    from where they spoke. `action` is a word of the access table, `subject` what it was about: a
    task, a role, a provider, a token. `times` is how many refusals alike the entry stands for.
    """

    number: int
    at: int
    who: str
    kind: str
    how: str
    origin: str
    action: str
    subject: str
    outcome: AuditOutcome
    code: str
    times: int
    detail: str


class AuditPage(msgspec.Struct, frozen=True):
    """Newest first. `cursor` is 0 on the last page."""

    entries: tuple[AuditEntry, ...]
    cursor: int


class AttemptLease(msgspec.Struct, frozen=True):
    """A lease to renew: of which attempt, and for how long from now."""

    task_id: str
    epoch: int
    lease_ms: int


class Completion(msgspec.Struct, frozen=True):
    """One of many reports that attempts are complete."""

    task_id: str
    epoch: int
    summary: str = ""
    data: str = ""


class RoleStanding(msgspec.Struct, frozen=True):
    """A role that the ledger has heard of: its limits, whose quota its workers use, and when one of
    them last asked for work."""

    name: str
    limits: RoleLimits
    is_limited: bool
    provider: str
    seen_at: int


class Capacity(msgspec.Struct, frozen=True):
    """How many more tasks of a role may start now (-1: any number), and what it spent today. If it
    is its rate that holds them back, `next_at` says until when."""

    free: int
    today: Usage
    next_at: int = 0


class KeyStanding(msgspec.Struct, frozen=True):
    """A resource: its limits, the tasks that hold it, how many more may start now, and if it is
    its rate that holds them back, until when."""

    limits: KeyLimits
    holders: tuple[str, ...]
    free: int
    next_at: int = 0


class OutboundEffect(msgspec.Struct, frozen=True):
    """An effect that waits to be carried out: what it says, and its task as that stands now."""

    sequence: int
    id: str
    kind: str
    data: Mapping[str, Any]
    task: Task
    tries: int
    artifacts: tuple[ArtifactInfo, ...] = ()


class PublishedResults(msgspec.Struct, frozen=True):
    """How many accepted results were published and how many could not be; why, by task, where it
    is the first time. `more` says that others wait."""

    published: int
    failed: int
    reasons: tuple[tuple[str, str], ...]
    more: bool


class LeaderLease(msgspec.Struct, frozen=True):
    """Which process alone may run a loop: its holder ("" for nobody), for how much longer.
    `number` grows whenever it changes hands."""

    name: str
    holder: str
    number: int
    left_ms: int


#: How long a leader lease may be.
LEADER_LEASE_MS_MIN, LEADER_LEASE_MS_MAX = 100, 3600 * 1000


class FilesLeft(Unavailable):
    """Tasks were deleted, and some of their files are still there. The ledger knows which."""

    deleted = 0
    why = ""


class LoopConnection(NamedTuple):
    """A psycopg `AsyncConnection` and the event loop it lives on, for a thread that is not it."""

    connection: Any
    loop: asyncio.AbstractEventLoop
