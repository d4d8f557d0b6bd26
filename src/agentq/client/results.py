"""Outcomes for a coordinator: what became of the tasks that were to reply to it.

With a broker they come from its queue `results.<coordinator>` (see `client.broker_results`).
Without one they are read from the log, which has them all, in the order of commits. Either way an
outcome is news, no proof: whoever acts on it reads the result, which is checked (`Queue.result`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from agentq.client.broker_results import TaskOutcome, received
from agentq.contracts.delivery import RESULTS_PREFIX
from agentq.core.errors import Invalid
from agentq.core.states import TERMINAL, State
from agentq.protocol.messages import result_envelope
from agentq.protocol.spec_validation import check_role

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.core.task import Task
    from agentq.core.triggers import LogEntry

log = logging.getLogger("agentq.results")


def results(
    queue: QueueReader,
    coordinator: str = "coordinator",
    *,
    wait: float | None = None,
    after: int | None = None,
    limit: int | None = None,
    warn: Callable[[str], None] = log.warning,
) -> Iterator[TaskOutcome]:
    """Outcomes of the tasks whose `reply_to` is `results.<coordinator>`, as they come.

    Ends after `limit` of them, or when nothing has come for `wait` seconds (None waits for ever).
    `after` is the position to go on after, for a log; a broker knows by itself what was taken.
    `warn` hears why nothing comes, and of messages that cannot be read and stay in the queue.
    """
    name = results_queue(coordinator)
    if not queue.has_broker:
        return islice(_logged(queue, name, after or 0, wait), limit)
    if after is not None:
        raise Invalid(
            "Results come from the broker here, which has no positions to go on after.",
            "Leave --after out: what was not taken is still there.",
        )
    return received(queue.installation.mailbox(name), name, wait, limit, warn)


def results_queue(coordinator: str) -> str:
    """Where a coordinator's results go: what its tasks have as `reply_to`.

    >>> results_queue("coordinator"), results_queue("results.ann")
    ('results.coordinator', 'results.ann')
    """
    name = coordinator.removeprefix(RESULTS_PREFIX)
    return RESULTS_PREFIX + check_role(name, "coordinator")


# -- without a broker ------------------------------------------------------------------------------


def _logged(
    queue: QueueReader, name: str, position: int, wait: float | None
) -> Iterator[TaskOutcome]:
    while True:
        found = None
        for entry in queue.follow(position, wait):
            position = entry.position
            found = _outcome_of(queue, name, entry)
            if found is not None:
                break  # and wait anew: `wait` is how long nothing may come
        if found is None:
            return
        yield found


def _outcome_of(queue: QueueReader, name: str, entry: LogEntry) -> TaskOutcome | None:
    """What this event means to that coordinator: mostly nothing."""
    event = entry.event
    if event.state not in TERMINAL and event.state is not State.BLOCKED:
        return None
    task = queue.queries.tasks_by_id(queue.who, [entry.task_id]).get(entry.task_id)
    if task is None or task.spec.reply_to != name:
        return None
    history = queue.history(task.id)
    if event.version > 1 and history[event.version - 2].event.state is event.state:
        return None  # a comment, say, on what was over already
    envelope = _envelope(queue, task, event.state)
    return TaskOutcome(
        task.id, str(envelope["status"]), str(envelope["summary"]), envelope, entry.position
    )


def _envelope(queue: QueueReader, task: Task, state: State) -> dict[str, Any]:
    done = state is State.COMPLETE
    report = task.details.report
    epoch = report.epoch if report is not None else task.epoch
    rows = [row for row in queue.artifact_list(task.id) if row.epoch == epoch]
    return result_envelope(
        task,
        "completed" if done else str(state),
        task.summary if done else task.reason,
        result_ref=str(queue.as_json(task)["result_ref"] or ""),
        artifacts=[
            {"name": row.name, "size": row.size, "sha256": row.sha256, "media_type": row.media_type}
            for row in rows
        ],
    )
