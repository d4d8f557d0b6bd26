"""The questions of the service interface about an installation as a whole, and who works for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.core.access import Action, Principal
from agentq.ledger.service_queries import QueryService

if TYPE_CHECKING:
    from agentq.contracts import overview_values as o
    from agentq.contracts import service_values as v
    from agentq.contracts.proof_values import Seal
    from agentq.contracts.store import Reader


class OverviewService(QueryService):
    """Answers what is going on here, and takes what workers say of themselves."""

    def overview(self, who: Principal) -> o.Overview:
        self._check(who, Action.READ, "the installation as a whole")
        self._decide_deferred()
        return self._queries.overview()

    def approvals(
        self,
        who: Principal,
        role: str = "",
        asked_of: str = "",
        limit: int = 50,
        *,
        with_reviewers: bool = False,
    ) -> o.AwaitedDecisions:
        self._check(who, Action.READ, "what waits for people")
        self._decide_deferred()
        return self._queries.approvals(role, asked_of, limit, with_reviewers=with_reviewers)

    def last_seal(self, who: Principal, *, signed: bool = False) -> Seal | None:
        from agentq.ledger.sealing import last_seal, last_signed, seal_of

        def look(reader: Reader) -> Seal | None:
            row = last_signed(reader) if signed else last_seal(reader)
            return None if row is None else seal_of(reader, row)

        self._check(who, Action.READ, "the seals")
        return self._store.read(look)

    def workers(self, who: Principal) -> list[o.WorkerInfo]:
        self._check(who, Action.READ, "who works here")
        return self._queries.workers()

    def key_limits(self, who: Principal, keys: Sequence[str] = ()) -> dict[str, v.KeyStanding]:
        self._check(who, Action.READ, "the limits of resources")
        return self._queries.key_limits(keys)

    def report_worker(
        self, who: Principal, holder: str, report: o.WorkerReport, lease_ms: int
    ) -> None:
        from agentq.ledger.presence import report_worker

        # Whoever may claim for a role may say that it does.
        for role in (report.role, *(each.role for each in report.also)):
            self._check(who, Action.CLAIM, role=role)
        report_worker(self._store, holder, report, lease_ms)
