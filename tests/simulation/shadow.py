"""A second opinion on the life of one task, written from the documentation, not from the code.

Each committed event is told to the task's shadow. The shadow says whether that event was allowed at
all (`Standing.why_not`), which state it must have led to, which effects it must have caused, and
when time matters next. It shares nothing with `agentq.core` but the nouns, so that a rule broken
there is not broken here in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.states import State
from agentq.core.task import OnDependencyFailure, Usage
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
    REVIEW,
    RUNNING,
    Standing,
    said_anew,
)
from tests.simulation.violation import CANCEL, FENCE, GRAPH, IRREVERSIBLE, RULES, Violation

#: Lane, effect, and the word that tells it from its siblings.
Expected = tuple[str, str, str]


class Shadow(Standing):
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
        if (event.state, event.epoch) != (state, self.epoch):
            raise Violation(
                self._blame(trigger, before),
                f"{self.id}: {trigger} led from {before} to {event.state}, attempt {event.epoch};"
                f" {state}, attempt {self.epoch} was due",
            )
        self.state = state
        return effects

    def _blame(self, trigger: t.Trigger, before: State) -> str:
        uncertain = isinstance(trigger, t.Tick | t.FailAttempt | t.Release) and before is RUNNING
        if self.spec.irreversible and (uncertain or self.awaits_approval):
            return IRREVERSIBLE
        if isinstance(trigger, t.Submit | t.DependencyEnded | t.Requeue):
            return GRAPH
        return CANCEL if isinstance(trigger, t.Cancel) else RULES

    def _queue(self, at: int) -> tuple[State, list[Expected]]:
        """Where a task goes that nobody holds."""
        effects: list[Expected] = []
        if self.not_before <= at:
            self.not_before = 0
        if self.awaits_approval and not self.asked_at:
            self.asked_at, self.remind_at = at, at + DAY_MS
            effects.append(("notify", "Notify", "approval_wanted"))
        if self.waiting or self.not_before or self.awaits_approval:
            return PENDING, effects
        return READY, [("delivery", "Announce", self.spec.to)]

    def _end(self, state: State) -> tuple[State, list[Expected]]:
        effects: list[Expected] = []
        if self.spec.reply_to:
            word = "completed" if state is COMPLETE else str(state)
            effects.append(("reply", "Reply", word))
        if state in (FAILED, EXPIRED):
            effects.append(("notify", "Notify", "dead_letter"))
        return state, effects

    def _complete(self) -> tuple[State, list[Expected]]:
        state, effects = self._end(COMPLETE)
        self.completions += 1
        if self.report and self.report[3]:
            effects.append(("results", "PublishResult", self.report[3]))
        return state, effects

    def _block_for(self, kind: str, at: int) -> tuple[State, list[Expected]]:
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

    def _submit(self, trigger: t.Submit, at: int) -> tuple[State, list[Expected]]:
        self.submitted_at = at
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

    def _dependency_failed(self) -> tuple[State, list[Expected]] | None:
        policy = self.spec.on_dependency_failure
        if policy is OnDependencyFailure.RUN:
            return None
        return self._end(CANCELLED if policy is OnDependencyFailure.SKIP else FAILED)

    def _dependency(self, trigger: t.DependencyEnded, at: int) -> tuple[State, list[Expected]]:
        if trigger.outcome is not COMPLETE:
            verdict = self._dependency_failed()
            if verdict:
                return verdict
        self.waiting = tuple(each for each in self.waiting if each != trigger.dependency)
        return (BLOCKED, []) if self.state is BLOCKED else self._queue(at)

    def _approve(self, trigger: t.Approve, at: int) -> tuple[State, list[Expected]]:
        self.approved, self.remind_at = True, 0
        self.approvals += 1
        return self._queue(at)

    def _claim(self, trigger: t.ClaimTask, at: int) -> tuple[State, list[Expected]]:
        self.epoch += 1
        self.starts += 1
        self.holder, self.lease_end = trigger.holder, at + trigger.lease_ms
        self.report = None
        return RUNNING, []

    def _artifact(self, trigger: t.AddArtifact, at: int) -> tuple[State, list[Expected]]:
        self.artifacts[trigger.epoch, trigger.name] = trigger.sha256
        return self.state, []

    def _spend(self, trigger: t.Spend, at: int) -> tuple[State, list[Expected]]:
        gone, effects = self._charge(trigger.cost)
        if not gone or self.state is CANCELLED:
            return self.state, effects
        state, effects = self._block_for("budget", at)
        return state, [("delivery", "StopHolder", f"{self.holder} {self.epoch}"), *effects]

    def _report(self, trigger: t.Report, at: int) -> tuple[State, list[Expected]]:
        _, warning = self._charge(trigger.cost)
        self.report = (
            trigger.epoch, self.holder, trigger.summary, trigger.result, trigger.result_sha256,
        )  # fmt: skip
        if self.spec.review:
            self.remind_at = at + DAY_MS
            return REVIEW, [("notify", "Notify", "review_wanted"), *warning]
        state, effects = self._complete()
        return state, effects + warning

    def _fail(self, trigger: t.FailAttempt, at: int) -> tuple[State, list[Expected]]:
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

    def _block(self, trigger: t.BlockTask, at: int) -> tuple[State, list[Expected]]:
        return self._block_for("asked", at)

    def _release(self, trigger: t.Release, at: int) -> tuple[State, list[Expected]]:
        self.not_before = max(trigger.not_before, 0)
        self.interruptions += 1
        if self.spec.irreversible:
            state, effects = self._block_for("unknown_outcome", at)
        else:
            state, effects = self._queue(at)
        told: list[Expected] = [("notify", "Notify", "circuit_open")] if trigger.circuit else []
        return state, effects + told

    def _answer(self, trigger: t.Answer, at: int) -> tuple[State, list[Expected]]:
        self.remind_at = 0
        self.extra += trigger.extra_budget.tokens
        if trigger.resolution is t.Resolution.GIVE_UP:
            return self._end(FAILED)
        if trigger.resolution is t.Resolution.DONE:
            self.report = (self.epoch, trigger.by, trigger.text, "", "")
            return self._complete()
        self.asked_at, self.warned = 0, False
        return self._again(at)

    def _again(self, at: int) -> tuple[State, list[Expected]]:
        budget = self.spec.budget.tokens
        if budget and self.spent >= budget + self.extra:
            return self._block_for("budget", at)
        if self.spec.irreversible:
            self.approved, self.asked_at = False, 0
        return self._queue(at)

    def _verdict(self, trigger: t.Verdict, at: int) -> tuple[State, list[Expected]]:
        self.remind_at = 0
        if trigger.ruling is t.Ruling.ACCEPT:
            return self._complete()
        if trigger.ruling is t.Ruling.REJECT:
            return self._end(FAILED)
        self.report = None
        return self._again(at)

    def _cancel(self, trigger: t.Cancel, at: int) -> tuple[State, list[Expected]]:
        state, effects = self._end(CANCELLED)
        if self.holder:
            effects.append(("delivery", "StopHolder", f"{self.holder} {self.epoch}"))
        return state, effects

    def _stopped(self, trigger: t.Stopped, at: int) -> tuple[State, list[Expected]]:
        if not self.holder or trigger.epoch != self.epoch:
            raise Violation(FENCE, self._words(trigger))
        self.holder = ""
        return CANCELLED, []

    def _requeue(self, trigger: t.Requeue, at: int) -> tuple[State, list[Expected]]:
        under_way = {d for d in self.spec.after if self.parent_state(d) not in OVER}
        if set(trigger.waiting_on) != under_way:
            raise Violation(
                GRAPH, f"{self.id} reopened, waits for {trigger.waiting_on}, not {under_way}"
            )
        self.failures = self.crashes = self.not_before = self.remind_at = self.asked_at = 0
        self.waiting, self.reopened_at, self.report = tuple(trigger.waiting_on), at, None
        return self._again(at)

    def _edit(self, trigger: t.Edit, at: int) -> tuple[State, list[Expected]]:
        before, self.spec = self.spec, said_anew(self.spec, trigger)
        if self.spec == before:
            raise Violation(RULES, f"{self.id} was edited, and says what it said before")
        self.digest = spec_digest(self.spec)
        self.editors.add(trigger.by)
        self.approved, self.asked_at = False, 0
        if self.state is BLOCKED:
            self.remind_at = 0
        return self._queue(at)

    def _tick(self, trigger: t.Tick, at: int) -> tuple[State, list[Expected]]:
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
        if self.state is PENDING:
            timeout = self.spec.approval_timeout_seconds * 1000
            if self.awaits_approval and timeout and at >= self.asked_at + timeout:
                self.asked_at = 0
                return self._block_for("approval_timeout", at)
            if self.not_before and at >= self.not_before:
                if self.remind_at and at >= self.remind_at:
                    self.remind_at = at + DAY_MS
                return self._queue(at)
        self.remind_at = at + DAY_MS
        return self.state, [("notify", "Notify", "reminder")]

    def _stays(self, trigger: t.Trigger, at: int) -> tuple[State, list[Expected]]:
        return self.state, []

    def _reject(self, trigger: t.Reject, at: int) -> tuple[State, list[Expected]]:
        self.remind_at = 0
        return self._end(FAILED)

    def _evidence(self, trigger: t.RefuseReport, at: int) -> tuple[State, list[Expected]]:
        self.refused_reports += 1
        return self.state, []


_MOVES: dict[type, Callable[[Shadow, Any, int], tuple[State, list[Expected]]]] = {
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
    t.Cancel: Shadow._cancel,
    t.Stopped: Shadow._stopped,
    t.Requeue: Shadow._requeue,
    t.Edit: Shadow._edit,
    t.Tick: Shadow._tick,
    t.Applied: Shadow._stays,
    t.Comment: Shadow._stays,
    t.Tell: Shadow._stays,
    t.TakeMessages: Shadow._stays,
    t.RefuseReport: Shadow._evidence,
}
