"""Outcomes for a coordinator: what became of the tasks that were to reply to it.

With a broker they come from its queue `results.<coordinator>`, each at least once: it is
acknowledged when the caller asks for the next. Without one they are read from the log, which has
them all, in the order of commits. Either way an outcome is news, no proof: whoever acts on it reads
the result, which is checked (`Queue.result`).
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from agentq.core.errors import Invalid, Unavailable
from agentq.core.messages import OUTCOMES, read_json, result_envelope
from agentq.core.states import TERMINAL, State
from agentq.core.validate import check_role

if TYPE_CHECKING:
    from agentq.client.reading import Reading
    from agentq.contracts.delivery import Consumer
    from agentq.core.task import Task
    from agentq.core.triggers import Entry

QUEUE_PREFIX = "results."
_COUNT = 50
_POLL_SECONDS = 5.0
#: How long a broker may take to answer, and then to hand over what is there already.
_ANSWER_SECONDS, _SETTLE_SECONDS = 2.0, 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended, or that it is blocked."""

    task_id: str
    #: `completed`, `failed`, `blocked`, `cancelled` or `expired`.
    status: str
    summary: str
    #: Everything the envelope says; `agentq schema outcome` describes it.
    envelope: Mapping[str, Any]
    #: Its place in the log, to go on after it; 0 if it came by a broker, which remembers that.
    position: int = 0


def results(
    queue: Reading,
    coordinator: str = "coordinator",
    *,
    wait: float | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> Iterator[Outcome]:
    """Outcomes of the tasks whose `reply_to` is `results.<coordinator>`, as they come.

    Ends after `limit` of them, or when nothing has come for `wait` seconds (None waits for ever).
    `after` is the position to go on after, for a log; a broker knows by itself what was taken.
    """
    name = results_queue(coordinator)
    if not queue.parts.settings.broker:
        return islice(_logged(queue, name, after or 0, wait), limit)
    if after is not None:
        raise Invalid(
            "Results come from the broker here, which has no positions to go on after.",
            "Leave --after out: what was not taken is still there.",
        )
    return received(queue.parts.consumer(name), wait, limit)


def results_queue(coordinator: str) -> str:
    """Where a coordinator's results go: what its tasks have as `reply_to`.

    >>> results_queue("coordinator"), results_queue("results.ann")
    ('results.coordinator', 'results.ann')
    """
    name = coordinator.removeprefix(QUEUE_PREFIX)
    return QUEUE_PREFIX + check_role(name, "coordinator")


def received(
    consumer: Consumer, wait: float | None, limit: int | None = None
) -> Generator[Outcome]:
    """Outcomes from a queue. One that is not finished with when the caller stops comes again."""
    given = 0
    try:
        quiet_since = time.monotonic()
        while True:
            pause = _POLL_SECONDS
            if wait is not None:
                least = _SETTLE_SECONDS if given else _ANSWER_SECONDS
                left = quiet_since + max(wait, least) - time.monotonic()
                if left <= 0:
                    _check_reached(consumer)
                    return
                pause = min(pause, left)
            for message in consumer.take(_COUNT, pause):
                try:
                    outcome = read_outcome(message.body)
                except Invalid as error:
                    consumer.reject(message.tag, str(error))
                    continue
                yield outcome
                consumer.ack([message.tag])
                quiet_since, given = time.monotonic(), given + 1
                if given == limit:
                    return
    finally:
        consumer.close()


def _check_reached(consumer: Consumer) -> None:
    """Nothing came: because there is nothing, or because nobody was there to ask?"""
    if consumer.trouble:
        raise Unavailable(
            f"The broker cannot be asked for results: {consumer.trouble}",
            "They wait there; try again.",
        )


def read_outcome(body: bytes) -> Outcome:
    """The outcome in these bytes, or `Invalid`."""
    plain = read_json(body)
    texts = [plain.get(word) for word in ("task_id", "status", "summary")]
    if plain.get("v") != 1 or plain.get("status") not in OUTCOMES:
        raise Invalid("This is no outcome of version 1.", "`agentq schema outcome` says more.")
    task_id, status, summary = (text if isinstance(text, str) else "" for text in texts)
    if not task_id:
        raise Invalid("An outcome needs task_id, and this one has none.", "Drop it.")
    return Outcome(task_id, status, summary, plain)


# -- without a broker ------------------------------------------------------------------------------


def _logged(queue: Reading, name: str, position: int, wait: float | None) -> Iterator[Outcome]:
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


def _outcome_of(queue: Reading, name: str, entry: Entry) -> Outcome | None:
    """What this event means to that coordinator: mostly nothing."""
    event = entry.event
    if event.state not in TERMINAL and event.state is not State.BLOCKED:
        return None
    task = queue.views.by_id([entry.task_id]).get(entry.task_id)
    if task is None or task.spec.reply_to != name:
        return None
    history = queue.history(task.id)
    if event.version > 1 and history[event.version - 2].event.state is event.state:
        return None  # a comment, say, on what was over already
    envelope = _envelope(queue, task, event.state)
    return Outcome(
        task.id, str(envelope["status"]), str(envelope["summary"]), envelope, entry.position
    )


def _envelope(queue: Reading, task: Task, state: State) -> dict[str, Any]:
    done = state is State.COMPLETE
    report = task.memo.report
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
