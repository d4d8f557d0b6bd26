"""Which tasks are meant where somebody names none: of a role, with labels, that failed lately."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.core.states import State

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.task import Task

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Selection:
    """What tasks have in common; empty fields do not restrict.

    `kind` is why a dead letter failed (invalid, transient, …), `since_ms` the moment of the
    ledger's clock since which a task has changed.
    """

    role: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    kind: str = ""
    since_ms: int = 0

    def fits(self, task: Task) -> bool:
        """Whether the task is meant, as far as a listing cannot tell."""
        if self.kind and task.details.reason_kind != self.kind:
            return False
        return task.updated_at >= self.since_ms


def selected(queue: QueueReader, states: Collection[State], wanted: Selection) -> list[Task]:
    """Return the tasks in one of these states that are meant, the oldest first."""
    return [task for task in _listed(queue, states, wanted) if wanted.fits(task)][::-1]


def _listed(queue: QueueReader, states: Collection[State], wanted: Selection) -> Iterator[Task]:
    from agentq.contracts.service_values import Wanted

    cursor = 0
    while True:
        page = queue.tasks(
            Wanted(
                tuple(sorted(states)), wanted.role, labels=wanted.labels, cursor=cursor, limit=_PAGE
            )
        )
        yield from page.tasks
        cursor = page.cursor
        if not cursor:
            return
