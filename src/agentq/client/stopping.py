"""Waits until the agent of a cancelled task is gone, not merely asked to stop."""

from __future__ import annotations

import time

from agentq.client.reader import POLL_SECONDS, QueueReader
from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.core.errors import TimedOut
from agentq.core.task import Task


def wait_gone(reader: QueueReader, ref: str, timeout: float | None = None) -> Task:
    """Sleep until nobody holds the task: its holder said that it stopped, or its lease ended."""
    task_id = reader.task(ref).id
    deadline = None if timeout is None else time.monotonic() + timeout
    waiter = reader.installation.doorbell.listen((EVENTS_TOPIC,))
    try:
        while True:
            task = reader.task(task_id)
            if not task.holder:
                return task
            left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimedOut(
                    f"{task.id} is {task.state}, but {task.holder} has not said that its agent is"
                    f" gone after {timeout:g} s.",
                    "It is told with every heartbeat; at the end of its lease it counts as gone.",
                )
            reader.wait_for_change(waiter, left)
    finally:
        waiter.close()
