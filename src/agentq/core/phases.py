"""Where the time and the money of a task went: its life, divided into phases.

A life reaches from the submission to the end, or to the moment of looking while there is none; each
of its milliseconds belongs to exactly one phase. `divide` reads it from the steps that replaying a
task's log gives, so what a pending task waits for is what the one function that decides has said.

- An attempt counts if its report was accepted, may still be (it runs, or waits for review), or if
  it yielded. All others, and the pauses before the next attempt, are `retrying`.
- Attempts of tasks that coordinate others are `supervising` instead of `working`: of runs, reviews,
  and whatever has children.
- What a pending task waits for is charged to dependencies (children and signals among them) first,
  then to a time, then to whoever holds it, and to an approval only while nothing else is missing:
  people are not blamed for what would not have started anyway.
- A dead letter that was reopened has waited for a person until then: it was `blocked`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import msgspec

from agentq.core.durations import format_duration
from agentq.core.states import State
from agentq.core.task import NO_USAGE, RUN_ROLE, Task, Usage
from agentq.core.triggers import Event, FailAttempt, Report, Spend, Yield

#: Coordination that takes more than this share of what running side by side has saved is too much.
COORDINATION_SHARE_MAX = 0.3
#: Types of tasks that only coordinate others.
COORDINATING_TYPES = ("run", "review")


class Phase(StrEnum):
    """What a task was doing, or waiting for."""

    WORKING = "working"
    SUPERVISING = "supervising"
    RETRYING = "retrying"
    WAITING_FOR_SLOT = "waiting_for_slot"
    WAITING_FOR_DEPENDENCIES = "waiting_for_dependencies"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    WAITING_FOR_REVIEW = "waiting_for_review"
    BLOCKED = "blocked"
    DELAYED = "delayed"
    HELD = "held"


class Span(NamedTuple):
    """Milliseconds of a life in one phase, from `begin` up to `end`."""

    phase: Phase
    begin: int
    end: int


class TaskLife(msgspec.Struct, frozen=True):
    """One life, divided. `ended_at` is the moment of looking while the task is not over.

    `attempts_ms` is how long its attempts ran, accepted or not, and `last_attempt_end` when the
    last of them ended; 0 if there was none.
    """

    role: str
    submitted_at: int
    ended_at: int
    spans: tuple[Span, ...]
    costs: tuple[tuple[Phase, Usage], ...]
    attempts: int
    attempts_ms: int
    last_attempt_end: int
    running: bool
    coordinates: bool


#: What a task is in at a moment: a phase, an attempt by its number, or nothing more: it is over.
_Where = Phase | int | None


def divide(steps: Iterable[tuple[Event, Task]], now: int) -> TaskLife:
    """Divide a life by its events, the first its submission, each with the task it left."""
    found: list[tuple[_Where, int]] = []
    yielded: set[int] = set()
    spent: list[tuple[int, Usage]] = []
    task: Task | None = None
    for event, left in steps:
        if isinstance(event.trigger, Yield):
            yielded.add(event.trigger.epoch)
        if isinstance(event.trigger, Spend | Report | FailAttempt):
            spent.append((event.trigger.epoch, event.trigger.cost))
        task, where = left, _where(left)
        if not found or found[-1][0] != where:
            found.append((where, event.at))
    assert task is not None, "a life begins with a submission"
    counting = yielded | _counting(task)
    coordinates = _coordinates(task)
    did = Phase.SUPERVISING if coordinates else Phase.WORKING
    phase_of = {
        epoch: did if epoch in counting else Phase.RETRYING for epoch in range(task.epoch + 1)
    }
    ended_at = max(now, task.updated_at)
    if found[-1][0] is None:
        ended_at = found.pop()[1]
    pieces = _pieces(found, ended_at)
    attempts = [(begin, end) for where, begin, end in pieces if type(where) is int]
    return TaskLife(
        role=task.to,
        submitted_at=task.submitted_at,
        ended_at=ended_at,
        spans=_spans(pieces, phase_of),
        costs=_costs(spent, phase_of),
        attempts=len(attempts),
        attempts_ms=sum(end - begin for begin, end in attempts),
        last_attempt_end=max((end for _, end in attempts), default=0),
        running=_is_held(task),
        coordinates=coordinates,
    )


def _is_held(task: Task) -> bool:
    """Whether an attempt runs. That of a cancelled task does until its holder says otherwise."""
    return task.state is State.IN_PROGRESS or bool(task.holder)


def _coordinates(task: Task) -> bool:
    has_children = bool(task.details.children or task.details.ended_children)
    return task.spec.type in COORDINATING_TYPES or has_children


def _counting(task: Task) -> set[int]:
    """The attempt of which nobody has said that it does not count."""
    report = task.details.report
    if task.state is State.IN_PROGRESS:
        return {task.epoch}
    if task.state in (State.REVIEW, State.COMPLETE) and report is not None:
        return {report.epoch}
    return set()


def _where(task: Task) -> _Where:
    if _is_held(task):
        return task.epoch
    if task.is_terminal:
        return None
    if task.state is State.PENDING:
        return _pending_phase(task)
    if task.state is State.BLOCKED and task.details.reason_kind == "approval_timeout":
        return Phase.WAITING_FOR_APPROVAL
    return _PHASE_OF_STATE[task.state]


_PHASE_OF_STATE = {
    State.READY: Phase.WAITING_FOR_SLOT,
    State.REVIEW: Phase.WAITING_FOR_REVIEW,
    State.BLOCKED: Phase.BLOCKED,
}


def _pending_phase(task: Task) -> Phase:
    details = task.details
    if details.waiting_on or details.yielded or details.awaited_signals:
        return Phase.WAITING_FOR_DEPENDENCIES
    if details.not_before:
        return Phase.RETRYING if task.epoch else Phase.DELAYED
    if details.held is not None:
        return Phase.HELD
    return Phase.WAITING_FOR_APPROVAL


def _pieces(found: list[tuple[_Where, int]], ended_at: int) -> list[tuple[_Where, int, int]]:
    marks = [*found, (None, ended_at)]
    return [(where, begin, end) for (where, begin), (_, end) in pairwise(marks)]


def _spans(
    pieces: Iterable[tuple[_Where, int, int]], phase_of: dict[int, Phase]
) -> tuple[Span, ...]:
    spans: list[Span] = []
    for where, begin, end in pieces:
        phase = Phase.BLOCKED
        if isinstance(where, Phase):
            phase = where
        elif where is not None:
            phase = phase_of[where]
        if end > begin:
            spans.append(Span(phase, begin, end))
    return tuple(spans)


def _costs(
    spent: Iterable[tuple[int, Usage]], phase_of: dict[int, Phase]
) -> tuple[tuple[Phase, Usage], ...]:
    costs: dict[Phase, Usage] = {}
    for epoch, cost in spent:
        if cost != NO_USAGE:
            phase = phase_of[epoch]
            costs[phase] = costs.get(phase, NO_USAGE).plus(cost)
    return tuple(costs.items())


#: For each phase, how it is said of a role, and what shortens it.
_WORDS = {
    Phase.SUPERVISING: (
        "supervising by role {}", "give it fewer and larger tasks to coordinate"
    ),
    Phase.RETRYING: (
        "attempts of role {} that did not count, and the pauses after them",
        "`agentq events ID` says why they failed",
    ),
    Phase.WAITING_FOR_SLOT: (
        "waiting for a slot of role {}", "raise its slots or max_running"
    ),
    Phase.WAITING_FOR_DEPENDENCIES: (
        "waiting of role {} for other tasks", "look at those: `agentq stats overhead ID`"
    ),
    Phase.WAITING_FOR_APPROVAL: (
        "waiting for approvals of tasks of role {}",
        "`agentq status` lists them, or let fewer tasks need one",
    ),
    Phase.WAITING_FOR_REVIEW: (
        "waiting for reviews of tasks of role {}", "`agentq status` lists them; add reviewers"
    ),
    Phase.BLOCKED: (
        "waiting for answers to tasks of role {}",
        "`agentq status` lists the questions; say more in the instructions",
    ),
    Phase.DELAYED: (
        "delays that tasks of role {} were submitted with", "submit them with a shorter --delay"
    ),
    Phase.HELD: (
        "holds of tasks of role {}", "`agentq dispatch ID` lets them start"
    ),
}  # fmt: skip


def in_words(phase: Phase, role: str, span_ms: int) -> str:
    """Say how long a role was in a phase, and what to do about it.

    >>> in_words(Phase.WAITING_FOR_SLOT, "builder", 11_400_000)
    'waiting for a slot of role builder: 3h10m; raise its slots or max_running'
    """
    what, remedy = _WORDS[phase]
    if role == RUN_ROLE and phase is Phase.WAITING_FOR_SLOT:  # it has no slots, and no limits
        what, remedy = "runs that waited to be advanced", "see that `agentq up` is not too busy"
    length = format_duration(span_ms // 1000) if span_ms >= 1000 else f"{span_ms} ms"
    return f"{what.format(role)}: {length}; {remedy}"
