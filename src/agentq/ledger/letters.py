"""A message on its way into the ledger: the files it brings, and the verdict on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from agentq.core.errors import AgentqError, Conflict, Damaged, Invalid, NotFound, Refused
from agentq.core.messages import File, Said, Status, answer_envelope, encode
from agentq.core.states import State
from agentq.core.steps import stale
from agentq.core.task import Task
from agentq.core.triggers import AddArtifact

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.store import DedupRow
    from agentq.ledger.ledger import Ledger

RESULT_NAME = "result.md"
#: Answers go to whoever asked, and never into a queue of agentq's own.
_OWN_QUEUES = "agentq."
_ADDRESS_BYTES_MAX = 255

#: What a message may be refused for. Anything else (a database that is away) is nobody's answer.
REFUSALS = (Invalid, Refused, NotFound, Conflict, Damaged)
Refusal: TypeAlias = Invalid | Refused | NotFound | Conflict | Damaged


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message as the broker hands it over. `id` and `reply_to` are its properties, perhaps empty;
    `routing_key` is the role that its sender may speak for, as the broker has checked."""

    id: str
    body: bytes
    reply_to: str
    routing_key: str


class Outcome(StrEnum):
    """What became of a message. All but unreadable ones are done with and may be acknowledged."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome; why, if it was not accepted; and the envelope to send to its `reply_to`, if it
    has one that is answered."""

    outcome: Outcome
    reason: str = ""
    answer: bytes = b""


@dataclass(slots=True)
class Letter:
    """A message that could be read, with the files it brought."""

    incoming: Incoming
    said: Said
    digest: str
    #: Stored under this epoch, and not recorded yet.
    files: tuple[AddArtifact, ...] = ()
    #: Why its files could not be taken.
    trouble: Refusal | None = None
    #: Names among `files` that were stored for this message.
    stored: tuple[str, ...] = ()
    #: Whether its files were taken, or found to be trouble.
    brought: bool = False

    @property
    def brings(self) -> bool:
        return bool(self.said.result or self.said.artifacts)

    @property
    def name(self) -> str:
        """Under which it is remembered: ids of different senders are different ids."""
        return f"message:{self.said.sender}:{self.said.id}"

    @property
    def result(self) -> AddArtifact | None:
        wanted = RESULT_NAME if self.said.result else self.said.result_ref
        return next((each for each in self.files if each.name == wanted), None) if wanted else None


# -- verdicts --------------------------------------------------------------------------------------


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


def is_under_way(task: Task, sender: str, epoch: int) -> bool:
    return task.state is State.IN_PROGRESS and (task.holder, task.epoch) == (sender, epoch)


def accepted(letter: Letter, epoch: int, task: Task) -> Verdict:
    said = letter.said
    renews = said.status in (Status.STARTED, Status.HEARTBEAT, Status.PROGRESS)
    answer = answer_envelope(
        said,
        epoch,
        lease_seconds=(said.lease_seconds or task.spec.lease_seconds) if renews else 0,
        task=task if said.status is Status.STARTED else None,
    )
    return Verdict(Outcome.ACCEPTED, "", _addressed(letter, answer))


def refused(letter: Letter, refusal: AgentqError) -> Verdict:
    # With the epoch that it said: nobody learns the fence of others from a refusal.
    answer = answer_envelope(letter.said, letter.said.epoch, refusal=refusal)
    return Verdict(Outcome.REFUSED, str(refusal), _addressed(letter, answer))


def _addressed(letter: Letter, answer: dict[str, object]) -> bytes:
    to = letter.incoming.reply_to
    if not to or to.startswith(_OWN_QUEUES) or len(to.encode()) > _ADDRESS_BYTES_MAX:
        return b""
    return encode(answer)


def wrong_role(task: Task, letter: Letter) -> Refused:
    return Refused(
        f"{task.id} is for {task.to}, and this message came by {letter.incoming.routing_key!r}."
        " Nothing was recorded.",
        "Publish with the task's role (its `to`) as the routing key.",
    )


def taken(name: str, epoch: int) -> Conflict:
    return Conflict(
        f"There is a {name} of attempt {epoch} already, with other content. Nothing was recorded.",
        "Evidence is never overwritten: choose another name.",
    )


# -- files that come with a message ----------------------------------------------------------------


def bring_files(ledger: Ledger, artifacts: ArtifactStore | None, letters: Sequence[Letter]) -> None:
    """Store what came with messages of attempts that hold their tasks: outside the transaction,
    which decides again who holds what."""
    bringing = [letter for letter in letters if letter.brings and not letter.brought]
    if not bringing:
        return
    tasks = ledger.views.by_id(sorted({letter.said.task_id for letter in bringing}))
    for letter in bringing:
        task = tasks.get(letter.said.task_id)
        if task is None or letter.incoming.routing_key != task.to:
            continue
        epoch = letter.said.epoch or task.epoch
        if not is_under_way(task, letter.said.sender, epoch):
            continue
        letter.brought = True
        try:
            _bring(artifacts, letter, epoch)
        except REFUSALS as error:
            letter.trouble = error


def _bring(artifacts: ArtifactStore | None, letter: Letter, epoch: int) -> None:
    if artifacts is None:
        raise Refused("There is no place for files here. Nothing was recorded.", "Send none.")
    said = letter.said
    files = said.artifacts
    if said.result:
        files = (*files, File(RESULT_NAME, said.result))
    for file in files:
        if file.content is not None:
            stored = artifacts.put(said.task_id, epoch, file.name, file.content.encode())
            letter.stored += (stored.name,)
            size, sha256 = stored.size, stored.sha256
            media_type = stored.media_type
        else:
            wrong = artifacts.check(said.task_id, epoch, file.name, file.sha256, file.size)
            if wrong:
                raise Refused(f"{wrong} The report was not accepted.", "Store it and report again.")
            size, sha256 = file.size, file.sha256
            media_type = file.media_type or "application/octet-stream"
        letter.files += (AddArtifact(epoch, file.name, size, sha256, media_type),)


def discard_unrecorded(ledger: Ledger, artifacts: ArtifactStore, letter: Letter) -> None:
    key, _ = ledger.views.find(letter.said.task_id)
    recorded = {(row.epoch, row.name) for row in ledger.views.artifacts(key)}
    for file in letter.files:
        if file.name in letter.stored and (file.epoch, file.name) not in recorded:
            artifacts.discard(letter.said.task_id, file.epoch, file.name)
