"""Deciding alike tasks alike, at a third of the cost.

A claim takes a hundred tasks that differ in their words only, and a report ends them. `transition`
is pure, so what it said of the first holds for the others: same standing, same trigger, same
moment, and a specification that is the same but for its id and instructions. Only claims and
reports are decided so, and nothing irreversible: neither looks at the words.
"""

from __future__ import annotations

from operator import attrgetter

from agentq.core.task import Task, all_but_words
from agentq.core.transition import Decision, transition
from agentq.core.triggers import Claim, Report, Trigger

_standing = attrgetter(
    "state", "version", "epoch", "submitted_at", "updated_at", "wake_at", "holder"
)


class Precedent:
    """Decides for one transaction, with one trigger after another."""

    def __init__(self) -> None:
        self._trigger: Trigger | None = None
        self._moment = 0
        self._decision: Decision

    def decide(self, task: Task, trigger: Trigger, now: int) -> Decision:
        """What `transition` says."""
        if trigger is self._trigger and now == self._moment and self._holds_for(task):
            last = self._decision
            after = last.task
            return Decision(
                Task(
                    task.spec, after.state, after.version, after.epoch, after.submitted_at,
                    after.updated_at, after.wake_at, after.holder, after.memo,
                ),
                last.events,
                last.effects,
            )  # fmt: skip
        decision = transition(task, trigger, now)
        self._trigger = None
        if type(trigger) in (Claim, Report) and decision.events and not task.spec.irreversible:
            self._trigger, self._moment, self._decision = trigger, now, decision
            self._standing, self._memo = _standing(task), task.memo
            self._likeness = all_but_words(task.spec)
        return decision

    def _holds_for(self, task: Task) -> bool:
        return (
            task.memo is self._memo
            and _standing(task) == self._standing
            and all_but_words(task.spec) == self._likeness
        )
