"""A second opinion on the life of one task, written from the documentation, not from the code.

Each committed event is told to the task's shadow. The shadow says whether that event was allowed at
all (`Standing.why_not`), which state it must have led to, which effects it must have caused, and
when time matters next. It shares nothing with `agentq.core` but the nouns, so that a rule broken
there is not broken here in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.states import State
from agentq.core.task import NO_POLICY, OnDependencyFailure
from tests.simulation.endings import Expected, Move
from tests.simulation.gated import Gated
from tests.simulation.standing import (
    BLOCKED,
    CANCELLED,
    COMPLETE,
    CRASHES_MAX,
    DAY_MS,
    EXPIRED,
    FAILED,
    OVER,
    PENDING,
    READY,
    RUNNING,
    said_anew,
)
from tests.simulation.violation import (
    CANCEL,
    FAMILY,
    FENCE,
    GRAPH,
    HOLDS,
    IRREVERSIBLE,
    POLICY,
    REVIEWS,
    RULES,
    SIGNALS,
    Violation,
)


class Shadow(Gated):
    """One task as it must be."""

    def apply(self, event: t.Event) -> list[Expected]:
        """Take in a committed event; the effects it must have caused."""
        trigger, before = event.trigger, self.state
        if event.version != self.version + 1 or event.at < self.updated_at:
            raise Violation(RULES, f"{self.id}: event {event} after version {self.version}")
        if not isinstance(trigger, t.Submit):
            objection = self.why_not(trigger, event.at)
            if objection:
                raise Violation(*objection)
        self.version, self.updated_at = event.version, event.at
        state, effects = _MOVES[type(trigger)](self, trigger, event.at)
        if state is not RUNNING and not (state is CANCELLED and before in (RUNNING, CANCELLED)):
            self.holder = ""
        if state in OVER and not isinstance(trigger, t.RefuseReport | t.Comment):
            self.waiting, self.not_before = (), 0
            self.yielded, self.awaited, self.held = "", [], None
        if (event.state, event.epoch) != (state, self.epoch):
            raise Violation(
                self._blame(trigger, before, event.state),
                f"{self.id}: {trigger} led from {before} to {event.state}, attempt {event.epoch};"
                f" {state}, attempt {self.epoch} was due",
            )
        self.state = state
        return effects

    def _blame(self, trigger: t.Trigger, before: State, after: State) -> str:
        if isinstance(trigger, t.Hold | t.Dispatch) or (self.held and after is READY):
            return HOLDS
        uncertain = isinstance(trigger, t.Tick | t.FailAttempt | t.Release) and before is RUNNING
        if self.spec.irreversible and (uncertain or self.awaits_approval):
            return IRREVERSIBLE
        if (
            isinstance(trigger, t.Yield)
            or getattr(trigger, "dependency", "") in self.ended_children
        ):
            return FAMILY
        if isinstance(trigger, t.Submit | t.DependencyEnded | t.Requeue):
            return GRAPH
        if isinstance(trigger, t.Signal):
            return SIGNALS
        if isinstance(trigger, t.ReviewFailed) or (
            isinstance(trigger, t.Verdict) and trigger.review
        ):
            return REVIEWS
        if isinstance(trigger, t.Tick) and self.spec.approval != NO_POLICY:
            return POLICY
        return CANCEL if isinstance(trigger, t.Cancel) else RULES

    def _submit(self, trigger: t.Submit, at: int) -> Move:
        self.submitted_at = at
        self.children, self.awaited = trigger.children, list(self.spec.wait_for)
        if trigger.refused:
            return self._end(FAILED)  # `following` says whether it must be
        states = {each: self.peers.outcome(each) for each in self.spec.after}
        waiting = {each for each, state in states.items() if state not in OVER}
        if set(trigger.waiting_on) != waiting:
            raise Violation(GRAPH, f"{self.id} waits for {trigger.waiting_on}, not {waiting}")
        self.waiting = tuple(each for each in self.spec.after if each in waiting)
        if self.spec.delay_seconds:
            self.not_before = at + self.spec.delay_seconds * 1000
        for each, outcome in trigger.ended:
            if each not in states and outcome is COMPLETE is not self.peers.outcome(each):
                raise Violation(GRAPH, f"{self.id} was told that {each}, which is gone, completed")
            states[each] = outcome
        if any(state in OVER and state is not COMPLETE for state in states.values()):
            verdict = self._dependency_failed()
            if verdict:
                return verdict
        return self._queue(at)

    def _dependency_failed(self) -> Move | None:
        policy = self.spec.on_dependency_failure
        if policy is OnDependencyFailure.RUN:
            return None
        return self._end(CANCELLED if policy is OnDependencyFailure.SKIP else FAILED)

    def _dependency(self, trigger: t.DependencyEnded, at: int) -> Move:
        ended, goes_on = trigger.dependency, False
        if ended in self.children:
            goes_on = self._child_ended(ended)
        if ended in self.waiting:
            goes_on = True
            verdict = None if trigger.outcome is COMPLETE else self._dependency_failed()
            if verdict:
                return verdict
            self.waiting = tuple(each for each in self.waiting if each != ended)
        return self._queue(at) if goes_on and self.state is PENDING else (self.state, [])

    def _approve(self, trigger: t.Approve, at: int) -> Move:
        self.approved, self.remind_at, self.escalations = True, 0, 0
        self.approvals += 1
        return self._queue(at)

    def _claim(self, trigger: t.ClaimTask, at: int) -> Move:
        self.epoch += 1
        self.starts += 1
        self.holder, self.lease_end = trigger.holder, at + trigger.lease_ms
        self.report, self.role_gates, self.ended_since = None, trigger.gates, 0
        self.late_costs = 0
        return RUNNING, []

    def _artifact(self, trigger: t.AddArtifact, at: int) -> Move:
        self.artifacts[trigger.epoch, trigger.name] = trigger.sha256
        return self.state, []

    def _spend(self, trigger: t.Spend, at: int) -> Move:
        gone, effects = self._charge(trigger.cost)
        if self.state not in (RUNNING, CANCELLED):
            self.late_costs += 1
            may_start = self.state in (PENDING, READY)
            return self._block_for("budget", at) if gone and may_start else (self.state, effects)
        if not gone or self.state is CANCELLED:
            return self.state, effects
        state, effects = self._block_for("budget", at)
        return state, [("delivery", "StopHolder", f"{self.holder} {self.epoch}"), *effects]

    def _report(self, trigger: t.Report, at: int) -> Move:
        _, warning = self._charge(trigger.cost)
        self.report = (
            trigger.epoch, self.holder, trigger.summary, trigger.result, trigger.result_sha256,
            trigger.data,
        )  # fmt: skip
        if self.gates.person or self.gates.reviewer:
            state, effects = self._ask_for_review(at)
            return state, effects + warning
        state, effects = self._complete()
        return state, effects + warning

    def _fail(self, trigger: t.FailAttempt, at: int) -> Move:
        gone, warning = self._charge(trigger.cost)
        if trigger.kind is t.FailureKind.CRASHED:
            self.crashes += 1
        elif trigger.kind is not t.FailureKind.BUDGET:
            self.failures += 1
        if self.spec.irreversible:
            return self._block_for("unknown_outcome", at)
        if trigger.kind in (t.FailureKind.REFUSED, t.FailureKind.INVALID):
            return self._end(FAILED)
        if gone or trigger.kind is t.FailureKind.BUDGET:
            return self._block_for("budget", at)
        if self.crashes >= CRASHES_MAX or self.failures >= self.spec.max_attempts:
            return self._end(FAILED)
        window = min(10_000 * 2 ** (self.failures + self.crashes - 1), 300_000)
        self.not_before = at + max(int(window * trigger.jitter), 1)
        return PENDING, warning

    def _block(self, trigger: t.BlockTask, at: int) -> Move:
        return self._block_for("asked", at)

    def _release(self, trigger: t.Release, at: int) -> Move:
        self.not_before = max(trigger.not_before, 0)
        self.interruptions += 1
        if self.spec.irreversible:
            state, effects = self._block_for("unknown_outcome", at)
        else:
            state, effects = self._queue(at)
        told: list[Expected] = [("notify", "Notify", "circuit_open")] if trigger.circuit else []
        return state, effects + told

    def _answer(self, trigger: t.Answer, at: int) -> Move:
        self.remind_at = 0
        self.extra += trigger.extra_budget.tokens
        if trigger.resolution is t.Resolution.GIVE_UP:
            return self._end(FAILED)
        if trigger.resolution is t.Resolution.DONE:
            self.report = (self.epoch, trigger.by, trigger.text, "", "", "")
            return self._complete()
        self.asked_at, self.warned = 0, False
        return self._again(at)

    def _cancel(self, trigger: t.Cancel, at: int) -> Move:
        state, effects = self._end(CANCELLED)
        if self.holder:
            effects.append(("delivery", "StopHolder", f"{self.holder} {self.epoch}"))
        return state, effects

    def _stopped(self, trigger: t.Stopped, at: int) -> Move:
        if not self.holder or trigger.epoch != self.epoch:
            raise Violation(FENCE, self._words(trigger))
        self.holder = ""
        return CANCELLED, []

    def _requeue(self, trigger: t.Requeue, at: int) -> Move:
        under_way = {d for d in self.spec.after if self.parent_state(d) not in OVER}
        if set(trigger.waiting_on) != under_way:
            raise Violation(
                GRAPH, f"{self.id} reopened, waits for {trigger.waiting_on}, not {under_way}"
            )
        open_ones = self.peers.open_children(self.key)
        if set(trigger.children) != open_ones:
            raise Violation(
                FAMILY, f"{self.id} reopened, knows of {trigger.children}, not {open_ones}"
            )
        self.failures = self.crashes = self.not_before = self.remind_at = self.asked_at = 0
        self.rounds, self.review_task, self.accepted = 0, "", 0
        self.children, self.escalations = trigger.children, 0
        self.waiting, self.reopened_at, self.report = tuple(trigger.waiting_on), at, None
        # An approval lets a task start once.
        self.approved = False
        if not self.epoch:
            # It has not started: what it was told to wait for still must come.
            self.awaited = list((Counter(self.spec.wait_for) - self.came).elements())
        return self._again(at)

    def _edit(self, trigger: t.Edit, at: int) -> Move:
        before, self.spec = self.spec, said_anew(self.spec, trigger)
        if self.spec == before:
            raise Violation(RULES, f"{self.id} was edited, and says what it said before")
        self.digest = spec_digest(self.spec)
        self.editors.add(trigger.by)
        self.approved, self.asked_at = False, 0
        if self.state is BLOCKED:
            self.remind_at = 0
        return self._queue(at)

    def _tick(self, trigger: t.Tick, at: int) -> Move:
        if self.state is RUNNING:
            self.crashes += 1
            if self.spec.irreversible:
                return self._block_for("unknown_outcome", at)
            return self._end(FAILED) if self.crashes >= CRASHES_MAX else self._queue(at)
        if self.state is CANCELLED:
            self.holder = ""
            return CANCELLED, []
        if self.state in (PENDING, READY) and self.expires_at and at >= self.expires_at:
            return self._end(EXPIRED)
        if self.deadline and at >= self.deadline:
            return self._time_is_over(at)
        if self.escalates_at and at >= self.escalates_at:
            self.escalations += 1
            self.remind_at = at + self.remind_ms
            if self.not_before <= at:
                self.not_before = 0
            return self.state, [("notify", "Notify", "escalated")]
        if self.state is PENDING and self.not_before and at >= self.not_before:
            if self.remind_at and at >= self.remind_at:
                self.remind_at = at + self.remind_ms
            return self._queue(at)
        self.remind_at = at + (DAY_MS if self.state is BLOCKED else self.remind_ms)
        return self.state, [("notify", "Notify", "reminder")]

    def _stays(self, trigger: t.Trigger, at: int) -> Move:
        return self.state, []

    def _reject(self, trigger: t.Reject, at: int) -> Move:
        self.remind_at = 0
        return self._end(FAILED)

    def _evidence(self, trigger: t.RefuseReport, at: int) -> Move:
        self.refused_reports += 1
        return self.state, []


_MOVES: dict[type, Callable[[Shadow, Any, int], Move]] = {
    t.Submit: Shadow._submit,
    t.DependencyEnded: Shadow._dependency,
    t.Approve: Shadow._approve,
    t.Reject: Shadow._reject,
    t.ClaimTask: Shadow._claim,
    t.Progress: Shadow._stays,
    t.AddArtifact: Shadow._artifact,
    t.Spend: Shadow._spend,
    t.Report: Shadow._report,
    t.FailAttempt: Shadow._fail,
    t.BlockTask: Shadow._block,
    t.Release: Shadow._release,
    t.Answer: Shadow._answer,
    t.Verdict: Shadow._verdict,
    t.ReviewFailed: Shadow._review_failed,
    t.Yield: Shadow._yield,
    t.ChildrenSubmitted: Shadow._children_submitted,
    t.Signal: Shadow._signal,
    t.Cancel: Shadow._cancel,
    t.Stopped: Shadow._stopped,
    t.Requeue: Shadow._requeue,
    t.Edit: Shadow._edit,
    t.Hold: Shadow._hold,
    t.Dispatch: Shadow._dispatch,
    t.Tick: Shadow._tick,
    t.Applied: Shadow._stays,
    t.Comment: Shadow._stays,
    t.Tell: Shadow._stays,
    t.TakeMessages: Shadow._stays,
    t.RefuseReport: Shadow._evidence,
}
