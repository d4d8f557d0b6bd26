"""How the word that a task is ready reaches workers on other machines.

A message is a hint: it says "look", and the ledger says who holds the task. So a lost message costs
delay and never work, a message that comes twice is refused by the ledger, and nothing here has to
be kept: purge it all and it is said again (see `daemon.loops.reconcile`).

`Publisher` carries effects of the outbox out, `Inbox` brings hints to one worker. An inbox over a
doorbell has one kind of hint, "look at the role"; over a broker each names its task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """What leaves. `id` is stable: the same effect said twice has the same id both times."""

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
    headers: Mapping[str, str | int] = field(default_factory=dict)


class Publisher(Protocol):
    """Carries messages to the broker. Used by one thread at a time."""

    def publish(self, messages: Sequence[Message]) -> list[str]:
        """Send all, many in flight; per message "" once the broker has confirmed it, else why not.

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

    def take(self, count: int, timeout: float, also: int = -1) -> list[Hint]:
        """Wait for at least one hint, then take up to `count`; 0 takes none and only waits.

        Nothing after `timeout` seconds, when the file `also` can be read, or when somebody rang
        about a holder (`stirred` is True then). While nothing is asked for nothing is prefetched
        beyond `count`: what one worker has no slot for is there for others.
        """

    @property
    def stirred(self) -> bool:
        """Whether somebody wants this holder to look at what it holds; False again once read."""

    def settle(self, hints: Sequence[Hint]) -> None:
        """These have been looked at (claimed and committed, or refused): they may be forgotten."""

    def close(self) -> None:
        """Hints that were taken and not settled go to other workers."""
