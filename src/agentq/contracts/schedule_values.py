"""What the service interface says about schedules, and is told about them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agentq.core.task import Spec, Task

#: So many occurrences of one schedule wait for each other at most (`overlap: queue`).
QUEUED_MAX = 100
#: The name of a schedule that is not of a file of its own says of what: `agent:ceo`.
KIND_MARK = ":"


class Overlap(StrEnum):
    """What becomes of an occurrence while a task of an earlier one is not over."""

    SKIP = "skip"
    QUEUE = "queue"


class ScheduleChange(StrEnum):
    """What people may say about a schedule."""

    PAUSE = "pause"
    RESUME = "resume"
    RUN = "run"


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """How a schedule stands. Moments are milliseconds, 0 where there is none.

    `next_at` is its first occurrence that is not decided yet, `last_at` the last that was, and
    `wake_at` when it must be looked at: 0 while it is paused or broken. `rule` and `digest` are of
    its file as it was last read, `since_at` is when that rule was first seen. `asked_at` is when
    somebody last asked to run it now, `ran_at` the last such request that was carried out. `note`
    says why its last occurrence was skipped.
    """

    name: str
    rule: str = ""
    digest: str = ""
    since_at: int = 0
    next_at: int = 0
    wake_at: int = 0
    last_at: int = 0
    asked_at: int = 0
    ran_at: int = 0
    paused: bool = False
    problem: str = ""
    fired: int = 0
    skipped: int = 0
    open_tasks: tuple[str, ...] = ()
    note: str = ""

    @property
    def kind(self) -> str:
        """What it is a schedule of; "" for a file of its own."""
        return kind_of(self.name)

    @property
    def is_asked_for(self) -> bool:
        """Whether what wakes it is that somebody asked to run it now."""
        return self.asked_at > self.ran_at


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule as its file is now. `since_at` and `next_at` are for a rule that is new.

    With a `problem` nothing occurs until it is mended; without a `rule` the one that was read last
    stays, so that what was missed meanwhile can be made up for.
    """

    name: str
    rule: str = ""
    since_at: int = 0
    next_at: int = 0
    digest: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ScheduledOccurrence:
    """An occurrence and the tasks it asks for; without any it is skipped, for this reason."""

    at: int
    specs: tuple[Spec, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ScheduleFiring:
    """What is to become of a schedule that is due: decided on the row that woke at `seen_at`.

    `missed` occurrences are not made up for; the next one to decide is at `next_at`.
    """

    name: str
    seen_at: int
    occurrences: tuple[ScheduledOccurrence, ...] = ()
    next_at: int = 0
    missed: int = 0
    overlap: Overlap = Overlap.SKIP
    #: Whether it wakes because somebody asked to run it now; its own occurrences stay as they are.
    asked: bool = False


@dataclass(frozen=True, slots=True)
class FiredSchedule:
    """What became of it: `done` is False if somebody else was faster, or it was changed."""

    done: bool
    state: ScheduleState | None = None
    tasks: tuple[Task, ...] = ()


def kind_of(name: str) -> str:
    """What a schedule of this name is a schedule of; "" for a file of its own."""
    return name.partition(KIND_MARK)[0] if KIND_MARK in name else ""
