"""What an attempt spends: recorded in the ledger now and then, and at once when a budget nears.

The ledger knows the task's own budget, its tree's and its role's, and blocks the task when one is
used up. A role's default budget, for tasks that bring none, is kept here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentq.core.limits import overspent
from agentq.core.states import State
from agentq.core.task import NOTHING, Amounts

if TYPE_CHECKING:
    from agentq.client.claim import Claim

#: Costs are told to the ledger this often, not with every token.
EVERY_SECONDS = 10.0


class Purse:
    """Adds up costs and says when there is nothing left."""

    def __init__(self, claim: Claim, default: Amounts, over: Callable[[str], None]) -> None:
        self._claim = claim
        self._default = default if claim.task.spec.budget == NOTHING else NOTHING
        self._over = over
        self._told_at = time.monotonic()
        self.spent = NOTHING
        #: What the ledger has not been told yet; a report carries it.
        self.untold = NOTHING
        self._blocked = False

    def is_blocked(self) -> bool:
        """Whether the ledger has blocked the task: there is nothing left to report then."""
        return self._blocked

    def add(self, cost: Amounts) -> None:
        """Take a cost in. Only from the attempt's own thread."""
        if cost == NOTHING:
            return
        self.spent = self.spent.plus(cost)
        self.untold = self.untold.plus(cost)
        words = overspent(self._default, NOTHING, self._before().plus(self.spent))
        if words:
            self._over(f"the role's budget is used up: {words}")
        elif self._is_due():
            self.tell()

    def _before(self) -> Amounts:
        return self._claim.task.memo.spent

    def seconds_left(self) -> float:
        """What is left of a budget of time; 0 if there is none."""
        task = self._claim.task
        allowed = task.spec.budget.seconds
        if allowed:
            allowed += task.memo.extra_budget.seconds
        else:
            allowed = self._default.seconds
        return max(allowed - self._before().seconds, 1.0) if allowed else 0.0

    def _is_due(self) -> bool:
        if time.monotonic() - self._told_at >= EVERY_SECONDS:
            return True
        task = self._claim.task
        total = self._before().plus(self.spent)
        return bool(overspent(task.spec.budget, task.memo.extra_budget, total, share=0.8))

    def tell(self) -> None:
        """Record what was spent since the last time."""
        cost, self.untold = self.untold, NOTHING
        self._told_at = time.monotonic()
        if cost == NOTHING or self._claim.lost or self._blocked:
            return
        task = self._claim.spend(
            usd=cost.usd, tokens=cost.tokens, turns=cost.turns, seconds=cost.seconds
        )
        if task.state is State.BLOCKED:
            self._blocked = True
            self._over(task.reason)
