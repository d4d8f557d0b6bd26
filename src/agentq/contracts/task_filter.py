"""Which tasks a store lists, and in which order."""

from enum import StrEnum

import msgspec


class Order(StrEnum):
    """In which order tasks are listed, and so what a page goes on after."""

    NEWEST = "newest"
    OLDEST = "oldest"
    #: Of one role and one state that is not over; without a state, of what is ready.
    URGENT = "urgent"
    #: Pending tasks that need an approval, given or not, and tasks with mentions; the oldest first.
    APPROVAL = "approval"
    MENTIONED = "mentioned"
    #: Failed and expired ones, the newest first.
    DEAD = "dead"


class Filter(msgspec.Struct, frozen=True):
    """Which tasks to list. Empty fields do not restrict.

    A page goes on after `key` (and, in order of urgency, after `priority`); 0 and -1 begin at the
    beginning. `refers`: only tasks whose spec names a parent or what comes next.
    """

    states: tuple[int, ...] = ()
    role: int = 0
    sender: str = ""
    type: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    updated_before: int = 0
    refers: bool = False
    order: Order = Order.NEWEST
    key: int = 0
    priority: int = -1
    limit: int = 100
