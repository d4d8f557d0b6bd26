"""Parents and children: a task knows which of its children are not over.

They are noted in the transaction that submits them, which locks the parent. Each child has an edge
to its parent, so that its end finds it. An attempt may wait for its children (`Yield`), unless one
of them waits for it in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentq.core.errors import Refused
from agentq.core.states import TERMINAL
from agentq.core.task import Spec, Task
from agentq.core.triggers import ChildrenSubmitted
from agentq.ledger.codec import STATES, decode_details
from agentq.ledger.unit_of_work import UnitOfWork

#: How many tasks are looked at for one that waits for its own parent.
_LOOKED_AT_MAX = 10_000


def children_of_new(specs: Sequence[Spec], born: Mapping[str, Task]) -> dict[str, list[str]]:
    """By parent, the new tasks that are its children and not over at birth."""
    found: dict[str, list[str]] = {}
    for spec in specs:
        if spec.parent and not born[spec.id].is_terminal and not _is_in_ring(spec, born):
            found.setdefault(spec.parent, []).append(spec.id)
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


def note_children(work: UnitOfWork, children: Mapping[str, Sequence[str]]) -> set[str]:
    """Tell the parents that are there, and not over, of their new children; which they are."""
    held = {task.id: key for key, task in work.tasks.items() if task.id in children}
    missing = [each for each in children if each not in held]
    keys = work.tx.keys(missing) if missing else {}
    work.load(sorted(keys.values()))
    told = set()
    for parent, key in (held | keys).items():
        task = work.tasks.get(key)
        if task is not None and not task.is_terminal:
            work.apply(key, ChildrenSubmitted(tuple(children[parent])))
            told.add(parent)
    return told


def note_reopened(work: UnitOfWork, task: Task) -> None:
    """Tell the parent of a task that was opened again that it has an open child more."""
    if task.spec.parent:
        note_children(work, {task.spec.parent: [task.id]})


def check_yield(work: UnitOfWork, task: Task) -> None:
    """Raise `Refused` if one of the children that it would wait for waits for the task itself."""
    seen: set[str] = set()
    level = set(task.details.children)
    while level and len(seen) < _LOOKED_AT_MAX:
        if task.id in level:
            raise Refused(
                f"{task.id} cannot wait for its children: one of them comes after it, and they"
                " would wait for each other. The attempt goes on.",
                "Cancel that child, or complete without it (`agentq complete --leave-children`).",
                code="cycle",
            )
        seen |= level
        rows = work.tx.tasks(sorted(work.tx.keys(sorted(level)).values()))
        details = [
            decode_details(row.hot.memo) for row in rows if STATES[row.hot.state] not in TERMINAL
        ]
        waited = [(*each.waiting_on, *(each.children if each.yielded else ())) for each in details]
        level = {name for names in waited for name in names} - seen
