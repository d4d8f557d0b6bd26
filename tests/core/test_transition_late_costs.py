"""What an attempt has cost counts after its end: an agent that reports by itself is not free."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentq.core import triggers as t
from agentq.core.effects import Notify, StopHolder
from agentq.core.errors import Refused, Stale
from agentq.core.limits import LATE_COSTS_MAX
from agentq.core.states import State
from agentq.core.task import Task, Usage
from agentq.core.transition import transition
from tests.core.building import LEASE_MS, claimed, due, effects_of, failed_task, submitted, then

ONE = Usage(usd=1)
SPEND = t.Spend(1, ONE, unless_used_up=True)
OUTPUT = t.AddArtifact(1, "output.log", 10, "0" * 64)

#: How an agent may end its own attempt.
ENDS: dict[str, Callable[[Task], Task]] = {
    "complete": lambda task: then(task, t.Report(1, "done")),
    "fail": lambda task: then(task, t.FailAttempt(1, "no")),
    "fail for good": lambda task: then(task, t.FailAttempt(1, "no", t.FailureKind.INVALID)),
    "release": lambda task: then(task, t.Release(1)),
    "block": lambda task: then(task, t.BlockTask(1, "which branch?")),
    "yield": lambda task: then(task, t.Yield(1, signals=("go",))),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_cost_is_taken_after_the_end(end: str) -> None:
    task = ENDS[end](claimed(budget=Usage(usd=9)))
    decision = transition(task, SPEND, task.updated_at)
    after = decision.task
    assert after.details.spent == ONE and [each.kind for each in decision.events] == ["spent"]
    # Nothing else has changed: not its state, not when time matters to it.
    assert (after.state, after.wake_at, after.holder) == (task.state, task.wake_at, "")
    # Only of its newest attempt, and not for ever.
    for epoch in (0, 2):
        with pytest.raises(Stale):
            then(after, t.Spend(epoch, ONE))
    with pytest.raises(Stale):
        then(after, *[t.Spend(1, Usage(tokens=1))] * LATE_COSTS_MAX)


@pytest.mark.parametrize("end", ["fail", "release", "yield"])
def test_one_that_uses_the_budget_up_keeps_the_next_attempt_from_starting(end: str) -> None:
    task = ENDS[end](claimed(budget=ONE))
    decision = transition(task, SPEND, task.updated_at)
    assert (decision.task.state, decision.task.details.reason_kind) == (State.BLOCKED, "budget")
    assert not effects_of(decision, StopHolder)
    with pytest.raises(Refused, match="budget"):
        then(decision.task, t.Answer("boss", "go on"))


def test_what_is_done_stays_done() -> None:
    for task in (ENDS["complete"](claimed(budget=ONE)), failed_task(budget=ONE)):
        used_up = t.Spend(1, ONE, used_up="2 of 1 usd are spent by root and its descendants")
        decision = transition(task, used_up, task.updated_at)
        assert decision.task.state is task.state and decision.task.details.spent == ONE
        assert Notify("budget_used_up", used_up.used_up) in decision.effects
    # A report in review that asks for changes goes on only if there is money left.
    review = then(claimed(budget=ONE, review=True), t.Report(1, "done"), SPEND)
    assert review.state is State.REVIEW
    assert then(review, t.Verdict("boss", t.Ruling.CHANGES)).state is State.BLOCKED


def test_nobody_has_cost_anything_before_the_first_claim() -> None:
    with pytest.raises(Stale, match="Nobody has claimed"):
        then(submitted(), t.Spend(0, ONE))


def test_the_next_attempt_ends_it_and_may_be_late_as_well() -> None:
    task = then(ENDS["release"](claimed()), *[t.Spend(1, ONE)] * LATE_COSTS_MAX)
    task = then(task, t.ClaimTask("bob", LEASE_MS))
    with pytest.raises(Stale):
        then(task, t.Spend(1, ONE))
    done = then(task, t.Report(2, "done"), t.Spend(2, ONE))
    assert done.details.spent == Usage(usd=LATE_COSTS_MAX + 1)
    # A cancelled attempt is heard until it has stopped, as ever.
    gone = then(claimed(), t.Cancel("boss"), t.Spend(1, ONE), t.Stopped(1))
    with pytest.raises(Stale):
        then(gone, t.Spend(1, ONE))


def test_what_the_worker_keeps_of_a_report_is_taken_with_it() -> None:
    for task in (ENDS["complete"](claimed()), then(claimed(review=True), t.Report(1, "done"))):
        kept = transition(task, OUTPUT, task.updated_at)
        assert kept.task.state is task.state and kept.events
        for other in (t.AddArtifact(1, "notes.md", 1, "0"), t.AddArtifact(2, "output.log", 1, "0")):
            with pytest.raises(Stale):
                then(task, other)
    with pytest.raises(Stale):
        then(ENDS["fail"](claimed()), OUTPUT)
    # What a person has called done was nobody's report.
    blocked = due(submitted(requires_approval=True, approval_timeout_seconds=60)).task
    done = then(blocked, t.Answer("boss", "", t.Resolution.DONE))
    with pytest.raises(Stale):
        then(done, t.AddArtifact(0, "output.log", 1, "0"))
