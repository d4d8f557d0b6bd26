"""Effects as messages: where each goes, how urgent it is, and when it is not worth sending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from agentq.contracts.delivery import (
    RESULTS,
    TASKS,
    Message,
    control_exchange,
    is_results_queue,
    stop_key,
)
from agentq.core.access import SYSTEM
from agentq.core.schedule import expiry
from agentq.core.states import State
from agentq.core.task import Priority, Task
from agentq.protocol.messages import encode, result_envelope, task_envelope

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.installation import Installation
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import OutboundEffect
    from agentq.daemon.shared_publisher import SharedPublisher

#: As the broker counts: the most urgent is the highest.
_PRIORITIES = {Priority.URGENT: 9, Priority.HIGH: 6, Priority.NORMAL: 3, Priority.LOW: 0}
_ARTIFACTS_MAX = 100
#: The id and the version of a task.
Mark: TypeAlias = tuple[str, int]
#: Hints in one batch, so that other loops can publish in between.
AT_ONCE = 200


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
    context = ""
    if task.spec.context_sha256:
        context = artifacts.context_ref(task.id, task.edited_context)
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
    exchange = control_exchange(effect.task.to)
    return Message(
        message_id(effect.id), exchange, stop_key(holder), encode(envelope), mandatory=False
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


def announce_again(
    installation: Installation, publisher: SharedPublisher, tasks: Sequence[Task]
) -> tuple[list[Mark], str]:
    """Publish hints again; return those that the broker took, and why it refused others."""
    now = installation.service.now()
    outgoing: list[tuple[Mark, Message]] = []
    for task in tasks:
        again = message_id(f"{task.id}.{task.version}.again")
        message = announcement(task, again, now, installation.artifacts)
        if message is not None:
            outgoing.append(((task.id, task.version), message))
    taken: list[Mark] = []
    for start in range(0, len(outgoing), AT_ONCE):
        some = outgoing[start : start + AT_ONCE]
        reasons = publisher.publish([message for _, message in some])
        taken += [mark for (mark, _), reason in zip(some, reasons, strict=True) if not reason]
        if any(reasons):
            return taken, next(filter(None, reasons))
    return taken, ""


def publish_effects(
    service: Service,
    publisher: SharedPublisher,
    effects: Sequence[tuple[OutboundEffect, Message | None]],
) -> tuple[list[OutboundEffect], list[tuple[str, str]]]:
    """Publish effects and settle them in the outbox; one without a message is settled as it is.

    Return those that were published, and the routing key and reason of each that was not.
    """
    outgoing = [(effect, message) for effect, message in effects if message is not None]
    reasons = publisher.publish([message for _, message in outgoing])
    settled = [effect for effect, message in effects if message is None]
    published: list[OutboundEffect] = []
    unpublished: list[OutboundEffect] = []
    refusals: list[tuple[str, str]] = []
    for (effect, message), reason in zip(outgoing, reasons, strict=True):
        if reason:
            unpublished.append(effect)
            refusals.append((message.routing_key, reason))
        else:
            published.append(effect)
    service.settle_outbox(SYSTEM, [*settled, *published], unpublished)
    return published, refusals
