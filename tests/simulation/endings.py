"""Where a task goes by its shadow: back to the queue, to its end, to somebody who must look."""

from __future__ import annotations

from agentq.core.states import State
from agentq.core.task import Usage
from tests.simulation.standing import (
    BLOCKED,
    COMPLETE,
    DAY_MS,
    EXPIRED,
    FAILED,
    PENDING,
    READY,
    Standing,
)

#: Lane, effect, and the word that tells it from its siblings.
Expected = tuple[str, str, str]
#: The state a trigger leads to, and the effects it causes.
Move = tuple[State, list[Expected]]


class Endings(Standing):
    """The ways that many triggers share."""

    def _queue(self, at: int) -> Move:
        """Where a task goes that nobody holds."""
        effects: list[Expected] = []
        if self.not_before <= at:
            self.not_before = 0
        if self.awaits_approval and not self.asked_at:
            self.asked_at, self.remind_at, self.escalations = at, at + self.remind_ms, 0
            effects.append(("notify", "Notify", "approval_wanted"))
        held_back = self.yielded or self.awaited or self.held is not None
        if self.waiting or self.not_before or self.awaits_approval or held_back:
            return PENDING, effects
        return READY, [("delivery", "Announce", self.spec.to)]

    def _end(self, state: State) -> Move:
        effects: list[Expected] = []
        if self.spec.reply_to:
            word = "completed" if state is COMPLETE else str(state)
            effects.append(("reply", "Reply", word))
        if state in (FAILED, EXPIRED):
            effects.append(("notify", "Notify", "dead_letter"))
        return state, effects

    def _complete(self) -> Move:
        state, effects = self._end(COMPLETE)
        self.completions += 1
        if self.report and self.report[3]:
            effects.append(("results", "PublishResult", self.report[3]))
        return state, effects

    def _block_for(self, kind: str, at: int) -> Move:
        self.blocked_for, self.remind_at = kind, at + DAY_MS
        if self.spec.irreversible:
            self.approved = False
        effects: list[Expected] = [("notify", "Notify", "blocked")]
        if self.spec.reply_to:
            effects.append(("reply", "Reply", "blocked"))
        return BLOCKED, effects

    def _charge(self, cost: Usage) -> tuple[bool, list[Expected]]:
        """Whether the budget is gone, and the one warning that it will be soon."""
        self.spent += cost.tokens
        if not cost.tokens or not self.spec.budget.tokens:
            return False, []
        allowed = self.spec.budget.tokens + self.extra
        gone = self.spent >= allowed
        if gone or self.warned or self.spent < allowed * 0.8:
            return gone, []
        self.warned = True
        return False, [("notify", "Notify", "budget_low")]

    def _again(self, at: int) -> Move:
        budget = self.spec.budget.tokens
        if budget and self.spent >= budget + self.extra:
            return self._block_for("budget", at)
        if self.spec.irreversible:
            self.approved, self.asked_at = False, 0
        return self._queue(at)
