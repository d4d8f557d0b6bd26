"""The questions of the service interface that are answered by many logs at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.core.access import ALL, Action, Principal, allowed
from agentq.ledger.service_overview import OverviewService

if TYPE_CHECKING:
    from agentq.contracts import number_values as n
    from agentq.contracts import service_values as v


class StatisticsService(OverviewService):
    """Answers where time and money went, and how good the work was."""

    def overhead(self, who: Principal, ids: Sequence[str], *, below: bool = False) -> v.Overhead:
        self.tasks_by_id(who, ids)  # whoever may not read one of them is refused
        measuring = self._queries.measuring()
        sees_all = allowed(who, Action.READ) is ALL
        # Who reviewed the work of an attempt is not the attempt's business.
        chosen = measuring.named(ids, below=below, reviews=sees_all)
        if not sees_all:
            for task in chosen.tasks():
                self._check_task(who, Action.READ, task)
        return measuring.overhead(chosen, self.now())

    def recent_overhead(self, who: Principal, since_ms: int = 0, role: str = "") -> v.Overhead:
        self._check(who, Action.READ, "what all tasks were doing")
        self._decide_deferred()
        measuring = self._queries.measuring()
        return measuring.overhead(measuring.recent(since_ms, role), self.now())

    def quality(self, who: Principal, since_ms: int = 0, role: str = "") -> v.Quality:
        self._check(who, Action.READ, "how all tasks were judged")
        self._decide_deferred()
        measuring = self._queries.measuring()
        return measuring.quality(measuring.recent(since_ms, role))

    def numbers(self, who: Principal, period: str = "24h", role: str = "") -> n.Numbers:
        self._check(who, Action.READ, "how the work of all roles went")
        self._decide_deferred()
        return self._queries.numbers().numbers(period, role)

    def count_numbers(self, who: Principal) -> bool:
        self._check(who, Action.OPERATE)
        return self._queries.numbers().count()
