"""The part of the service interface that is about the outbox: its lanes, and what waits in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.contracts.service_values import OutboundEffect
    from agentq.core.access import Principal


class Lanes(Protocol):
    """Which effects are stored, and how they are taken out and settled."""

    def lanes(self, who: Principal) -> frozenset[str]:
        """Return the lanes whose effects are stored until somebody carries them out."""

    def open_lanes(self, who: Principal, lanes: Sequence[str]) -> None: ...

    def carry_lanes(self, who: Principal, domain: str, names: Sequence[str]) -> bool:
        """Store effects of this domain for these carriers, each in its own lane `DOMAIN:NAME`, and
        for no others: lanes of theirs are closed, and what waits there is dropped. Whether that
        changes anything."""

    def outbox_batch(
        self, who: Principal, lane: str, count: int, *, evidence: bool = False
    ) -> list[OutboundEffect]:
        """Return the oldest effects of a lane that are due, hidden from nobody; with `evidence`
        also what is recorded of their tasks' files. One that is about no task has a task without
        an id, of the role that it is about."""

    def settle_outbox(
        self,
        who: Principal,
        done: Sequence[OutboundEffect],
        failed: Sequence[OutboundEffect] = (),
        until_ms: int = 0,
    ) -> None:
        """Forget what was carried out; what was not comes again, later each time, or at that
        moment if there is one."""
