"""What holds a task back by its shadow: reviewers, approval policies, children, signals, people."""

from __future__ import annotations

from agentq.core import triggers as t
from agentq.core.task import NO_POLICY, OnTimeout
from tests.simulation.endings import Endings, Expected, Move
from tests.simulation.standing import FAILED, PENDING, PROGRAM, REVIEW
from tests.simulation.violation import HOLDS, Violation

_REVIEW_WANTED: Expected = ("notify", "Notify", "review_wanted")


class Gated(Endings):
    """Reports that others accept, decisions that time takes, and waits in the middle of a task."""

    # -- reviews ---------------------------------------------------------------------------------

    def _ask_for_review(self, at: int) -> Move:
        reviewer = self.gates.reviewer
        self._ask(at)
        if reviewer and reviewer != self.spec.to:
            self.review_task = f"{self.id}.review-{self.epoch}"
            return REVIEW, []
        return REVIEW, [_REVIEW_WANTED]

    def _ask(self, at: int) -> None:
        """From now on somebody is asked, and the steps of the policy are counted."""
        self.remind_at = at + self.remind_ms
        if self.spec.approval != NO_POLICY:
            self.asked_at, self.escalations = at, 0

    def _ask_a_person(self, at: int) -> Move:
        self._ask(at)
        self.review_task = ""
        return REVIEW, [_REVIEW_WANTED]

    def _judged(self) -> None:
        """Nobody is asked about this report any more."""
        self.review_task = ""
        if self.spec.approval != NO_POLICY:
            self.asked_at = self.escalations = 0

    def _verdict(self, trigger: t.Verdict, at: int) -> Move:
        self.remind_at = 0
        ruling, gates = trigger.ruling, self.gates
        if trigger.review and ruling is t.Ruling.ACCEPT:
            if gates.min_score and trigger.score < gates.min_score:
                ruling = t.Ruling.CHANGES
            elif gates.person:
                self.accepted = self.epoch
                return self._ask_a_person(at)
        if ruling is t.Ruling.CHANGES:
            self.rounds += 1
            if trigger.review and self.rounds > gates.max_rounds:
                return self._ask_a_person(at)
        self._judged()
        if ruling is t.Ruling.ACCEPT:
            return self._complete()
        if ruling is t.Ruling.REJECT:
            return self._end(FAILED)
        self.report = None
        return self._again(at)

    def _review_failed(self, trigger: t.ReviewFailed, at: int) -> Move:
        return self._ask_a_person(at)

    # -- the end of the time for a decision --------------------------------------------------------

    def _time_is_over(self, at: int) -> Move:
        policy = self.spec.approval.on_timeout
        if policy is OnTimeout.REJECT:
            return self._end(FAILED)
        if policy is OnTimeout.APPROVE and self._may_be_approved_by_silence():
            self.remind_at = 0
            if self.state is REVIEW:
                return self._complete()
            self.approved, self.escalations = True, 0
            return self._queue(at)
        if self.state is PENDING:
            self.asked_at = self.escalations = 0
            return self._block_for("approval_timeout", at)
        self.escalations = len(self.spec.approval.escalate) + 1
        self.remind_at = at + self.remind_ms
        return REVIEW, [("notify", "Notify", "reminder")]

    def _may_be_approved_by_silence(self) -> bool:
        """Never what cannot be undone; and that people are silent does not stand for a reviewer."""
        reviewed = self.state is not REVIEW or not self.gates.reviewer
        return not self.spec.irreversible and (reviewed or self.accepted == self.epoch)

    # -- holds -----------------------------------------------------------------------------------

    def _hold(self, trigger: t.Hold, at: int) -> Move:
        if self.held is not None and not (self.held[1] == PROGRAM != trigger.how):
            raise Violation(HOLDS, f"{self.id} was held by {self.held} already, then {trigger}")
        self.held = (trigger.by, trigger.how)
        return PENDING, []

    def _dispatch(self, trigger: t.Dispatch, at: int) -> Move:
        if self.held is None and not self.not_before:
            raise Violation(HOLDS, f"{self.id} was neither held nor delayed, then {trigger}")
        self.held, self.not_before = None, 0
        return self._queue(at)

    # -- children and signals --------------------------------------------------------------------

    def _children_submitted(self, trigger: t.ChildrenSubmitted, at: int) -> Move:
        new = [each for each in trigger.children if each not in self.children]
        self.children = (*self.children, *new)
        self.ended_children.difference_update(new)
        return self.state, []

    def _child_ended(self, child: str) -> bool:
        """Whether the task has waited for this."""
        self.children = tuple(each for each in self.children if each != child)
        self.ended_children.add(child)
        self.ended_since += 1
        if not self.yielded or (self.yielded == "all" and self.children):
            return False
        self.yielded = ""
        return True

    def _yield(self, trigger: t.Yield, at: int) -> Move:
        # Which of them had ended before it left, it may not have known.
        is_over = not self.children or (trigger.wait == "any" and self.ended_since)
        self.yielded = "" if is_over else trigger.wait
        self.awaited += trigger.signals
        self.crashes = 0  # whoever gets as far as this is no poison
        self._take_signals()
        return self._queue(at)

    def _signal(self, trigger: t.Signal, at: int) -> Move:
        self.kept[trigger.name] += 1
        self.came[trigger.name] += 1
        return (
            self._queue(at) if self._take_signals() and self.state is PENDING else (self.state, [])
        )

    def _take_signals(self) -> bool:
        """Each signal that is there lets one wait go on; whether any did."""
        left = []
        for name in self.awaited:
            if self.kept[name]:
                self.kept[name] -= 1
            else:
                left.append(name)
        took = len(left) < len(self.awaited)
        self.awaited = left
        return took
