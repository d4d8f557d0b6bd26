"""Parents and children: a task knows which of its children are not over.

They are noted in the transaction that submits them, which locks the parent. Each child has an edge
to its parent, so that its end finds it. An attempt may wait for its children (`Yield`), unless one
of them waits for it in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from agentq.core.errors import Refused
from agentq.core.limits import FAN_OUT_MAX
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec, Task, TaskDetails
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


def note_children(
    work: UnitOfWork, children: Mapping[str, Sequence[Task]], born: Mapping[str, Task]
) -> set[str]:
    """Tell parents of their children, those that were over at birth included. Returns the parents
    that want to know of their ends: those that are there, and may go on or be opened again. `born`
    are all tasks that this transaction brings."""
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
            _note(work, key, children[parent], born)
    return told


def _note(work: UnitOfWork, key: int, children: Sequence[Task], born: Mapping[str, Task]) -> None:
    parent = work.tasks[key]
    if parent.details.yielded:
        awaited = {name for child in children for name in child.details.waiting_on}
        if _is_waited_for(work, parent.id, awaited, born):
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
        note_children(work, {parent: [task]}, {})


def check_yield(work: UnitOfWork, task: Task, born: Mapping[str, Task]) -> None:
    """Raise `Refused` if one of the children that it would wait for waits for the task itself;
    `born` are those that this transaction brings."""
    if _is_waited_for(work, task.id, set(task.details.children), born):
        raise Refused(
            f"{task.id} cannot wait for its children: one of them comes after it, and they would"
            " wait for each other. The attempt goes on.",
            "Cancel that child, or complete without it (`agentq complete --leave-children`).",
            code="cycle",
        )


def _is_waited_for(work: UnitOfWork, name: str, by: set[str], born: Mapping[str, Task]) -> bool:
    """Whether one of these tasks is the named one, or waits for it, however far. What this
    transaction has decided counts, not what was before."""
    here = {**born, **{task.id: task for task in work.tasks.values()}}
    seen: set[str] = set()
    level = by
    while level and len(seen) < _LOOKED_AT_MAX:
        if name in level:
            return True
        seen |= level
        details = [here[each].details for each in level if each in here]
        details += _stored_details(work, sorted(level - here.keys()))
        waited = [(*each.waiting_on, *(each.children if each.yielded else ())) for each in details]
        level = {each for names in waited for each in names} - seen
    return False


def _stored_details(work: UnitOfWork, names: Sequence[str]) -> list[TaskDetails]:
    """The details of those that are not over."""
    rows = work.tx.tasks(sorted(work.tx.keys(names).values())) if names else []
    return [decode_details(row.hot.memo) for row in rows if STATES[row.hot.state] not in TERMINAL]


def open_below(task: Task, find: Callable[[list[str]], Iterable[Task]]) -> Iterator[Task]:
    """All that descend from a task and are not over, by way of those that are as well."""
    seen, level = set[str](), _named_below(task)
    while level:
        seen |= level
        found = list(find(sorted(level)))
        yield from (each for each in found if not each.is_terminal)
        level = {name for each in found for name in _named_below(each)} - seen


def _named_below(task: Task) -> set[str]:
    """The names of all that may be its children: those it was told of, and its next tasks."""
    ended = {name for name, _ in task.details.ended_children}
    return {*task.details.children, *ended, *next_names(task)}


def next_names(task: Task) -> Iterator[str]:
    """The ids that the next tasks of a completed task may have."""
    if task.state is not State.COMPLETE:
        return
    for each in task.spec.next:
        yield each.id
        if each.each:
            yield from (f"{each.id}-{number}" for number in range(1, FAN_OUT_MAX + 1))
