"""Handles repeated messages, and the files that come with a message."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentq.contracts.inbound_messages import (
    REFUSALS,
    InboundMessage,
    IntakeResult,
    IntakeStatus,
    accepted,
    is_under_way,
    refused,
)
from agentq.core.errors import AgentqError, Conflict, NotFound, Refused
from agentq.core.steps import stale
from agentq.core.task import Task
from agentq.core.triggers import AddArtifact
from agentq.protocol.messages import File, Status

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.store import DedupRow
    from agentq.ledger.queries import LedgerQueries


def again(inbound: InboundMessage, earlier: DedupRow, task: Task) -> IntakeResult:
    """The message was taken before: the same answer, unless that would mislead."""
    digest, epoch_text, code = earlier.digest.split(":", 2)
    epoch, message = int(epoch_text), inbound.message
    if digest != inbound.digest:
        return refused(
            inbound,
            Conflict(
                f"The message id {message.id} of {message.sender} stands for another message"
                " already. Nothing was recorded.",
                "Give each message an id of its own.",
            ),
        )
    if code:
        refusal: AgentqError = Refused(
            "This message was refused when it came first.", "Do not send it again.", code=code
        )
        return replace(refused(inbound, refusal), outcome=IntakeStatus.DUPLICATE)
    if message.status is Status.STARTED and not is_under_way(task, message.sender, epoch):
        lost = stale(task, epoch)
        return replace(refused(inbound, lost), outcome=IntakeStatus.DUPLICATE)
    verdict = accepted(inbound, epoch, task)
    return replace(verdict, outcome=IntakeStatus.DUPLICATE, reason="it was taken before")


# -- files that come with a message ----------------------------------------------------------------


def store_files(artifacts: ArtifactStore, inbound: InboundMessage, epoch: int) -> None:
    """Store what came with a message of an attempt that holds its task: outside any transaction,
    and the next one decides again who holds what.

    Raises `Unavailable` if the store cannot serve; then it may be tried again.
    """
    inbound.epoch, inbound.files = epoch, ()
    try:
        _store(artifacts, inbound)
    except REFUSALS as error:
        inbound.refusal = error
    inbound.brought = True


def _store(artifacts: ArtifactStore, inbound: InboundMessage) -> None:
    task_id, epoch = inbound.message.task_id, inbound.epoch
    for file in inbound.all_files:
        if file.content is not None:
            stored = artifacts.put(task_id, epoch, file.name, file.content.encode())
            if stored.name not in inbound.stored:
                inbound.stored += (stored.name,)
            size, sha256 = stored.size, stored.sha256
            media_type = stored.media_type
        else:
            _check_stored(artifacts, inbound, file)
            size, sha256 = file.size, file.sha256
            media_type = file.media_type or "application/octet-stream"
        inbound.files += (AddArtifact(epoch, file.name, size, sha256, media_type),)


def _check_stored(artifacts: ArtifactStore, inbound: InboundMessage, file: File) -> None:
    """See that a file is there which the program has stored by itself."""

    def wrong() -> str | None:
        return artifacts.check(
            inbound.message.task_id, inbound.epoch, file.name, file.sha256, file.size
        )  # fmt: skip

    if wrong():
        # A store that is away says so of every file. Nobody loses a report by that: `probe` raises.
        artifacts.probe()
        if found := wrong():
            raise Refused(f"{found} The report was not accepted.", "Store it and report again.")


def discard_unrecorded(
    queries: LedgerQueries, artifacts: ArtifactStore, inbound: InboundMessage
) -> None:
    """Remove what was stored for a message that was refused."""
    task_id, epoch = inbound.message.task_id, inbound.epoch
    try:
        key, _ = queries.find(task_id)
    except NotFound:
        return  # its files went with it
    recorded = {(row.epoch, row.name) for row in queries.artifacts(key)}
    for name in inbound.stored:
        if (epoch, name) not in recorded:
            artifacts.discard(task_id, epoch, name)
