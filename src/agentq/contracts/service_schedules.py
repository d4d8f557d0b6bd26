"""The part of the service interface about schedules: what occurs when, and that it does so once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.contracts import schedule_values as s
    from agentq.core.access import Principal


class Schedules(Protocol):
    """How schedules stand, what people say about them, and what their loop does with them."""

    def schedules(self, who: Principal) -> list[s.ScheduleState]:
        """Return how every schedule stands, by name."""

    def change_schedule(
        self, who: Principal, name: str, change: s.ScheduleChange, asked_at: int = 0
    ) -> s.ScheduleState:
        """Pause a schedule, resume it, or have it run once now, whether it is paused or not.

        `asked_at` is the moment of such a request, by the ledger's clock: the same request again
        does not make it run again. 0 stands for now.

        What occurs while it is paused is missed: how that is made up for is for its file to say.
        """

    def waking_schedules(self, who: Principal, limit: int = 100) -> list[s.ScheduleState]:
        """Return those that must be looked at first, due or not: the first says when."""

    def declare_schedules(
        self, who: Principal, declared: Sequence[s.DeclaredSchedule], dropped: Sequence[str] = ()
    ) -> int:
        """Take note of schedules as their files are now, and of files that are gone; how many
        changed. One whose rule is as it was keeps its next occurrence."""

    def fire_schedule(
        self,
        who: Principal,
        firing: s.ScheduleFiring,
        contexts: Mapping[str, bytes] | None = None,
    ) -> s.FiredSchedule:
        """Carry out what is due, in one transaction: submit the tasks of its occurrences, skip what
        overlaps, and wait for the next. Refused before its time by the ledger's clock; done once,
        however many try."""
