"""The verbs of the service interface that are about the outbox: its lanes, and what waits there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.core.access import Action, Principal
from agentq.ledger.outbox import Outbox
from agentq.ledger.service_notes import NoteService

if TYPE_CHECKING:
    from agentq.contracts.service_values import OutboundEffect


class LaneService(NoteService):
    """Opens lanes, and hands out what waits in them."""

    def lanes(self, who: Principal) -> frozenset[str]:
        self._check(who, Action.READ, "the lanes of the outbox")
        # Not in a transaction, which goes by what this process knows until it writes something:
        # another one may have opened or closed some.
        return self._store.read(lambda reader: reader.lanes())

    def open_lanes(self, who: Principal, lanes: Sequence[str]) -> None:
        self._check(who, Action.OPERATE)
        audit = self._decision(who, Action.OPERATE, "", f"opened lanes: {', '.join(lanes)}")
        self._ledger.open_lanes(*lanes, audit=audit)

    def carry_lanes(self, who: Principal, domain: str, names: Sequence[str]) -> bool:
        self._check(who, Action.OPERATE)
        said = f"carriers of {domain}: {', '.join(names) or 'none'}"
        audit = self._decision(who, Action.OPERATE, "", said)
        return Outbox(self._store).carry(domain, names, audit)

    def outbox_batch(
        self, who: Principal, lane: str, count: int, *, evidence: bool = False
    ) -> list[OutboundEffect]:
        self._check(who, Action.OPERATE)
        return Outbox(self._store).batch(lane, count, evidence=evidence)

    def settle_outbox(
        self,
        who: Principal,
        done: Sequence[OutboundEffect],
        failed: Sequence[OutboundEffect] = (),
        until_ms: int = 0,
    ) -> None:
        self._check(who, Action.OPERATE)
        Outbox(self._store).settle(done, failed, until_ms)
