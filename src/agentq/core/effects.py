"""Effects: what a decision causes outside its task. They leave through outbox lanes.

An effect with a lane is stored in the same transaction as the change that caused it and carried out
at least once under a stable id. Those without a lane concern other tasks; the ledger carries them
out itself, in that same transaction, so no observer sees a stale in-between.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import ClassVar, TypeAlias

import msgspec

from agentq.core.states import State


class ResolveDependents(msgspec.Struct, frozen=True):
    """This task is over: resolve the tasks that depend on it."""

    lane: ClassVar[str] = ""
    outcome: State


class SpawnNext(msgspec.Struct, frozen=True):
    """This task is complete: submit the tasks it named as next."""

    lane: ClassVar[str] = ""


class RequestReview(msgspec.Struct, frozen=True):
    """The report wants a reviewer: submit the task that judges it."""

    lane: ClassVar[str] = ""


class DeliverVerdict(msgspec.Struct, frozen=True):
    """This task was a review and is over: its result becomes the verdict on what it reviewed."""

    lane: ClassVar[str] = ""


class CancelTasks(msgspec.Struct, frozen=True):
    """These tasks are not wanted any more: a review whose report was decided without it."""

    lane: ClassVar[str] = ""
    tasks: tuple[str, ...]
    by: str
    reason: str


class CancelDescendants(msgspec.Struct, frozen=True):
    """This task was cancelled with its tree: cancel all that descend from it."""

    lane: ClassVar[str] = ""
    by: str
    reason: str


class Announce(msgspec.Struct, frozen=True):
    """The task is claimable now: wake a worker of its role."""

    lane: ClassVar[str] = "delivery"
    role: str


class StopHolder(msgspec.Struct, frozen=True):
    """Tell the holder of this attempt to stop its agent."""

    lane: ClassVar[str] = "delivery"
    holder: str
    epoch: int


class PublishResult(msgspec.Struct, frozen=True):
    """Publish the accepted result of this attempt, once."""

    lane: ClassVar[str] = "results"
    epoch: int
    name: str
    sha256: str


class Reply(msgspec.Struct, frozen=True):
    """Send the outcome to the coordinator that asked for it."""

    lane: ClassVar[str] = "reply"
    reply_to: str
    status: str
    summary: str = ""


class Notify(msgspec.Struct, frozen=True):
    """Somebody should look: an approval is wanted, a task is blocked, a budget runs out."""

    lane: ClassVar[str] = "notify"
    kind: str
    text: str = ""


class MoveCard(msgspec.Struct, frozen=True):
    """The task was made from a card of a board, and is in another state now: the card follows."""

    lane: ClassVar[str] = "kanban"
    card: str
    state: State


class OfferWork(msgspec.Struct, frozen=True):
    """The task is complete: its work may become a pull request."""

    lane: ClassVar[str] = "git"
    epoch: int


Effect: TypeAlias = (
    ResolveDependents
    | SpawnNext
    | RequestReview
    | DeliverVerdict
    | CancelTasks
    | CancelDescendants
    | Announce
    | StopHolder
    | PublishResult
    | Reply
    | Notify
    | MoveCard
    | OfferWork
)

#: The label by which a task says which card of a board it was made from, as `BOARD:CARD`.
CARD_LABEL = "card"

#: Lanes that something carries out already. Effects of a lane that nobody opened are not stored.
#: A lane `DOMAIN:NAME` takes a copy of each effect of its domain, for one who carries them out by
#: themselves: whoever is slow there delays nobody else.
LANES = ("delivery", "results", "reply", "notify", "kanban", "git", "webhook")
_LANE = re.compile(r"([a-z]+)(:[A-Za-z0-9][A-Za-z0-9_.-]{0,63})?", re.ASCII)


def is_lane(lane: str) -> bool:
    """Whether this names a lane, or the lane of one carrier in a domain: `notify:ops`."""
    found = _LANE.fullmatch(lane)
    return found is not None and found[1] in LANES


@lru_cache(maxsize=16)
def lanes_of(domain: str, lanes: frozenset[str]) -> tuple[str, ...]:
    """Those of the open lanes that take the effects of this domain."""
    return tuple(sorted(each for each in lanes if each.partition(":")[0] == domain))
