"""Parents and children: a task knows which of its children are not over.

They are noted in the transaction that submits them, which locks the parent. Each child has an edge
to its parent, so that its end finds it. An attempt may wait for its children (`Yield`), unless one
of them waits for it in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentq.core.errors import Refused
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec, Task
from agentq.core.triggers import ChildrenSubmitted, DependencyEnded
from agentq.ledger.codec import STATES, decode_details
from agentq.ledger.unit_of_work import UnitOfWork

_NEVER_AGAIN = (State.COMPLETE, State.CANCELLED)
#: How many tasks are looked at for one that waits for its own parent.
_LOOKED_AT_MAX = 10_000


def children_of_new(specs: Sequence[Spec], born: Mapping[str, Task]) -> dict[str, list[Task]]:
    """By parent, the new tasks that are its children."""
    found: dict[str, list[Task]] = {}
    for spec in specs:
        if spec.parent and not _is_in_ring(spec, born):
            found.setdefault(spec.parent, []).append(born[spec.id])
    return found


def _is_in_ring(spec: Spec, born: Mapping[str, Task]) -> bool:
    """Whether it descends from itself: then nobody waits for anybody."""
    here, seen = spec.parent, {spec.id}
    while here in born:
        if here in seen:
            return True
        seen.add(here)
        here = born[here].spec.parent
    return here in seen


def note_children(work: UnitOfWork, children: Mapping[str, Sequence[Task]]) -> set[str]:
    """Tell parents of their children, those that were over at birth included. Returns the parents
    that want to know of their ends: those that are there, and may go on or be opened again."""
    held = {task.id: key for key, task in work.tasks.items() if task.id in children}
    missing = [each for each in children if each not in held]
    keys = work.tx.keys(missing) if missing else {}
    work.load(sorted(keys.values()))
    told = set()
    for parent, key in (held | keys).items():
        task = work.tasks.get(key)
        if task is None or task.state in _NEVER_AGAIN:
            continue
        told.add(parent)
        if not task.is_terminal:
            _note(work, key, task, children[parent])
    return told


def _note(work: UnitOfWork, key: int, parent: Task, children: Sequence[Task]) -> None:
    if parent.details.yielded:
        awaited = {name for child in children for name in child.details.waiting_on}
        if _is_waited_for(work, parent.id, awaited):
            raise Refused(
                f"{parent.id} waits for its children, and one of the new ones would come after it:"
                " they would wait for each other. Nothing was submitted.",
                "Submit it without a parent.",
                code="cycle",
            )
    work.apply(key, ChildrenSubmitted(tuple(child.id for child in children)))
    for child in children:
        if child.is_terminal:
            work.apply(key, DependencyEnded(child.id, child.state))


def note_reopened(work: UnitOfWork, key: int, task: Task) -> None:
    """Tell the parent of a task that was opened again that it has an open child more: if it is
    told of its end, that is. Those that an earlier version has submitted have no such edge."""
    parent = task.spec.parent
    keys = work.tx.keys([parent]) if parent else {}
    if parent in keys and (key, keys[parent]) in work.tx.edges_of([key]):
        note_children(work, {parent: [task]})


def check_yield(work: UnitOfWork, task: Task) -> None:
    """Raise `Refused` if one of the children that it would wait for waits for the task itself."""
    if _is_waited_for(work, task.id, set(task.details.children)):
        raise Refused(
            f"{task.id} cannot wait for its children: one of them comes after it, and they would"
            " wait for each other. The attempt goes on.",
            "Cancel that child, or complete without it (`agentq complete --leave-children`).",
            code="cycle",
        )


def _is_waited_for(work: UnitOfWork, name: str, by: set[str]) -> bool:
    """Whether one of these tasks is the named one, or waits for it, however far."""
    seen: set[str] = set()
    level = by
    while level and len(seen) < _LOOKED_AT_MAX:
        if name in level:
            return True
        seen |= level
        rows = work.tx.tasks(sorted(work.tx.keys(sorted(level)).values()))
        details = [
            decode_details(row.hot.memo) for row in rows if STATES[row.hot.state] not in TERMINAL
        ]
        waited = [(*each.waiting_on, *(each.children if each.yielded else ())) for each in details]
        level = {each for names in waited for each in names} - seen
    return False
