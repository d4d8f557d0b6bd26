"""The part of the service interface by which tasks wait: yields, signals and holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.core.access import Principal
    from agentq.core.task import Task


class Waits(Protocol):
    """What lets an attempt leave and go on later, and what lets a task go on."""

    def yield_attempt(
        self,
        who: Principal,
        task_id: str,
        epoch: int,
        wait: str = "all",
        note: str = "",
        signals: Sequence[str] = (),
    ) -> Task:
        """Leave the slot until `all` of the attempt's children are over, or `any`, and until these
        signals have come. The next attempt goes on from there; it finds the note, what the signals
        brought, and the children's results. It costs no attempt."""

    def signal(self, who: Principal, ref: str, name: str, data: str = "") -> Task:
        """Send a signal to a task, with JSON if there is more to say. It is kept until the task, or
        an attempt that has yielded, waits for one of this name; each lets one wait go on."""

    def hold(self, who: Principal, ref: str, reason: str = "", *, if_version: int = 0) -> Task:
        """Keep a waiting task from starting until it is dispatched. Of one that is held already
        nothing changes. A coordinator holds what it has submitted itself."""

    def dispatch(self, who: Principal, ref: str, *, if_version: int = 0) -> Task:
        """End the hold of a task, and its delay: it can be claimed as soon as nothing else keeps
        it. One that has neither stays as it is. What a person holds, only a person dispatches."""
