"""Reads what measuring needs: which tasks are meant, and their logs, a page at a time.

How many tasks are read is bounded where nobody has named them, and the answer says when that has
left some out: the newest are measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import NamedTuple

from agentq.contracts.service_values import Overhead, Quality
from agentq.contracts.store import (
    LogRow,
    Reader,
    Store,
    TaskRow,
)
from agentq.contracts.task_filter import Filter, Order
from agentq.core.errors import AgentqError, Damaged
from agentq.core.gates import gates_of
from agentq.core.phases import TaskLife, divide
from agentq.core.reviews import review_id
from agentq.core.task import Spec, Task
from agentq.core.triggers import LogEntry
from agentq.core.values import replace
from agentq.ledger.codec import SpecCache, to_task
from agentq.ledger.log_codec import to_event
from agentq.ledger.overhead import overhead_of
from agentq.ledger.quality import quality_of
from agentq.ledger.replay import replay

#: How many tasks that nobody has named are measured at most: the newest.
TASKS_MAX = 10_000
#: Among how many tasks that came later those below a task are looked for.
LATER_MAX = 50_000
#: Tasks, and logs of tasks, per read.
_TASK_PAGE, _LOG_PAGE = 1_000, 250
#: Triggers that change neither where a task stands nor what it cost: most of a long log.
_MARGINAL = frozenset(
    {"Progress", "AddArtifact", "Comment", "Tell", "TakeMessages", "RefuseReport", "Applied"}
)


class _Found(NamedTuple):
    """A task, and the spec that was submitted, by which its log is read."""

    task: Task
    submitted: Spec


@dataclass(slots=True)
class MeasuredTasks:
    """Tasks to measure by key, and whether some were left out."""

    found: dict[int, _Found] = field(default_factory=dict)
    cut: bool = False

    def tasks(self) -> list[Task]:
        return [each.task for each in self.found.values()]

    def specs(self) -> dict[str, Spec]:
        """What was submitted, by id."""
        return {each.submitted.id: each.submitted for each in self.found.values()}


class Measuring:
    """Chooses tasks and measures them."""

    def __init__(self, store: Store, specs: SpecCache) -> None:
        self._store = store
        self._specs = specs

    # -- which tasks -----------------------------------------------------------------------------

    def named(
        self, ids: Sequence[str], *, below: bool = False, reviews: bool = True
    ) -> MeasuredTasks:
        """The tasks of these ids; with `below` also all that descend from them, and, unless they
        are not wanted, the tasks that reviewed any of these."""
        chosen = MeasuredTasks(self._by_id(ids))
        if below:
            self._descend(chosen)
        if below and reviews:
            self._add_reviews(chosen)
        chosen.found = dict(sorted(chosen.found.items()))
        return chosen

    def recent(self, since_ms: int = 0, role: str = "") -> MeasuredTasks:
        """The newest tasks that were submitted at that moment or later; of this role."""
        chosen, key = MeasuredTasks(), 0
        role_id = self._store.read(partial(_role_id, name=role)) if role else 0
        while True:
            wanted = Filter(role=role_id, key=key, limit=_TASK_PAGE)
            rows = self._store.read(partial(_listed, wanted=wanted))
            recent = [row for row in rows if row.spec.submitted_at >= since_ms]
            room = TASKS_MAX - len(chosen.found)
            chosen.found |= self._found(recent[:room])
            chosen.cut = len(recent) > room
            if chosen.cut or len(recent) < _TASK_PAGE:
                break
            key = rows[-1].hot.key
        chosen.found = dict(sorted(chosen.found.items()))
        return chosen

    def _found(self, rows: Sequence[TaskRow]) -> dict[int, _Found]:
        found = {}
        for row in rows:
            spec, submitted_at = self._specs.put(row.spec)
            found[row.hot.key] = _Found(to_task(row.hot, spec, submitted_at), spec)
        return found

    def _by_id(self, ids: Sequence[str]) -> dict[int, _Found]:
        def look(reader: Reader) -> list[TaskRow]:
            keys = sorted(reader.keys(ids).values())
            return reader.tasks(keys) if keys else []

        return self._found(self._store.read(look))

    def _descend(self, chosen: MeasuredTasks) -> None:
        """Choose all that descend from these as well."""
        ids = {each.task.id for each in chosen.found.values()}
        # Whatever is below a task was submitted after it.
        key, left = min(chosen.found, default=0), LATER_MAX
        while ids and left > 0:
            wanted = Filter(refers=True, order=Order.OLDEST, key=key, limit=_TASK_PAGE)
            rows = self._store.read(partial(_listed, wanted=wanted))
            for row in rows:
                spec, _ = self._specs.put(row.spec)
                if spec.parent in ids:
                    ids.add(spec.id)
                    chosen.found |= self._found([row])
            left -= len(rows)
            if len(rows) < _TASK_PAGE:
                break
            key = rows[-1].hot.key
        else:
            chosen.cut = bool(ids)

    def _add_reviews(self, chosen: MeasuredTasks) -> None:
        """A review belongs to no tree, but it was made for the report that it judged."""
        reviewed = [task for task in chosen.tasks() if gates_of(task).reviewer]
        ids = [
            review_id(replace(task, epoch=epoch))
            for task in reviewed
            for epoch in range(1, task.epoch + 1)
        ]
        judged = {task.id for task in reviewed}
        for key, each in self._by_id(ids).items():
            if each.submitted.reviews in judged:
                chosen.found[key] = each

    # -- what their logs say ---------------------------------------------------------------------

    def overhead(self, chosen: MeasuredTasks, now: int) -> Overhead:
        lives: dict[str, TaskLife] = {}
        for found, rows in self._logs(chosen):
            task_id = found.task.id
            try:
                events = [
                    to_event(row.event, found.submitted)
                    for row in rows
                    if row.event.trigger not in _MARGINAL
                ]
                lives[task_id] = divide(replay(events), now)
            except _UNREADABLE as error:
                raise _damaged(task_id, error) from error
        return overhead_of(lives, chosen.specs(), cut=chosen.cut)

    def quality(self, chosen: MeasuredTasks) -> Quality:
        roles = {each.task.id: each.task.to for each in chosen.found.values()}
        reviewed = {key: each for key, each in chosen.found.items() if _is_judged(each.task)}
        entries: list[LogEntry] = []
        for found, rows in self._logs(MeasuredTasks(reviewed)):
            try:
                entries += [
                    LogEntry(row.position, row.task_id, to_event(row.event, found.submitted))
                    for row in rows
                    if row.event.trigger == "Verdict"
                ]
            except _UNREADABLE as error:
                raise _damaged(found.task.id, error) from error
        return Quality(quality_of(entries, roles), chosen.cut)

    def _logs(self, chosen: MeasuredTasks) -> Iterator[tuple[_Found, list[LogRow]]]:
        """The log of each task, in the order of the tasks; none of one that was pruned since."""
        keys = list(chosen.found)
        for first in range(0, len(keys), _LOG_PAGE):
            page = keys[first : first + _LOG_PAGE]
            rows = self._store.read(partial(_histories, keys=page))
            for key, log in groupby(rows, key=lambda row: row.event.key):
                yield chosen.found[key], list(log)


#: Whatever a damaged log makes the rules do.
_UNREADABLE = (AgentqError, AssertionError, ValueError, LookupError, TypeError, AttributeError)


def _damaged(task_id: str, error: Exception) -> Damaged:
    return Damaged(
        f"The log of {task_id} cannot be replayed: {error}. Nothing was measured.",
        "`agentq verify` says what is damaged, and where.",
    )


def _is_judged(task: Task) -> bool:
    gates = gates_of(task)
    return bool(gates.person or gates.reviewer)


def _listed(reader: Reader, wanted: Filter) -> list[TaskRow]:
    return reader.list_tasks(wanted)


def _histories(reader: Reader, keys: Sequence[int]) -> list[LogRow]:
    return reader.history(*keys)


def _role_id(reader: Reader, name: str) -> int:
    return next((row.id for row in reader.roles() if row.name == name), -1)
