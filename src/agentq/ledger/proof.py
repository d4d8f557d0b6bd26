"""Verifying everything: each task against its log, page by page, whatever state the rows are in.

A damaged row must be a finding that names its task, never a crash of the checker, and must not
hide the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from agentq.contracts.service_values import Problem
from agentq.contracts.store import ArtifactRow, Filter, Order, Reader, Store, TaskRow
from agentq.core.task import Task
from agentq.core.triggers import AddArtifact, Event
from agentq.ledger.codec import decode_spec, to_task
from agentq.ledger.log_codec import to_event
from agentq.ledger.replay import check_task

#: Tasks looked at per read.
_PAGE = 500

CheckFiles = Callable[[Task, list[ArtifactRow]], list[str]]


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
