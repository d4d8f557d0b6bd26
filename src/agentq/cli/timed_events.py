"""What events say that time made: their trigger carries nothing, the task it left tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.approvals import BY_POLICY
from agentq.core.errors import AgentqError
from agentq.core.policy_steps import asked_words
from agentq.core.states import State
from agentq.core.triggers import Tick

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.task import Task
    from agentq.core.triggers import LogEntry

_WAITED_FOR = {
    State.PENDING: "an approval is waited for",
    State.REVIEW: "a verdict is waited for",
    State.BLOCKED: "an answer is waited for",
}
#: Events that the task must be asked about.
_TOLD_BY_TASK = frozenset({"escalated", "approval_timed_out", "blocked", "completed"})


class TimedEvents:
    """Words for events that passing time made. Each task's log is replayed at most once."""

    def __init__(self, queue: QueueReader) -> None:
        self._queue = queue
        self._left: dict[str, dict[int, Task]] = {}

    def words(self, entry: LogEntry) -> str:
        """What an event was about; "" if its trigger says it, or nothing can."""
        is_told = isinstance(entry.event.trigger, Tick) and entry.event.kind in _TOLD_BY_TASK
        return told_of(entry, self._task(entry) if is_told else None)

    def _task(self, entry: LogEntry) -> Task | None:
        """The task as this event left it."""
        known = self._left.get(entry.task_id, {})
        if entry.event.version not in known:
            try:
                steps = self._queue.replay(entry.task_id).steps
            except AgentqError:
                steps = ()  # it was pruned, or whoever looks may not
            known = self._left[entry.task_id] = {each.event.version: left for each, left in steps}
        return known.get(entry.event.version)


def told_of(entry: LogEntry, left: Task | None) -> str:
    """What is to be told of an event that time made, by the task that it left."""
    event = entry.event
    if not isinstance(event.trigger, Tick):
        return ""
    if event.kind == "reminded":
        return _WAITED_FOR.get(event.state, "")
    if left is None or event.kind not in _TOLD_BY_TASK:
        return ""
    if event.kind == "escalated":
        return f"{asked_words(left)} is asked"
    by_policy = [note.text for note in left.details.notes if note.by == BY_POLICY]
    return left.reason or (by_policy[-1] if by_policy else "")
