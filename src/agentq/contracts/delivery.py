"""The delivery contract: how workers on other machines learn that a task is ready.

A message is a hint: it says "look", and the ledger says who holds the task. So a lost message costs
delay and never work, a message that comes twice is refused by the ledger, and nothing here has to
be kept: purge it all and it is said again (see `daemon.loops.reconcile`).

`Publisher` carries effects of the outbox out, `Inbox` brings hints to one worker. An inbox over a
doorbell has one kind of hint, "look at the role"; over a broker each names its task.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.core.errors import AgentqError

#: Exchanges. The routing key of a task is its role, of a control message `stop_key`, of an outcome
#: its `reply_to`, of what foreign workers report their role.
TASKS, CONTROL_PREFIX = "agentq.tasks", "agentq.control."
RESULTS, STATUS = "agentq.results", "agentq.status"
#: Exchange and queue of what nobody could read; and the queue of all that workers report.
DEAD, INGEST = "agentq.dead", "agentq.ingest"
#: The exchange by which the broker itself moves there what a reader refused. Nobody else may write
#: to it, so what came by it is certain to have been where the broker says.
REJECTED = "agentq.rejected"
#: A queue per role, and one per coordinator.
ROLE_PREFIX, RESULTS_PREFIX = "agentq.role.", "results."
#: Where outcomes go of tasks that name no place, unless an attempt submitted them.
DEFAULT_RESULTS = f"{RESULTS_PREFIX}coordinator"

_COORDINATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,199}\Z")
#: What AMQP allows a routing key.
KEY_BYTES_MAX = 255


def role_queue(role: str) -> str:
    """The queue that holds a role's hints."""
    return f"{ROLE_PREFIX}{role}"


def control_exchange(role: str) -> str:
    """The exchange of words for the holders of a role: nobody hears those of another's."""
    return f"{CONTROL_PREFIX}{role}"


def stop_key(holder: str) -> str:
    """The routing key of control messages for this holder."""
    return fitting_key(f"stop.{holder}")


def fitting_key(key: str) -> str:
    """The key itself, or a short one that stands for it alone."""
    data = key.encode()
    if len(data) <= KEY_BYTES_MAX:
        return key
    return f"{data[:150].decode(errors='ignore')}~{hashlib.sha256(data).hexdigest()}"


def is_results_queue(name: str) -> bool:
    """Whether outcomes can be sent there. Nobody is to have them put into other queues."""
    rest = name.removeprefix(RESULTS_PREFIX)
    return rest != name and _COORDINATOR.match(rest) is not None


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish. `id` is stable: an effect published twice has the same id."""

    id: str
    exchange: str
    routing_key: str
    body: bytes
    #: 0 to 9, as the broker counts; the ledger has the last word on order.
    priority: int = 0
    #: The broker drops it after so many milliseconds; 0: never. The ledger expires the task itself.
    expires_ms: int = 0
    #: An unroutable message is an error and not silence.
    mandatory: bool = True
    #: Whether the broker has it after a restart. A hint need not outlive one: the ledger knows what
    #: is ready, and the broker's disk is left to what cannot be published again.
    durable: bool = True
    headers: Mapping[str, str | int] = field(default_factory=dict)
    #: Where its sender waits for an answer.
    reply_to: str = ""
    #: Who sends it. The broker refuses it if that is not the user of the connection, so readers may
    #: believe it. Left out where nobody needs to know.
    user_id: str = ""


class Publisher(Protocol):
    """Carries messages to the broker. Used by one thread at a time."""

    def publish(self, messages: Sequence[Message]) -> list[str]:
        """Send all, many in flight; per message "" once the broker has confirmed it, else why not:
        a place that is missing, locked or forbidden holds up nothing that goes elsewhere.

        Raises `Unavailable` if the broker went away before it answered for all of them: any of them
        may have arrived.
        """

    def depth(self, role: str) -> int:
        """How many hints wait in the queue of a role."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Hint:
    """Something to look at. `task_id` "" means: at the whole role."""

    task_id: str = ""
    #: The receipt that `Inbox.settle` needs; means nothing to others.
    tag: int = 0


class Inbox(Protocol):
    """The hints for one worker. Used by one thread."""

    #: Whether its hints name tasks. If not, whoever has a free slot looks by itself, before it
    #: waits: a ring says that something came, not how much.
    names_tasks: bool

    def take(self, count: int, timeout: float, wake_fd: int = -1) -> list[Hint]:
        """Wait for at least one hint, then take up to `count`; 0 takes none and only waits.

        Nothing after `timeout` seconds, when the file `wake_fd` can be read, or when a control
        message came for a holder (`control_received` is True then). Nothing is prefetched beyond
        `count`: what one worker has no slot for is there for others.
        """

    @property
    def control_received(self) -> bool:
        """Whether a control message asked this holder to check its claims; reading it resets it."""

    @property
    def error(self) -> str:
        """Why no hints come; "" while they do."""

    def settle(self, hints: Sequence[Hint]) -> None:
        """These have been looked at (claimed and committed, or refused): they may be forgotten."""

    def reject(self, hints: Sequence[Hint], reason: str) -> None:
        """These name no task of this ledger: to the dead letters with them, where there are any."""

    def close(self) -> None:
        """Hints that were taken and not settled go to other workers."""


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message nobody could read. `key` names it here; `id` is what its sender called it.

    Workers may write to the dead letters, so where it was read, and why it is here, is no more than
    what its sender says, unless `certain`.
    """

    key: str
    id: str
    #: Its beginning; `size` tells how long all of it is.
    body: bytes
    size: int
    reason: str
    queue: str
    exchange: str
    routing_key: str
    #: Who sent it here, or to the reader who refused it, if the broker vouches for that; else "".
    user: str = ""
    #: Whether the broker, or agentq itself, put it here.
    certain: bool = False
    #: Why it cannot be sent to its reader again; "" if it can.
    stuck: str = ""


class ReceivedMessage(Protocol):
    """A message as the broker handed it over; `tag` is the receipt."""

    @property
    def id(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def tag(self) -> int: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def reply_to(self) -> str:
        """Where the sender waits for an answer."""


class Mailbox(Protocol):
    """The messages for one coordinator, one at a time, each held for as long as it takes. Used by
    one thread."""

    @property
    def problem(self) -> AgentqError | None:
        """Why nothing comes; None while the broker is there. `NotFound`: nobody has sent anything
        yet, and this user may not prepare the queue."""

    def unread(self) -> list[str]:
        """What was put aside since this was last asked, and why."""

    def take(self, timeout: float) -> ReceivedMessage | None:
        """The next as soon as there is one; None after `timeout` seconds at most."""

    def away(self) -> AbstractContextManager[None]:
        """A context for long work, during which heartbeats are sent to the broker."""

    def settle(self, tag: int) -> bool:
        """Acknowledge a message; False if the broker may not know it: it comes again then."""

    def put_aside(self, message: ReceivedMessage, reason: str) -> None:
        """Nobody can read this: to the dead letters with it. It stays where that cannot be, and
        `problem` says why."""

    def close(self) -> None:
        """What was not settled comes again, to whoever takes next."""


class Consumer(Protocol):
    """Messages of one queue. Used by one thread."""

    @property
    def error(self) -> str:
        """Why there is no broker; "" if there is one."""

    @property
    def too_long(self) -> Sequence[tuple[ReceivedMessage, int]]:
        """What the last `take` met that is too long to be read, without its body, and how long."""

    def take(self, count: int, timeout: float, wake_fd: int = -1) -> Sequence[ReceivedMessage]:
        """Up to `count` as soon as there are any; none after `timeout` seconds, or when the file
        `wake_fd` can be read."""

    def ack(self, tags: Iterable[int]) -> None:
        """Acknowledge these messages: they are done with."""

    def reject(self, tag: int, reason: str) -> None:
        """Nobody can read this: to the dead letters with it."""

    def close(self) -> None:
        """What was not acknowledged comes again, to whoever takes next."""
