"""Cleans up after attempts that were killed, and those whose workspace could not go at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from agentq.core.errors import AgentqError, Refused
from agentq.core.states import TERMINAL

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.core.access import Principal
    from agentq.core.task import Task
    from agentq.worker.workspace_records import Kept
    from agentq.worker.workspaces import Workspaces

log = logging.getLogger("agentq.worker")

AGAIN_SECONDS = 3600.0
_JOIN_SECONDS = 5.0
_TASKS_AT_ONCE = 200


class Cleaner:
    """Cleans up in a thread of its own, from `start` to `close`."""

    def __init__(self, workspaces: Workspaces, service: Service, who: Principal) -> None:
        self._workspaces = workspaces
        self._service = service
        self._who = who
        self._end = threading.Event()
        # A daemon thread: one that hangs in a call must not keep the worker from ending.
        self._thread = threading.Thread(target=self._run, name="clean up", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self.clean_up()
            except (AgentqError, OSError) as error:
                log.warning("workspaces could not be cleaned up: %s", error)
            self._end.wait(AGAIN_SECONDS)

    def clean_up(self) -> int:
        """Remove what may go, with a snapshot of what would be lost; how many trees went.

        Only of tasks that are over. An attempt at any other finds the workspace, and goes on there.
        """
        removed = 0
        for some in _in_groups(self._workspaces.all()):
            tasks = self._service.tasks_by_id(self._who, [kept.task_id for kept in some])
            for kept in some:
                if self._end.is_set():
                    return removed
                removed += self._remove(kept, tasks.get(kept.task_id))
        self._workspaces.remove_leftovers()
        return removed

    def _remove(self, kept: Kept, task: Task | None) -> bool:
        is_over = task is not None and task.state in TERMINAL and not task.holder
        is_pruned = task is None and kept.record is not None and kept.record.over_at > 0
        if not is_over and not is_pruned:
            return False
        state = task.state if task is not None else None
        self._workspaces.note_end(kept, state)
        if self._workspaces.why_not(kept, state, False):
            return False  # `agentq workspaces` says it
        try:
            self._workspaces.remove(kept, state, is_held=False)
        except Refused as refused:
            log.info("%s", refused)
            return False
        return True


def _in_groups(all_kept: Sequence[Kept]) -> Iterator[Sequence[Kept]]:
    for start in range(0, len(all_kept), _TASKS_AT_ONCE):
        yield all_kept[start : start + _TASKS_AT_ONCE]
