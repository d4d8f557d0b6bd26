"""What a role may spend a day, and what a task may spend with all that descend from it."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.doorbell import role_topic
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Amounts, Spec, Task
from agentq.core.triggers import FailureKind, Report, Resolution, Ruling
from tests.ledger.conftest import Desk

FIVE = Amounts(usd=5.0)
DAY = 24 * 3600


def refusal(desk: Desk, task_id: str) -> Refused:
    with pytest.raises(Refused) as caught:
        desk.start(task_id)
    return caught.value


def daily(desk: Desk, **amounts: Any) -> None:
    desk.ledger.set_limits("worker", RoleLimits(daily=Amounts(**amounts)))


# -- per role and day --------------------------------------------------------------------------


def test_a_claim_is_held_once_the_days_budget_is_reached(desk: Desk) -> None:
    daily(desk, usd=5.0)
    for number in range(3):
        desk.submit(f"task-{number}")
    assert desk.claim(1) == ["task-0"]
    desk.spend("task-0", 4.99)
    assert desk.claim(1) == ["task-1"]
    desk.spend("task-1", 0.01)
    # Reached: nothing new starts, and both ways of asking say why; what runs goes on.
    assert desk.claim(1) == []
    assert "5 of 5 usd are spent" in refusal(desk, "task-2").cause
    assert refusal(desk, "task-2").code == "budget"
    assert "budget of role worker" in desk.causes("task-2")
    assert "5 of 5 usd are spent" in desk.causes("task-2")
    for name in ("task-0", "task-1"):
        assert desk.report(name).state is State.COMPLETE
    # The next day, of the store's clock and in UTC, begins with nothing spent.
    desk.clock.forward(DAY)
    assert "budget" not in desk.causes("task-2")
    assert desk.claim(1) == ["task-2"]


def test_every_way_of_saying_a_cost_counts(desk: Desk) -> None:
    for name in ("a", "b", "c"):
        desk.submit(name, labels={"team": "core"})
        desk.start(name)
    desk.spend("a", 1.0)
    desk.ledger.report(desk.key("b"), Report(1, "done", cost=Amounts(usd=2.0, tokens=10)))
    desk.ledger.fail(desk.key("c"), 1, "no", FailureKind.TRANSIENT, Amounts(usd=4.0, turns=1))
    total = Amounts(7.0, 10, 1)
    views = desk.ledger.views
    assert views.costs("role") == {"worker": total}
    assert views.costs("label") == {"team=core": total}
    assert views.costs("day") == {"2023-11-14": total}
    with pytest.raises(Invalid, match="role, label, day"):
        views.costs("moon")


def test_what_was_refused_costs_nothing(desk: Desk) -> None:
    desk.submit()
    key = desk.start().key
    desk.report()
    for _ in range(2):
        with pytest.raises(Refused):
            desk.ledger.spend(key, 1, FIVE)
    # Nor does a report that is told twice cost twice.
    desk.ledger.report(key, Report(1, "done", cost=FIVE))
    assert desk.ledger.views.costs("role") == {}


def test_a_task_that_does_not_fit_is_passed_over(desk: Desk) -> None:
    # Given 2 of 5 dollars left of the day,
    daily(desk, usd=5.0)
    desk.submit("spender")
    desk.start("spender")
    desk.spend("spender", 3.0)
    # when larger tasks stand in front of a smaller one and one that says nothing,
    for number in range(150):
        desk.submit(f"big-{number}", budget=FIVE)
    desk.submit("small", budget=Amounts(usd=2.0))
    desk.submit("silent")
    # then those are given,
    assert desk.claim(2) == ["small", "silent"]
    # and the others know why they wait.
    assert desk.claim(2) == []
    assert "it may spend 5 usd, and 2 of the 5 usd of this day" in desk.causes("big-0")
    assert refusal(desk, "big-0").code == "budget"


def test_what_a_task_has_spent_already_need_not_fit_again(desk: Desk) -> None:
    desk.submit("task-1", budget=FIVE)
    held = desk.start()
    desk.spend("task-1", 4.0)
    desk.ledger.release(held.key, 1)
    daily(desk, usd=5.0)
    # One dollar of its own budget is left, and one of the day's.
    assert desk.claim() == ["task-1"]


@pytest.mark.parametrize("unit", ["tokens", "turns", "seconds"])
def test_other_units_are_budgets_too(desk: Desk, unit: str) -> None:
    daily(desk, **{unit: 100})
    desk.submit("a")
    desk.submit("b")
    held = desk.start("a")
    desk.ledger.spend(held.key, 1, Amounts(**{unit: 100}))
    assert desk.claim() == []
    assert f"100 of 100 {unit} are spent" in desk.causes("b")


def test_a_roles_budget_is_its_own_and_survives_being_seen(desk: Desk) -> None:
    daily(desk, usd=1.0)
    desk.submit("a", to="other")
    desk.start("a")
    desk.spend("a", 9.0)
    desk.submit("b")
    desk.clock.forward(31)
    assert desk.claim() == ["b"]
    assert desk.ledger.views.limits()["worker"] == RoleLimits(daily=Amounts(usd=1.0))


def test_pruning_keeps_what_roles_spent(desk: Desk) -> None:
    desk.submit(labels={"pr": "7"})
    desk.start()
    desk.spend("task-1", 1.5)
    desk.report()
    desk.clock.forward(2 * DAY)
    desk.ledger.prune(desk.clock.now, lambda _: None)
    assert desk.ledger.views.costs("role") == {"worker": Amounts(usd=1.5)}
    assert desk.ledger.views.costs("label") == {}


# -- per tree ----------------------------------------------------------------------------------


def family(desk: Desk, **amounts: Any) -> None:
    """A root with a budget for its tree, its child, and its grandchild."""
    desk.submit("root", tree_budget=Amounts(**(amounts or {"usd": 5.0})))
    desk.submit("child", parent="root")
    desk.submit("grandchild", parent="child")
    desk.submit("stranger")


def under(desk: Desk, parent: str, child: str, **fields: Any) -> Task:
    """Submit as the attempt that holds the parent."""
    spec = Spec(child, "worker", parent=parent, **fields)
    return desk.ledger.submit([spec], fence=(desk.key(parent), desk.task(parent).epoch))[0].task


def test_a_whole_tree_spends_from_one_budget(desk: Desk) -> None:
    family(desk)
    for name, usd in (("root", 1.0), ("child", 2.0), ("grandchild", 1.99)):
        desk.start(name)
        assert desk.spend(name, usd).state is State.IN_PROGRESS
    # Whoever uses it up is blocked, with the numbers, and told to stop.
    desk.ledger.open_lanes("delivery")
    task = desk.spend("grandchild", 0.01)
    assert (task.state, task.memo.reason_kind) == (State.BLOCKED, "budget")
    assert "5 of 5 usd are spent by root and its descendants" in task.reason
    assert [each["effect"] for each in desk.effects("delivery")] == ["StopHolder"]
    # Others of the tree may not start, and those that run are blocked as soon as they spend.
    assert desk.spend("child", 0.5).state is State.BLOCKED


def test_the_trees_other_tasks_are_held_and_say_so(desk: Desk) -> None:
    family(desk)
    desk.start("root")
    desk.spend("root", 6.0)
    assert desk.claim(9) == ["stranger"]
    assert "6 of 5 usd are spent by root and its descendants" in desk.causes("child")
    error = refusal(desk, "grandchild")
    assert error.code == "budget" and "6 of 5 usd" in error.cause
    assert "limits --tree root" in error.remedy


def test_a_report_is_accepted_and_holds_the_rest(desk: Desk) -> None:
    family(desk)
    desk.ledger.open_lanes("notify")
    key = desk.start("child").key
    done = desk.ledger.report(key, Report(1, "done", cost=FIVE))
    assert done.state is State.COMPLETE
    assert [each["kind"] for each in desk.effects("notify")] == ["budget_used_up"]
    assert desk.claim(9) == ["stranger"]


def test_a_failure_that_uses_it_up_blocks(desk: Desk) -> None:
    family(desk)
    key = desk.start("child").key
    task = desk.ledger.fail(key, 1, "no", FailureKind.TRANSIENT, FIVE)
    assert (task.state, task.memo.reason_kind) == (State.BLOCKED, "budget")


def test_it_warns_once_when_most_is_spent(desk: Desk) -> None:
    family(desk)
    desk.ledger.open_lanes("notify")
    for name in ("root", "child"):
        desk.start(name)
    for name in ("root", "child", "root", "child", "root"):
        desk.spend(name, 0.9)
    said = desk.effects("notify")
    assert [each["kind"] for each in said] == ["budget_low"]
    assert "4.5 of 5 usd are spent by root" in said[0]["text"]


def test_children_of_an_attempt_and_next_tasks_belong_to_the_tree(desk: Desk) -> None:
    desk.submit(
        "root", tree_budget=FIVE, next=(Spec("later", "worker", next=(Spec("last", "w"),)),)
    )
    desk.start("root")
    under(desk, "root", "child")
    desk.spend("root", 2.0)
    desk.report("root")
    desk.start("later")
    desk.spend("later", 2.0)
    desk.report("later")
    desk.start("child")
    desk.spend("child", 1.0)
    assert desk.state("child") is State.BLOCKED
    assert desk.claim(9, role="w") == []
    assert "root and its descendants" in desk.causes("last")


def test_a_tree_within_a_tree_has_both_budgets(desk: Desk) -> None:
    desk.submit("root", tree_budget=FIVE)
    desk.submit("branch", parent="root", tree_budget=Amounts(usd=1.0))
    desk.submit("leaf", parent="branch")
    desk.submit("twig", parent="root")
    desk.start("leaf")
    assert "by branch" in desk.spend("leaf", 1.0).reason
    # The inner one is used up, the outer one is not.
    assert desk.claim(9) == ["root", "twig"]
    desk.spend("twig", 4.0)
    assert desk.state("twig") is State.BLOCKED


def test_a_batch_may_bring_a_tree_in_any_order(desk: Desk) -> None:
    desk.submit_many(
        Spec("leaf", "worker", parent="branch"),
        Spec("branch", "worker", parent="root"),
        Spec("root", "worker", tree_budget=FIVE),
        # Nonsense is possible and leads nowhere.
        Spec("ring-a", "worker", parent="ring-b"),
        Spec("ring-b", "worker", parent="ring-a"),
        Spec("orphan", "worker", parent="nobody"),
    )
    desk.start("leaf")
    assert desk.spend("leaf", 5.0).state is State.BLOCKED
    assert desk.claim(9) == ["ring-a", "ring-b", "orphan"]


def test_an_answer_with_money_raises_the_trees_budget(desk: Desk) -> None:
    family(desk)
    key = desk.start("child").key
    desk.spend("child", 5.0)
    # Without money, or with too little, it would only be blocked again: refused, nothing changes.
    for extra in (Amounts(), Amounts(tokens=5)):
        with pytest.raises(Refused, match="5 of 5 usd are spent by root"):
            desk.ledger.answer(key, "boss", "go on", Resolution.RETRY, extra)
    assert desk.claim(9) == ["stranger"]
    desk.rung.clear()
    task = desk.ledger.answer(key, "boss", "go on", Resolution.RETRY, Amounts(usd=2.0))
    # What was granted is the tree's: the task has no budget of its own to raise.
    assert (task.state, task.memo.extra_budget) == (State.READY, Amounts())
    assert role_topic("worker") in desk.rung
    assert desk.claim(9) == ["root", "child", "grandchild"]
    assert desk.spend("root", 1.99).state is State.IN_PROGRESS
    assert "7 of 7 usd" in desk.spend("grandchild", 0.01).reason


def test_a_question_is_answered_whatever_was_spent(desk: Desk) -> None:
    family(desk)
    key = desk.start("child").key
    desk.start("root")
    desk.ledger.block(key, 1, "which branch?")
    desk.spend("root", 5.0)
    assert desk.ledger.answer(key, "boss", "main").state is State.READY
    assert desk.claim(9) == ["stranger"]
    assert desk.ledger.answer(desk.key("root"), "boss", "", Resolution.GIVE_UP).is_terminal


def test_a_budget_can_be_raised_when_nobody_is_blocked(desk: Desk) -> None:
    family(desk)
    desk.start("child")
    desk.ledger.report(desk.key("child"), Report(1, "done", cost=FIVE))
    assert desk.claim(9) == ["stranger"]
    desk.rung.clear()
    desk.ledger.raise_tree(desk.key("root"), "boss", Amounts(usd=1.0))
    assert role_topic("worker") in desk.rung
    assert desk.claim(9) == ["root", "grandchild"]
    assert desk.kinds("root") == ["submitted", "commented", "claimed"]
    with pytest.raises(Refused, match="no budget for a tree"):
        desk.ledger.raise_tree(desk.key("stranger"), "boss", FIVE)


def test_own_budget_and_tree_are_raised_together(desk: Desk) -> None:
    desk.submit("root", budget=FIVE, tree_budget=FIVE)
    key = desk.start("root").key
    assert desk.spend("root", 5.0).state is State.BLOCKED
    task = desk.ledger.answer(key, "boss", "", Resolution.RETRY, Amounts(usd=1.0))
    assert task.memo.extra_budget == Amounts(usd=1.0)
    assert desk.claim() == ["root"]


def test_the_tree_outlives_its_root(desk: Desk) -> None:
    family(desk)
    desk.start("root")
    desk.ledger.report(desk.key("root"), Report(1, "done", cost=Amounts(usd=4.0)))
    desk.clock.forward(60)
    desk.ledger.prune(desk.clock.now, lambda _: None)
    desk.start("child")
    assert "by root" in desk.spend("child", 1.0).reason


def test_changes_asked_for_do_not_get_round_it(desk: Desk) -> None:
    desk.submit("root", tree_budget=FIVE, review=True)
    key = desk.start("root").key
    desk.ledger.report(key, Report(1, "done", cost=FIVE))
    assert desk.ledger.verdict(key, "boss", Ruling.CHANGES, "more").state is State.READY
    assert desk.claim() == []


def test_costs_of_many_in_one_transaction(desk: Desk) -> None:
    family(desk)
    for name in ("root", "child"):
        desk.start(name)
    reports = [
        (desk.key(name), Report(1, "done", cost=Amounts(usd=2.5))) for name in ("root", "child")
    ]
    outcomes = desk.ledger.tell_many(reports)
    assert [each.state for each in outcomes if isinstance(each, Task)] == [State.COMPLETE] * 2
    assert desk.claim(9) == ["stranger"]
    assert desk.ledger.views.costs("role") == {"worker": FIVE}


@pytest.mark.parametrize("budget", [Amounts(usd=-1.0), Amounts(usd=float("nan")), "5"])
def test_a_budget_is_a_number(desk: Desk, budget: Any) -> None:
    with pytest.raises(Invalid, match="tree_budget"):
        desk.submit("root", tree_budget=budget)
    with pytest.raises(Invalid, match="daily"):
        desk.ledger.set_limits("worker", RoleLimits(daily=budget))
