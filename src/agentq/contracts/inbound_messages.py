"""Inbound messages of foreign workers, and what becomes of each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from agentq.core.errors import (
    AgentqError,
    Conflict,
    Damaged,
    Invalid,
    NotFound,
    Refused,
    Unavailable,
)
from agentq.core.spec_types import is_readable
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.triggers import AddArtifact
from agentq.protocol.messages import (
    ENDINGS,
    File,
    Status,
    WorkerMessage,
    answer_envelope,
    encode,
    read_message,
    unread_envelope,
)

if TYPE_CHECKING:
    from agentq.contracts.service_values import AttemptLease

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


class IntakeStatus(StrEnum):
    """What became of a message. Those that were accepted, refused or known already are done with
    and may be acknowledged. One that waits brings files that are not stored yet, or comes after
    such a one: nothing was decided, and it must be given to the ledger again."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"
    UNREADABLE = "unreadable"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class IntakeResult:
    """The outcome; why, if it was not accepted; and the envelope to send to its `reply_to`, if it
    has one that is answered. Of one that waits for its files: what keeps its attempt alive."""

    outcome: IntakeStatus
    reason: str = ""
    answer: bytes = b""
    lease: AttemptLease | None = None


#: Task, sender and role of a message. Messages of one key are applied in order. The role is
#: the one thing of these that the broker has checked: others may claim to be anybody.
AttemptKey: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class InboundMessage:
    """A message that could be read, with the files it brought."""

    incoming: Incoming
    message: WorkerMessage
    digest: str
    #: Under which attempt its files are stored; 0 before.
    epoch: int = 0
    #: Stored under this epoch, and not recorded yet.
    files: tuple[AddArtifact, ...] = ()
    #: Why its files could not be taken.
    refusal: Refusal | None = None
    #: Names of files that were stored for this message, be it in vain.
    stored: tuple[str, ...] = ()
    #: Whether its files were taken or refused.
    brought: bool = False

    @property
    def brings(self) -> bool:
        return (
            bool(self.message.result or self.message.artifacts) and self.message.status in ENDINGS
        )

    @property
    def name(self) -> str:
        """Under which it is remembered: ids of different senders are different ids. Neither can
        hold a space."""
        return f"message:{self.message.sender} {self.message.id}"

    @property
    def attempt(self) -> AttemptKey:
        return self.message.task_id, self.message.sender, self.incoming.routing_key

    @property
    def keeps_order(self) -> bool:
        """Whether it must not overtake what its sender said before. A sign of life may."""
        return self.message.status is not Status.HEARTBEAT

    @property
    def may_overtake(self) -> bool:
        """Whether it is heard out of order where it cannot wait: who goes on working and is refused
        would have to stop."""
        return self.message.status in (Status.HEARTBEAT, Status.PROGRESS)

    @property
    def all_files(self) -> tuple[File, ...]:
        result = (File(RESULT_NAME, self.message.result),) if self.message.result else ()
        return (*self.message.artifacts, *result)

    @property
    def digests(self) -> dict[str, str]:
        """Name and digest of every file of the message, stored or not."""
        return {
            file.name: (
                file.sha256
                if file.content is None
                else hashlib.sha256(file.content.encode()).hexdigest()
            )
            for file in self.all_files
        }

    @property
    def result(self) -> tuple[str, str]:
        """Name and digest of the file that is the result; empty if there is none."""
        wanted = RESULT_NAME if self.message.result else self.message.result_ref
        return (wanted, self.digests[wanted]) if wanted else ("", "")


def opened(incoming: Incoming) -> InboundMessage | IntakeResult:
    """Return the message in these bytes, or the result of one that cannot be read."""
    try:
        message = read_message(incoming.body, incoming.id)
    except Invalid as error:
        # The sender of a message that is too long can do better, and waits for an answer.
        if error.code == "too_large":
            return unread(incoming, error)
        return IntakeResult(IntakeStatus.UNREADABLE, str(error))
    except RecursionError:
        return IntakeResult(IntakeStatus.UNREADABLE, "It nests too deeply to be read.")
    return InboundMessage(incoming, message, hashlib.sha256(incoming.body).hexdigest())


def unread(incoming: Incoming, refusal: Invalid) -> IntakeResult:
    """The result of a message that cannot be read, with the reason for its sender."""
    answer = unread_envelope(incoming.body, incoming.id, refusal)
    return IntakeResult(IntakeStatus.UNREADABLE, str(refusal), _addressed(incoming, answer))


def is_under_way(task: Task, sender: str, epoch: int) -> bool:
    return task.state is State.IN_PROGRESS and (task.holder, task.epoch) == (sender, epoch)


def needs_discarding(inbound: InboundMessage, verdict: IntakeResult) -> bool:
    """Whether files were stored for it in vain; others may have recorded the same, meanwhile."""
    return bool(inbound.stored) and verdict.outcome is not IntakeStatus.ACCEPTED


def accepted(inbound: InboundMessage, epoch: int, task: Task) -> IntakeResult:
    message = inbound.message
    renews = message.status in (Status.STARTED, Status.HEARTBEAT, Status.PROGRESS)
    answer = answer_envelope(
        message,
        epoch,
        lease_seconds=(message.lease_seconds or task.spec.lease_seconds) if renews else 0,
        task=task if message.status is Status.STARTED else None,
    )
    return IntakeResult(IntakeStatus.ACCEPTED, "", _addressed(inbound.incoming, answer))


def refused(inbound: InboundMessage, refusal: AgentqError) -> IntakeResult:
    # With the epoch that it said: nobody learns the fence of others from a refusal.
    answer = answer_envelope(inbound.message, inbound.message.epoch, refusal=refusal)
    return IntakeResult(IntakeStatus.REFUSED, str(refusal), _addressed(inbound.incoming, answer))


def crowded(inbound: InboundMessage) -> IntakeResult:
    """The result of a message that would have to wait while too many wait already."""
    refusal = Unavailable(
        "Files cannot be stored at the moment, and too many messages wait for that already."
        " Nothing was recorded.",
        "Keep the task by heartbeats, and send the same message again in a minute.",
    )
    return refused(inbound, refusal)


def _addressed(incoming: Incoming, answer: dict[str, object]) -> bytes:
    to = incoming.reply_to
    if not to or to.startswith(_OWN_QUEUES) or not is_readable(to):
        return b""
    if len(to.encode()) > _ADDRESS_BYTES_MAX:
        return b""
    return encode(answer)


def wrong_role(task: Task, inbound: InboundMessage) -> Refused:
    return Refused(
        f"{task.id} is for {task.to}, and this message came by {inbound.incoming.routing_key!r}."
        " Nothing was recorded.",
        "Publish with the task's role (its `to`) as the routing key.",
    )


def taken(name: str, epoch: int) -> Conflict:
    return Conflict(
        f"There is a {name} of attempt {epoch} already, with other content. Nothing was recorded.",
        "Evidence is never overwritten: choose another name.",
    )
