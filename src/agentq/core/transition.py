"""The one function that decides: `transition(task, trigger, now) -> Decision`.

No clock, no I/O, no chance: the same three arguments give the same decision for ever, which is what
lets `agentq replay` and `agentq verify` prove every state from the log. The ledger calls it under a
lock and saves what it returns; nobody else changes a task.

How to read it: one function per trigger, each a few lines of policy returning the `Step` it takes.
`custody` has what concerns a holder, `waiting` what concerns a task without one, `children` and
`signals` what else it may wait for, `reviews` and `approvals` what people and reviewers decide,
`external_decisions` what else is decided from outside, `editing` what a task asks for, `holding`
what keeps it from starting, `steps` the endings they share. The states that may follow are in
`states.TABLE`, and every step is held against it here. Before a change, know:

- Custody is `holder` + `epoch` + lease. `holder_only` is the fence: it stands first in everything
  an attempt may say. Leaving custody clears the holder, except that a cancelled task keeps it until
  the holder says it has stopped or its lease ends: until then its agent may still be touching
  things, so limits and exclusive resources go on counting it, and the ledger takes its log and
  what it cost. No other word of it counts any more. What the newest attempt has cost is taken
  after any other end as well, until the next begins: an agent that reports by itself is not free.
- Irreversible tasks never start again by themselves. Whatever ends their attempt short of a report
  blocks them for a person, and starting again needs a fresh approval.
- `wake_at` of a task without a holder is `schedule.next_wake`, a pure function of its fields. A
  `Tick` that is due always changes the task, so the due loop cannot spin.
- An empty `kind` means nothing happened: no event, no new version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agentq.core import (
    agent_messages,
    children,
    comments,
    custody,
    editing,
    external_decisions,
    holding,
    reviews,
    signals,
    waiting,
)
from agentq.core import triggers as t
from agentq.core.effects import CARD_LABEL, Effect, MoveCard
from agentq.core.schedule import next_wake
from agentq.core.states import TABLE
from agentq.core.steps import Step, not_allowed
from agentq.core.task import NO_DETAILS, Spec, Task


class Decision(msgspec.Struct, frozen=True, gc=False):
    """What follows from a trigger. No events: nothing happened that the log should know."""

    task: Task
    events: tuple[t.Event, ...] = ()
    effects: tuple[Effect, ...] = ()


def transition(task: Task | None, trigger: t.Trigger, now: int) -> Decision:
    """Apply a trigger to a task. Raises `Refused` (or `Stale`) when it is not allowed."""
    if task is None:
        if type(trigger) is not t.Submit:
            raise not_allowed(task, trigger)
        return _born(waiting.submit(trigger, now), trigger, now)
    cell = _CELLS.get((task.state, type(trigger)))
    if cell is None:
        if type(trigger) is t.Tell:
            raise agent_messages.cannot_be_told(task)
        raise not_allowed(task, trigger)
    decide, allowed = cell
    now = max(now, task.updated_at)
    step = decide(task, trigger, now)
    assert step.state in allowed, f"{task.state} {trigger} -> {step.state} is not in the table"
    return _settle(task, step, trigger, now)


def _born(step: Step, trigger: t.Submit, now: int) -> Decision:
    assert step.state in TABLE[None, "Submit"], f"a task cannot be born {step.state}"
    details = NO_DETAILS if step.details is None else step.details
    wake_at = next_wake(step.state, trigger.spec, details, now, 0)
    task = Task(trigger.spec, step.state, 1, 0, now, now, wake_at, "", details)
    effects = _with_card(trigger.spec, step)
    return Decision(task, (t.Event(1, now, step.kind, trigger, step.state),), effects)


def _settle(old: Task, step: Step, trigger: t.Trigger, now: int) -> Decision:
    if not step.kind:
        return Decision(old)
    spec = old.spec if step.spec is None else step.spec
    details = old.details if step.details is None else step.details
    epoch = old.epoch if step.epoch < 0 else step.epoch
    holder, wake_at = step.holder, step.lease_end
    if step.keeps_custody:
        holder, wake_at = old.holder, old.wake_at
    elif not holder:
        wake_at = next_wake(step.state, spec, details, old.submitted_at, epoch)
    version = old.version + 1
    task = Task(spec, step.state, version, epoch, old.submitted_at, now, wake_at, holder, details)
    event = t.Event(version, now, step.kind, trigger, step.state, epoch)
    effects = step.effects if step.state is old.state else _with_card(spec, step)
    return Decision(task, (event,), effects)


def _with_card(spec: Spec, step: Step) -> tuple[Effect, ...]:
    """The effects of a step into another state: the card that the task was made from follows."""
    card = spec.labels.get(CARD_LABEL)
    return (*step.effects, MoveCard(card, step.state)) if card else step.effects


_STEPS: dict[type, Callable[[Task, Any, int], Step]] = {
    t.DependencyEnded: waiting.dependency_ended,
    t.Approve: waiting.approve,
    t.Reject: waiting.reject,
    t.ClaimTask: custody.claim,
    t.Progress: custody.progress,
    t.AddArtifact: custody.add_artifact,
    t.Spend: custody.spend,
    t.Report: custody.report,
    t.FailAttempt: custody.fail,
    t.BlockTask: custody.block,
    t.Release: custody.release,
    t.Answer: external_decisions.answer,
    t.Verdict: reviews.verdict,
    t.ReviewFailed: reviews.review_failed,
    t.Yield: children.yield_,
    t.ChildrenSubmitted: children.children_submitted,
    t.Signal: signals.signal,
    t.Cancel: external_decisions.cancel,
    t.Stopped: external_decisions.stopped,
    t.Requeue: external_decisions.requeue,
    t.Applied: external_decisions.applied,
    t.Edit: editing.edit,
    t.Hold: holding.hold,
    t.Dispatch: holding.dispatch,
    t.Tick: waiting.tick,
    t.Comment: comments.comment,
    t.Tell: agent_messages.tell,
    t.TakeMessages: agent_messages.take_messages,
    t.RefuseReport: external_decisions.refuse_report,
}

#: The table with the function that decides each cell.
_CELLS = {
    (state, t.TRIGGERS[name]): (_STEPS[t.TRIGGERS[name]], allowed)
    for (state, name), allowed in TABLE.items()
    if state is not None
}
