"""What stands beside a task follows from its log: role, priority, flags, dependencies, resources,
budgets, names, and what waits to leave. Compared here with what the log implies.

Read for a page of tasks at once. What cannot be told any more is not asked for: whether a name was
noted that has expired since, or what a task that was deleted has spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agentq.contracts.store import (
    HAS_DEPENDENTS,
    HAS_MENTIONS,
    HAS_RESOURCES,
    IN_TREE,
    NEEDS_APPROVAL,
)
from agentq.core.task import Task
from agentq.ledger.codec import decode_spec
from agentq.ledger.implied_budgets import tree_findings
from agentq.ledger.implied_outbox import (
    effect_findings,
    name_findings,
    unowned_effect_findings,
)
from agentq.ledger.proof_rows import UNKNOWN, Finding, Proved, RowsBeside


def findings(beside: RowsBeside, key: int, proved: Proved, dedup_ms: int) -> Iterator[Finding]:
    """What is there and does not follow, and what follows and is not there."""
    yield from _address(beside, key, proved)
    yield from _edges(beside, key, proved)
    yield from _resources(beside, key, proved)
    yield from tree_findings(beside, key, proved)
    yield from _flags(beside, key, proved)
    yield from effect_findings(beside, key, proved)
    yield from name_findings(beside, key, proved, dedup_ms)


def findings_of_nobody(beside: RowsBeside, keys: set[int]) -> Iterator[tuple[int, Finding]]:
    """Rows that belong to no task: (key, what is wrong)."""
    effects: dict[int, list[tuple[Any, ...]]] = {}
    for table, key, row in beside.of_nobody(keys):
        if table == "outbox":
            effects.setdefault(key, []).append(row)
        elif table == "tree_costs" or (table == "trees" and beside.of("tree_costs", key)):
            continue  # a shared budget outlives the task that began it, while others spend from it
        else:
            name = {"dependents": "edges", "members": "tree_members"}.get(table, table)
            words = ", ".join(repr(each) for each in row) or "a row"
            what = f"{name} has {words} of key {key}, and there is no such task"
            yield key, Finding(f"{name} of key {key}", what, "no row", words, UNKNOWN)
    for key, rows in sorted(effects.items()):
        for finding in unowned_effect_findings(beside.reader, key, rows):
            yield key, finding


def _address(beside: RowsBeside, key: int, proved: Proved) -> Iterator[Finding]:
    spec = proved.task.spec
    for task_id, role, priority in beside.of("addresses", key):
        if task_id != spec.id:
            what = f"it is stored under the id {task_id!r}, and was submitted as {spec.id!r}"
            yield Finding(f"specs.id of key {key}", what, spec.id, task_id)
        if role != spec.to:
            what = f"it is listed for the role {role!r}, its log says {spec.to!r}"
            yield Finding(f"tasks.role of key {key}", what, spec.to, role)
        if priority != spec.priority.rank:
            rank = spec.priority.rank
            what = f"it is listed with priority {priority}, its log says {rank} ({spec.priority})"
            yield Finding(f"tasks.priority of key {key}", what, rank, priority)


def _edges(beside: RowsBeside, key: int, proved: Proved) -> Iterator[Finding]:
    """Of what it comes after, and of its children, which tell it when they are over."""
    task, where = proved.task, f"edges, child {key}"
    known = set()
    for parent, name, body in beside.of("edges", key):
        known.add(name)
        if _is_told_rightly(task, name, body):
            continue
        who = name or f"a task that is not there (key {parent})"
        yield Finding(where, f"it is told of the end of {who} for no reason", "", who, UNKNOWN)
    for name in sorted(_must_be_told(beside, key, proved, known)):
        yield Finding(where, f"it waits for {name} and would not be told of its end", name, "")


def _is_told_rightly(task: Task, name: str, body: str) -> bool:
    return name in task.spec.after or (bool(body) and decode_spec(body).parent == task.id)


def implied_parents(beside: RowsBeside, key: int, proved: Proved) -> set[int]:
    """The keys of the tasks whose ends a task is to be told of."""
    listed = beside.of("edges", key)
    right = {parent for parent, *said in listed if _is_told_rightly(proved.task, *said)}
    missing = set(_must_be_told(beside, key, proved, {name for _, name, _ in listed}))
    return right | set(beside.reader.keys(missing).values())


def _must_be_told(beside: RowsBeside, key: int, proved: Proved, known: set[str]) -> Iterator[str]:
    """The names of tasks whose ends it must be told of, and is not."""
    task, followed = proved.task, proved.followed
    awaited = {*task.details.waiting_on, *task.details.children} - known
    if not task.is_terminal:
        yield from awaited
        known = known | awaited
    after = set() if followed.is_refused else set(task.spec.after) - known
    if after:
        # One that is newer than the task itself has got the name of one that was deleted.
        yield from (name for name, other in beside.reader.keys(after).items() if other < key)
    told = followed.children.keys() - known - after
    for row in beside.reader.tasks(ids=sorted(told)) if told else ():
        child = decode_spec(row.spec.body)
        if child.parent == task.id and row.spec.submitted_at <= followed.children[child.id]:
            yield child.id


def _resources(beside: RowsBeside, key: int, proved: Proved) -> Iterator[Finding]:
    wanted = set(proved.task.spec.resources)
    listed = {name for (name,) in beside.of("wants", key)}
    if listed != wanted:
        what = f"it is listed as needing {_names(listed)}, its log says {_names(wanted)}"
        yield Finding(f"wants of key {key}", what, _names(wanted), _names(listed))
    held = sorted(name for name, _, _ in beside.of("holds", key))
    implied = sorted(wanted) if proved.task.holder else []
    if held != implied:
        what = f"it holds places of {_names(held)}, its log says {_names(implied)}"
        yield Finding(f"holds of key {key}", what, _names(implied), _names(held))
    for name, place, max_held in beside.of("holds", key):
        # Limits may have been lowered since; where there are none there is one place.
        if place < 0 or (place and not max_held):
            what = f"it holds place {place} of {name}, which has one place, number 0"
            yield Finding(f"holds of {name}", what, 0, place)


def _flags(beside: RowsBeside, key: int, proved: Proved) -> Iterator[Finding]:
    implied = implied_flags(beside, key, proved, in_tree=bool(beside.of("members", key)))
    if proved.flags != implied:
        what = f"its flags are {proved.flags}, its log implies {implied}"
        yield Finding(f"tasks.flags of key {key}", what, implied, proved.flags)


def implied_flags(beside: RowsBeside, key: int, proved: Proved, *, in_tree: bool) -> int:
    """What the ledger must look up when a task moves. `proved.flags` are those it has."""
    task, forgotten = proved.task, 0
    if proved.flags & HAS_DEPENDENTS and not beside.of("dependents", key):
        # That somebody waited for it is never forgotten, even if they are deleted.
        forgotten = 0 if beside.is_complete else HAS_DEPENDENTS
    return (
        (HAS_RESOURCES if task.spec.resources else 0)
        | (IN_TREE if in_tree else 0)
        | (NEEDS_APPROVAL if task.spec.needs_approval else 0)
        | (HAS_MENTIONS if task.details.mentions else 0)
        | (HAS_DEPENDENTS if beside.of("dependents", key) else forgotten)
    )


def _names(found: Iterable[str]) -> str:
    return ", ".join(sorted(found)) or "nothing"
