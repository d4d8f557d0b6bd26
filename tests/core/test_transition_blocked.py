"""Blocked: somebody up the chain is asked; budgets; and what an answer may decide."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.effects import Announce, Notify, Reply, ResolveDependents, SpawnNext, StopHolder
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import REMINDER_MS, overspent
from agentq.core.states import State
from agentq.core.task import NO_USAGE, Task, Usage
from agentq.core.transition import transition
from tests.core.building import BY_STATE, LEASE_MS, NOW, a_spec, claimed, effects_of, then

UNITS = ["usd", "tokens", "turns", "seconds"]
CLAIM = t.ClaimTask("bob", LEASE_MS)


def asked(**fields: Any) -> Task:
    return then(claimed(**fields), t.BlockTask(1, "which branch?"))


def broke(**fields: Any) -> Task:
    """Blocked because a dollar is spent."""
    return then(claimed(budget=Usage(usd=1), **fields), t.Spend(1, Usage(usd=1)))


# -- asking and answering ----------------------------------------------------------------------


def test_an_agent_that_asks_gives_the_task_back_and_is_heard() -> None:
    task = claimed(reply_to="results.boss")
    decision = transition(task, t.BlockTask(1, "which branch?"), NOW)
    assert decision.task.state is State.BLOCKED
    assert decision.task.reason == "which branch?"
    assert decision.task.holder == ""
    assert decision.task.wake_at == NOW + REMINDER_MS
    assert decision.effects == (
        Notify("blocked", "which branch?"),
        Reply("results.boss", "blocked", "which branch?"),
    )


def test_an_answer_goes_with_the_next_attempt() -> None:
    decision = transition(asked(), t.Answer("boss", "the main one"), NOW)
    task = decision.task
    assert task.state is State.READY
    assert (task.details.notes[-1].kind, task.details.notes[-1].text) == ("answer", "the main one")
    assert (task.reason, task.details.reason_kind, task.wake_at) == ("", "", 0)
    assert decision.effects == (Announce("worker"),)
    assert task.details.failures == 0


def test_time_reminds_but_never_retries() -> None:
    task = asked()
    for _ in range(3):
        task = transition(task, t.Tick(), task.wake_at).task
        assert task.state is State.BLOCKED
    with pytest.raises(Refused):
        transition(task, CLAIM, task.updated_at)


def test_a_person_may_finish_it_themselves() -> None:
    task = asked(next=(a_spec(id="task-2"),))
    decision = transition(task, t.Answer("boss", "I did it", t.Resolution.DONE), NOW)
    assert decision.task.state is State.COMPLETE
    assert decision.task.summary == "I did it"
    assert effects_of(decision, SpawnNext)
    assert effects_of(decision, ResolveDependents) == [ResolveDependents(State.COMPLETE)]


def test_a_person_may_give_it_up() -> None:
    decision = transition(asked(), t.Answer("boss", "not worth it", t.Resolution.GIVE_UP), NOW)
    assert decision.task.state is State.FAILED
    assert decision.task.reason == "given up by boss: not worth it"
    assert effects_of(decision, Notify) == [Notify("dead_letter", decision.task.reason)]


# -- budgets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS)
def test_each_budget_blocks_when_it_is_reached(unit: str) -> None:
    # Given a budget of ten in one unit, when nine are spent, then the attempt goes on,
    task = claimed(budget=Usage(**{unit: 10}))
    task = then(task, t.Spend(1, Usage(**{unit: 9})))
    assert task.state is State.IN_PROGRESS
    # and when the tenth is spent, then it stops and asks, and the holder is told.
    decision = transition(task, t.Spend(1, Usage(**{unit: 1})), NOW)
    assert decision.task.state is State.BLOCKED
    assert decision.task.details.reason_kind == "budget"
    assert f"10 of 10 {unit}" in decision.task.reason
    assert decision.effects[0] == StopHolder("ann", 1)
    assert decision.task.holder == ""


def test_a_trees_budget_blocks_by_what_the_trigger_says() -> None:
    # A decision sees one task only: what its tree has spent comes in words, with the cost.
    task, cost = claimed(), Usage(usd=1)
    words = "9 of 5 usd are spent by root and its descendants"
    decision = transition(task, t.Spend(1, cost, words), NOW)
    assert decision.task.state is State.BLOCKED
    assert words in decision.task.reason and decision.task.details.reason_kind == "budget"
    assert effects_of(decision, StopHolder)
    failed = transition(task, t.FailAttempt(1, "no", cost=cost, used_up=words), NOW).task
    assert failed.state is State.BLOCKED and words in failed.reason
    # A report is accepted all the same, and somebody is told.
    reported = transition(task, t.Report(1, "done", cost=cost, used_up=words), NOW)
    assert reported.task.state is State.COMPLETE
    assert [each.kind for each in effects_of(reported, Notify)] == ["budget_used_up"]
    low = transition(task, t.Spend(1, cost, running_low="nearly"), NOW)
    assert [each.text for each in effects_of(low, Notify)] == ["nearly"]
    # An answer that leaves the tree without budget is refused; one to a question is not.
    with pytest.raises(Refused, match="9 of 5"):
        transition(decision.task, t.Answer("boss", used_up=words), NOW)
    assert then(asked(), t.Answer("boss", used_up=words)).state is State.READY


def test_what_has_no_budget_is_counted_and_never_blocks() -> None:
    task = claimed(budget=Usage(usd=1))
    task = then(task, t.Spend(1, Usage(tokens=10**9)), t.Spend(1, Usage(turns=5)))
    assert task.state is State.IN_PROGRESS
    assert task.details.spent == Usage(tokens=10**9, turns=5)


def test_the_warning_comes_once_at_four_fifths() -> None:
    task, warnings = claimed(budget=Usage(tokens=100)), []
    for _ in range(9):
        decision = transition(task, t.Spend(1, Usage(tokens=11)), NOW)
        warnings.append(len(effects_of(decision, Notify)))
        task = decision.task
    assert warnings == [0, 0, 0, 0, 0, 0, 0, 1, 0]


def test_costs_of_all_attempts_add_up() -> None:
    task = claimed(budget=Usage(usd=1))
    task = then(task, t.Spend(1, Usage(usd=0.4)), t.Release(1), CLAIM)
    assert then(task, t.Spend(2, Usage(usd=0.6))).state is State.BLOCKED


def test_money_is_added_without_drift() -> None:
    task = claimed(budget=Usage(usd=1))
    for _ in range(9):
        task = then(task, t.Spend(1, Usage(usd=0.1)))
    assert task.details.spent.usd == 0.9
    assert then(task, t.Spend(1, Usage(usd=0.1))).state is State.BLOCKED


def test_an_answer_must_bring_the_money() -> None:
    # Given a task that is out of money, when the answer brings none, then nothing changes;
    task = broke()
    with pytest.raises(Refused) as refusal:
        transition(task, t.Answer("boss", "go on"), NOW)
    assert refusal.value.code == "budget"
    assert refusal.value.remedy
    # when it brings too little of it, the same;
    with pytest.raises(Refused):
        transition(task, t.Answer("boss", "go on", extra_budget=Usage(tokens=5)), NOW)
    # when it brings some, then the task goes on with the sum of both.
    more = then(task, t.Answer("boss", "go on", extra_budget=Usage(usd=0.5)), CLAIM)
    assert then(more, t.Spend(2, Usage(usd=0.4))).state is State.IN_PROGRESS
    assert then(more, t.Spend(2, Usage(usd=0.5))).state is State.BLOCKED


def test_extra_budgets_add_up_and_the_warning_comes_anew() -> None:
    task = then(broke(), t.Answer("boss", "", extra_budget=Usage(usd=1)), CLAIM)
    decision = transition(task, t.Spend(2, Usage(usd=0.7)), NOW)
    assert [each.kind for each in effects_of(decision, Notify)] == ["budget_low"]
    task = then(decision.task, t.Spend(2, Usage(usd=0.3)))
    task = then(task, t.Answer("boss", "", extra_budget=Usage(usd=1)))
    assert task.details.extra_budget.usd == 2


@pytest.mark.parametrize("resolution", [t.Resolution.DONE, t.Resolution.GIVE_UP])
def test_ending_it_needs_no_money(resolution: t.Resolution) -> None:
    assert then(broke(), t.Answer("boss", "enough", resolution)).is_terminal


def test_a_reopened_task_without_money_asks_instead_of_starting() -> None:
    # Given a dead letter whose budget is gone, when it is reopened,
    task = then(broke(), t.Answer("boss", "enough", t.Resolution.GIVE_UP))
    reopened = then(task, t.Requeue("boss", "let us try again"))
    # then it asks for money before any attempt starts.
    assert (reopened.state, reopened.details.reason_kind) == (State.BLOCKED, "budget")
    more = t.Answer("boss", "here", extra_budget=Usage(usd=1))
    assert then(reopened, more).state is State.READY


@pytest.mark.parametrize(
    "bad",
    [Usage(usd=-1), Usage(tokens=-1), Usage(usd=float("nan")), Usage(seconds=float("inf"))],
    ids=["negative", "negative tokens", "nan", "infinite"],
)
def test_a_cost_that_is_no_amount_is_refused(bad: Usage) -> None:
    # It would lower what was spent, or could not be read back from the ledger.
    task = claimed(budget=Usage(usd=1))
    for trigger in (
        t.Spend(1, bad),
        t.Report(1, "done", cost=bad),
        t.FailAttempt(1, "x", cost=bad),
    ):
        with pytest.raises(Invalid):
            transition(task, trigger, NOW)
    with pytest.raises(Invalid):
        transition(broke(), t.Answer("boss", "", extra_budget=bad), NOW)


@pytest.mark.parametrize("words", ["", "9 of 5 usd by the tree"])
def test_a_cost_may_be_refused_instead(words: str) -> None:
    """So that its holder can hand in what it has."""
    task = claimed(budget=Usage(usd=1))
    with pytest.raises(Refused) as caught:
        transition(task, t.Spend(1, Usage(usd=1 - 0.5 * bool(words)), words, "", True), NOW)
    assert caught.value.code == "budget" and (words or "1 of 1 usd") in caught.value.cause
    within = transition(task, t.Spend(1, Usage(usd=0.5), unless_used_up=True), NOW)
    assert within.task.state is State.IN_PROGRESS
    assert within.task.details.spent == Usage(usd=0.5)


def test_nothing_spent_is_nothing_overspent() -> None:
    assert overspent(NO_USAGE, NO_USAGE, Usage(usd=5)) == ""
    assert overspent(Usage(usd=1), NO_USAGE, NO_USAGE) == ""
    assert overspent(Usage(usd=1), Usage(usd=1), Usage(usd=1)) == ""
    assert overspent(Usage(usd=1), NO_USAGE, Usage(usd=0.8), 0.8) == "0.8 of 1 usd are spent"


def test_only_a_blocked_task_is_answered() -> None:
    for state, make in BY_STATE.items():
        if state is not State.BLOCKED:
            with pytest.raises(Refused):
                transition(make(), t.Answer("boss", "yes"), NOW)
