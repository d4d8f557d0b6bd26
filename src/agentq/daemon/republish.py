"""Publishes again that a task is ready. A duplicate costs one refused claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from agentq.daemon.outbound_messages import announcement, message_id

if TYPE_CHECKING:
    from agentq.contracts.delivery import Message
    from agentq.contracts.installation import Installation
    from agentq.core.task import Task
    from agentq.daemon.shared_publisher import SharedPublisher

#: A task, as its id, in one version of it.
Mark: TypeAlias = tuple[str, int]
#: Hints in one batch: others publish too, and want their turn.
AT_ONCE = 200


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
