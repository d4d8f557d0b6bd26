"""Proof: the log of every task, replayed through `transition`, gives the state that is stored.

Whatever state the rows are in, a damaged one is a finding that names its task, never a crash of the
checker, and does not hide the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from agentq.contracts.service_values import Problem
from agentq.contracts.store import (
    ArtifactRow,
    Reader,
    Store,
    TaskRow,
)
from agentq.contracts.task_filter import Filter, Order
from agentq.core.schedule import expected_wake
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.transition import transition
from agentq.core.triggers import AddArtifact, Event, Submit
from agentq.core.values import fields_of, replace
from agentq.ledger.codec import decode_spec, to_task
from agentq.ledger.log_codec import to_event

#: Tasks looked at per read.
_PAGE = 500

CheckFiles = Callable[[Task, list[ArtifactRow]], list[str]]


def replay(events: Sequence[Event]) -> Iterator[tuple[Event, Task]]:
    """Each event with the task it leaves, decided anew from nothing but the log."""
    task: Task | None = None
    for event in events:
        decision = transition(task, event.trigger, event.at)
        task = decision.task
        yield event, task


def check_task(stored: Task, events: Sequence[Event]) -> list[Problem]:
    """What is wrong with a task, by its log; empty if everything is proved."""
    problems: list[str] = []
    versions = [event.version for event in events]
    if versions != list(range(1, len(events) + 1)):
        problems.append(f"the log has versions {versions[:5]}… instead of 1 to {stored.version}")
    elif not events or not isinstance(events[0].trigger, Submit):
        problems.append("the log does not begin with a submission")
    else:
        problems += _compare(stored, events)
    return [Problem(stored.id, text) for text in problems]


def _in_words(event: Event) -> str:
    return f"{event.kind}, {event.state}, attempt {event.epoch}"


def _compare(stored: Task, events: Sequence[Event]) -> list[str]:
    problems: list[str] = []
    task: Task | None = None
    try:
        for event in events:
            decision = transition(task, event.trigger, event.at)
            task = decision.task
            if decision.events != (event,):
                given = _in_words(decision.events[0]) if decision.events else "nothing"
                problems.append(
                    f"event {event.version} says {_in_words(event)}; replaying gives {given}"
                )
    except Exception as error:  # noqa: BLE001
        # Whatever a damaged log makes the rules do, it is a finding, not a crash of the checker.
        return [f"replaying stops after version {task.version if task else 0}: {error}"]
    assert task is not None
    if task.holder:
        # Heartbeats move the end of the lease without an event, and never back.
        if stored.wake_at < task.wake_at:
            problems.append(f"its lease ends at {stored.wake_at}, before the log says it may")
        task = replace(task, wake_at=stored.wake_at)
    elif stored.wake_at != expected_wake(stored):
        problems.append(f"wake_at is {stored.wake_at}, its fields call for {expected_wake(stored)}")
    if task != stored:
        names = [each.name for each in fields_of(Task)]
        different = [name for name in names if getattr(task, name) != getattr(stored, name)]
        problems.append(f"the log does not give the stored {', '.join(different)}")
    if stored.holder and stored.state not in (State.IN_PROGRESS, State.CANCELLED):
        problems.append(f"it is {stored.state} and yet held by {stored.holder}")
    return problems


# -- all tasks, page by page ---------------------------------------------------------------------


def verify(
    store: Store, check_files: CheckFiles | None = None
) -> Iterator[tuple[int, list[Problem]]]:
    """(tasks looked at so far, problems found on this page), until everything was looked at."""
    after, seen = 0, 0
    while True:
        last, looked_at, problems = store.read(partial(_page, after=after, check_files=check_files))
        if not looked_at:
            break
        after, seen = last, seen + looked_at
        yield seen, problems
    orphans = store.read(lambda reader: reader.orphan_rows(100))
    if orphans:
        yield (
            seen,
            [Problem(f"key {key}", "a part of this task's record is gone") for key in orphans],
        )


def _page(
    reader: Reader, after: int, check_files: CheckFiles | None
) -> tuple[int, int, list[Problem]]:
    rows = reader.list_tasks(Filter(order=Order.OLDEST, key=after, limit=_PAGE))
    problems: list[Problem] = []
    for row in rows:
        problems += _check(reader, row, check_files)
    return (rows[-1].hot.key if rows else 0), len(rows), problems


def _check_evidence(
    task: Task, events: Sequence[Event], rows: Sequence[ArtifactRow]
) -> list[Problem]:
    """The record of an artifact must be what the log says was added, no more and no less."""
    added = {
        (each.trigger.epoch, each.trigger.name, each.trigger.size, each.trigger.sha256)
        for each in events
        if isinstance(each.trigger, AddArtifact)
    }
    recorded = {(row.epoch, row.name, row.size, row.sha256) for row in rows}
    return [
        Problem(task.id, f"its log and its record of evidence differ: {name} of attempt {epoch}")
        for epoch, name, _, _ in sorted(added ^ recorded)
    ]


def _check(reader: Reader, row: TaskRow, check_files: CheckFiles | None) -> list[Problem]:
    key, name = row.hot.key, ""
    try:
        entries = reader.history(key)
        name = entries[0].task_id if entries else ""
        # Not from the cache of specs: what is stored now is what must be proved.
        spec = decode_spec(row.spec.body)
        name = spec.id
        task = to_task(row.hot, spec, row.spec.submitted_at)
        events = [to_event(entry.event, spec) for entry in entries]
        problems = check_task(task, events)
        problems += _check_evidence(task, events, reader.artifacts_of(key))
        if check_files is not None:
            problems += [
                Problem(task.id, what) for what in check_files(task, reader.artifacts_of(key))
            ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        # What cannot even be read: JSON that is none, a state or trigger nobody knows.
        return [Problem(name or f"key {key}", f"its record cannot be read: {error}")]
    return problems
