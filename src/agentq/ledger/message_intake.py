"""What the ledger does around a message: the answer to one that comes again, and its files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentq.contracts.inbound_messages import (
    REFUSALS,
    Letter,
    Outcome,
    Verdict,
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
    from agentq.ledger.queries import Views


def again(letter: Letter, earlier: DedupRow, task: Task) -> Verdict:
    """The message was taken before: the same answer, unless that would mislead."""
    digest, epoch_text, code = earlier.digest.split(":", 2)
    epoch, said = int(epoch_text), letter.said
    if digest != letter.digest:
        return refused(
            letter,
            Conflict(
                f"The message id {said.id} of {said.sender} stands for another message already."
                " Nothing was recorded.",
                "Give each message an id of its own.",
            ),
        )
    if code:
        refusal: AgentqError = Refused(
            "This message was refused when it came first.", "Do not send it again.", code=code
        )
        return replace(refused(letter, refusal), outcome=Outcome.DUPLICATE)
    if said.status is Status.STARTED and not is_under_way(task, said.sender, epoch):
        lost = stale(task, epoch)
        return replace(refused(letter, lost), outcome=Outcome.DUPLICATE)
    verdict = accepted(letter, epoch, task)
    return replace(verdict, outcome=Outcome.DUPLICATE, reason="it was taken before")


# -- files that come with a message ----------------------------------------------------------------


def store_files(artifacts: ArtifactStore | None, letter: Letter, epoch: int) -> None:
    """Store what came with a message of an attempt that holds its task: outside any transaction,
    and the next one decides again who holds what.

    Raises `Unavailable` if the store cannot serve; then it may be tried again.
    """
    letter.epoch, letter.files = epoch, ()
    try:
        _store(artifacts, letter)
    except REFUSALS as error:
        letter.trouble = error
    letter.brought = True


def _store(artifacts: ArtifactStore | None, letter: Letter) -> None:
    if artifacts is None:
        raise Refused("There is no place for files here. Nothing was recorded.", "Send none.")
    task_id, epoch = letter.said.task_id, letter.epoch
    for file in letter.all_files:
        if file.content is not None:
            stored = artifacts.put(task_id, epoch, file.name, file.content.encode())
            if stored.name not in letter.stored:
                letter.stored += (stored.name,)
            size, sha256 = stored.size, stored.sha256
            media_type = stored.media_type
        else:
            _check_stored(artifacts, letter, file)
            size, sha256 = file.size, file.sha256
            media_type = file.media_type or "application/octet-stream"
        letter.files += (AddArtifact(epoch, file.name, size, sha256, media_type),)


def _check_stored(artifacts: ArtifactStore, letter: Letter, file: File) -> None:
    """See that a file is there which the program has stored by itself."""

    def wrong() -> str | None:
        return artifacts.check(
            letter.said.task_id, letter.epoch, file.name, file.sha256, file.size
        )  # fmt: skip

    if wrong():
        # A store that is away says so of every file. Nobody loses a report by that: `probe` raises.
        artifacts.probe()
        if found := wrong():
            raise Refused(f"{found} The report was not accepted.", "Store it and report again.")


def discard_unrecorded(views: Views, artifacts: ArtifactStore, letter: Letter) -> None:
    """Remove what was stored for a message that was refused."""
    task_id, epoch = letter.said.task_id, letter.epoch
    try:
        key, _ = views.find(task_id)
    except NotFound:
        return  # its files went with it
    recorded = {(row.epoch, row.name) for row in views.artifacts(key)}
    for name in letter.stored:
        if (epoch, name) not in recorded:
            artifacts.discard(task_id, epoch, name)
