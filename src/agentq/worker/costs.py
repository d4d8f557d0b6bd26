"""What an attempt spends: recorded in the ledger now and then, and at once when a budget nears.

The ledger knows the task's own budget, its tree's and its role's, and says when one is used up. A
role's default budget, for tasks that bring none, is kept here. Then the agent is stopped, and what
it has so far is handed in before the task is blocked: the cost comes with the report. Work that is
done when its cost becomes known is reported as done: asking for it again would cost that once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentq.core.errors import Refused
from agentq.core.limits import overspent
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Usage
from agentq.core.values import replace

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.contracts.agent import Spent
    from agentq.core.prices import TokenPrice

#: Seconds between two reports of costs to the ledger.
EVERY_SECONDS = 10.0


def priced(spent: Spent, price: TokenPrice | None) -> Usage:
    """The cost with an estimate of the money, where the tool names none and its price is known."""
    if price is None or spent.counts is None or spent.cost.usd:
        return spent.cost
    usd = price.of(spent.counts)
    return replace(spent.cost, usd=usd, estimated_usd=usd)


class BudgetTracker:
    """Adds up the costs of one attempt and reports when its budget is used up."""

    def __init__(self, claim: Claim, default: Usage, over: Callable[[str], None]) -> None:
        self._claim = claim
        self._default = default if claim.task.spec.budget == NO_USAGE else NO_USAGE
        self._over = over
        self._reported_at = time.monotonic()
        #: Whether the agent was told to stop: what it still spends comes with the report.
        self._is_over = False
        self.spent = NO_USAGE
        #: Costs that were not reported to the ledger yet; the final report carries them.
        self.unreported = NO_USAGE
        #: Whether the ledger has blocked the task: there is nothing left to report then.
        self.blocked = False

    def add(self, cost: Usage, *, is_done: bool = False) -> None:
        """Add a cost, of an agent that is done if so: it is not stopped for that any more. Only
        from the attempt's own thread."""
        if cost == NO_USAGE:
            return
        self.spent = self.spent.plus(cost)
        self.unreported = self.unreported.plus(cost)
        if self._is_over:
            return
        task = self._claim.task
        total = task.details.spent.plus(self.spent)
        words = overspent(self._default, task.details.extra_budget, total)
        if words and not is_done:
            self._stop(f"the role's budget is used up: {words}")
        elif time.monotonic() - self._reported_at >= EVERY_SECONDS or overspent(
            task.spec.budget, task.details.extra_budget, total, share=0.8
        ):
            try:
                self.report(unless_used_up=True)
            except Refused as refusal:
                if refusal.code != "budget":
                    raise
                if not is_done:
                    self._stop("its budget is used up")

    def _stop(self, reason: str) -> None:
        self._is_over = True
        self._over(reason)

    def seconds_left(self) -> float:
        """What is left of a budget of time; 0 if there is none."""
        task = self._claim.task
        allowed = task.spec.budget.seconds or self._default.seconds
        if allowed:
            allowed += task.details.extra_budget.seconds
        return max(allowed - task.details.spent.seconds, 1.0) if allowed else 0.0

    def report(self, *, unless_used_up: bool = False) -> None:
        """Record what was spent since the last time; what is refused stays for the final report."""
        self._reported_at = time.monotonic()
        if self._claim.lost or self.blocked or self.unreported == NO_USAGE:
            return
        cost, self.unreported = self.unreported, NO_USAGE
        try:
            task = self._claim.spend(
                usd=cost.usd, tokens=cost.tokens, turns=cost.turns, seconds=cost.seconds,
                estimated_usd=cost.estimated_usd, unless_used_up=unless_used_up,
            )  # fmt: skip
        except Refused:
            self.unreported = cost  # it was not recorded; of any other error nobody knows
            raise
        if task.state is State.BLOCKED:
            self.blocked = True
            self._stop(task.reason)
