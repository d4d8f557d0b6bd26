"""Effects as messages: where each goes, how urgent it is, and when it is not worth sending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.delivery import (
    CONTROL,
    RESULTS,
    TASKS,
    Message,
    is_results_queue,
    stop_key,
)
from agentq.core.schedule import expiry
from agentq.core.states import State
from agentq.core.task import Priority, Task
from agentq.protocol.messages import encode, result_envelope, task_envelope

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.service_values import OutboundEffect

#: As the broker counts: the most urgent is the highest.
_PRIORITIES = {Priority.URGENT: 9, Priority.HIGH: 6, Priority.NORMAL: 3, Priority.LOW: 0}
_ARTIFACTS_MAX = 100


def message_id(effect_id: str) -> str:
    """The same whenever the same effect leaves."""
    return f"agentq-{effect_id}"


def announcement(task: Task, id: str, now: int, artifacts: ArtifactStore) -> Message | None:
    """The hint that a task is ready; None if it is not, or is about to expire."""
    if task.state is not State.READY:
        return None
    ends_at = expiry(task.spec, task.details, task.submitted_at, task.epoch)
    if ends_at and ends_at <= now:
        return None
    context = artifacts.context_ref(task.id) if task.spec.context_sha256 else ""
    return Message(
        id,
        TASKS,
        task.to,
        encode(task_envelope(task, context_ref=context)),
        priority=_PRIORITIES[task.spec.priority],
        expires_ms=ends_at - now if ends_at else 0,
        durable=False,
    )


def stop_word(effect: OutboundEffect) -> Message:
    """Return the control message for a holder; not mandatory, as a lost one costs only delay."""
    holder, epoch = str(effect.data["holder"]), int(effect.data["epoch"])
    envelope = {"v": 1, "task_id": effect.task.id, "epoch": epoch, "to": holder, "stop": True}
    return Message(
        message_id(effect.id), CONTROL, stop_key(holder), encode(envelope), mandatory=False
    )


def reply(effect: OutboundEffect, artifacts: ArtifactStore) -> Message | None:
    """The outcome, for the coordinator that asked; None if it named no place for results."""
    reply_to = str(effect.data["reply_to"])
    if not is_results_queue(reply_to):
        return None
    task, status = effect.task, str(effect.data["status"])
    report = task.details.report
    done = status == "completed" and report is not None and report.result
    epoch = report.epoch if report is not None else task.epoch
    evidence = [
        {"name": row.name, "size": row.size, "sha256": row.sha256, "media_type": row.media_type}
        for row in effect.artifacts
        if row.epoch == epoch
    ]
    envelope = result_envelope(
        task,
        status,
        str(effect.data.get("summary", "")),
        result_ref=artifacts.result_ref(task.id) if done else "",
        artifacts=evidence[:_ARTIFACTS_MAX],
    )
    return Message(message_id(effect.id), RESULTS, reply_to, encode(envelope))
