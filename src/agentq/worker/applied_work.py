"""Removes what attempts left on this machine once their task's work is in the user's branch.

As retention does, only without its delay: a tree goes when a snapshot has everything in it and
nobody uses it, and then the snapshots go. But not while another task is to start from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError
from agentq.core.states import TERMINAL, State

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.worker.workspaces import Workspaces

#: So many tasks that are not over are looked at; with more, retention cleans up later.
_TASKS_MAX = 2000


def clean_up_applied(known: Workspaces, reader: QueueReader, task_id: str) -> list[str]:
    """Remove the workspaces of an applied task; why some of them stay."""
    there = [kept for kept in known.all() if kept.task_id == task_id]
    if not there:
        return []
    if needed_by(reader, task_id):
        return []  # they go when these tasks are over, by retention
    reasons = []
    for kept in there:
        known.note_applied(kept)
        try:
            known.remove(kept, State.COMPLETE, is_held=False)
        except AgentqError as error:
            reasons.append(error.cause)
    return reasons


def needed_by(reader: QueueReader, task_id: str) -> str:
    """A task that is not over and comes after this one; "…" if there are too many to look at."""
    from agentq.contracts.service_values import Wanted

    states = tuple(state for state in State if state not in TERMINAL)
    for number, task in enumerate(reader.every_task(Wanted(states=states))):
        if number >= _TASKS_MAX:
            return "…"
        if task_id in (*task.spec.after, task.spec.parent) or task_id in str(task.spec.extra):
            return task.id
    return ""
