"""How processes wake each other. A ring is a hint: a lost one costs delay, never work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

#: Whoever listens for this hears every ring.
ALL_TOPICS = "*"


class Waiter(Protocol):
    """One process that waits. Opened before it looks, so that no ring falls between."""

    def wait(self, timeout: float, wake_fd: int = -1) -> bool:
        """Sleep until a ring, the timeout (seconds), or until the file `wake_fd` can be read.

        True if somebody rang.
        """

    def rung(self) -> frozenset[str]:
        """The topics that were rung for in the last wait; `ALL_TOPICS` where it is not known."""

    def close(self) -> None: ...


class Doorbell(Protocol):
    """Rings reach every waiter that listens for one of the topics."""

    def ring(self, topics: Iterable[str]) -> None: ...
    def listen(self, topics: Iterable[str]) -> Waiter: ...
    def close(self) -> None: ...


def role_topic(role: str) -> str:
    """A task of this role can be claimed."""
    return f"role:{role}"


def holder_topic(holder: str) -> str:
    """This holder should look whether it still holds what it holds."""
    return f"holder:{holder}"


def lane_topic(lane: str) -> str:
    """Effects were stored in this lane of the outbox."""
    return f"lane:{lane}"


#: Something was appended to the log.
EVENTS_TOPIC = "events"

#: Tasks that were ready and had to wait (for capacity, for a resource, for a budget) may
#: be claimable now. Their role's topic is rung as well; this is for whoever minds all roles.
ROOM_TOPIC = "room"

#: Submissions that came in their submitters' own transactions wait to be decided. The topics of
#: their roles are rung as well; this is for whoever minds all roles.
SUBMISSIONS_TOPIC = "submissions"

#: Somebody has changed a schedule: paused it, resumed it, or asked to run it now.
SCHEDULES_TOPIC = "schedules"

#: Leader leases were given up: whoever waits for one need not wait until it ends.
TERMS_TOPIC = "terms"

#: A delivery came for a hook, or one is to be looked at again.
HOOKS_TOPIC = "hooks"

#: A target of webhooks is to be told again.
TARGETS_TOPIC = "targets"
