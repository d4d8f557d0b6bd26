"""Waits until the agent of a cancelled task is gone, not merely asked to stop."""

from __future__ import annotations

from contextlib import closing

from agentq.client.reader import QueueReader
from agentq.core.errors import TimedOut
from agentq.core.task import Task


def wait_gone(reader: QueueReader, ref: str, timeout: float | None = None) -> Task:
    """Sleep until nobody holds the task: its holder said that it stopped, or its lease ended."""
    task = reader.task(ref)
    with closing(reader.looks(timeout)) as looks:
        for _ in looks:
            task = reader.task(task.id)
            if not task.holder:
                return task
    raise TimedOut(
        f"{task.id} is {task.state}, but {task.holder} has not said that its agent is gone after"
        f" {timeout:g} s.",
        "It is told with every heartbeat; at the end of its lease it counts as gone.",
    )
