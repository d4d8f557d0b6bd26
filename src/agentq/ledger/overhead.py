"""What coordination cost: for a set of tasks, the work they were against the time that passed.

- **work**: how long all attempts ran together, from claim to end
- **wall**: from the first submit to the end of the last attempt
- **critical path**: the longest chain of tasks that had to come after each other, by their work
- **overhead**: wall - critical path. With enough workers and no waiting at all it would be nothing
- **gain**: work - wall, the time that running side by side has saved
- **share**: overhead / gain, what saving that time has cost; none if nothing was saved

All times are milliseconds of the store's clock, as the log has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.contracts.service_values import Overhead
from agentq.core.graph import parents_first
from agentq.core.states import State
from agentq.core.task import Spec, Task
from agentq.core.triggers import Cancel, ClaimTask, LogEntry, Stopped, Submit, Tick
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.ledger.queries import LedgerQueries

_PAGE = 500


@dataclass(slots=True)
class _Life:
    """The times of one task's history that `overhead` needs."""

    submitted_at: int = 0
    attempts: int = 0
    work_ms: int = 0
    started_at: int = 0
    cancelled: bool = False
    last_end: int = 0

    def end(self, at: int) -> None:
        self.work_ms += max(at - self.started_at, 0)
        self.last_end = max(at, self.last_end)
        self.started_at, self.cancelled = 0, False


def overhead_of(entries: Iterable[LogEntry], specs: Mapping[str, Spec], now: int) -> Overhead:
    """Measure the tasks of `specs` by their log entries, each task's in its own order.

    An attempt that still runs counts until `now`. Entries of other tasks are passed over.
    """
    lives = {task_id: _Life() for task_id in specs}
    for entry in entries:
        life = lives.get(entry.task_id)
        if life is not None:
            _note(life, entry)
    running = 0
    for life in lives.values():
        if life.started_at:
            running += 1
            life.end(max(now, life.started_at))
    begun = min((life.submitted_at for life in lives.values() if life.submitted_at), default=0)
    ended = max((life.last_end for life in lives.values()), default=0)
    path = _critical_path(specs, lives)
    return Overhead(
        tasks=len(lives),
        attempts=sum(life.attempts for life in lives.values()),
        running=running,
        work_ms=sum(life.work_ms for life in lives.values()),
        wall_ms=max(ended - begun, 0),
        critical_path_ms=sum(lives[task_id].work_ms for task_id in path),
        path=path,
    )


def _note(life: _Life, entry: LogEntry) -> None:
    event = entry.event
    if isinstance(event.trigger, Submit):
        life.submitted_at = life.submitted_at or event.at
    elif isinstance(event.trigger, ClaimTask):
        life.attempts += 1
        life.started_at = event.at
    elif not life.started_at:
        return
    elif isinstance(event.trigger, Cancel):
        life.cancelled = True  # the agent runs until its holder says it has stopped, or is lost
    elif life.cancelled:
        if isinstance(event.trigger, Stopped | Tick):
            life.end(event.at)
    elif event.state is not State.IN_PROGRESS:
        life.end(event.at)


def _critical_path(specs: Mapping[str, Spec], lives: Mapping[str, _Life]) -> tuple[str, ...]:
    # What follows by `next` starts when its parent has completed: it comes after it like the rest.
    chained = [
        replace(spec, after=(*spec.after, spec.parent)) if _is_next(spec, specs) else spec
        for spec in specs.values()
    ]
    #: Work on the way to each task's end, and how many tasks that are: of ways that took equally
    #: long, the one with more tasks that had to wait for each other counts.
    length: dict[str, tuple[int, int]] = {}
    before: dict[str, str] = {}
    for spec in parents_first(chained):
        known = [each for each in spec.after if each in length]
        longest = max(known, key=lambda each: length[each], default="")
        work, tasks = length.get(longest, (0, 0))
        length[spec.id] = (lives[spec.id].work_ms + work, tasks + 1)
        before[spec.id] = longest
    here = max(length, key=lambda each: length[each], default="")
    path = []
    while here:
        path.append(here)
        here = before[here]
    return tuple(reversed(path))


def _is_next(spec: Spec, specs: Mapping[str, Spec]) -> bool:
    parent = specs.get(spec.parent)
    return parent is not None and any(child.id == spec.id for child in parent.next)


def measured(queries: LedgerQueries, tasks: Iterable[Task], now: int) -> Overhead:
    """Measure these tasks by the log."""
    specs = {task.id: task.spec for task in tasks}
    # One at a time: a set of tasks may be large, and so may one history.
    entries = (entry for each in specs for entry in queries.history(queries.find(each)[0]))
    return overhead_of(entries, specs, now)
