"""What a role may spend a day, and what a task may spend with all that descend from it."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.doorbell import role_topic
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import RoleLimits
from agentq.core.states import State
from agentq.core.task import Spec, Task, Usage
from agentq.core.triggers import FailureKind, Report, Resolution, Ruling
from tests.ledger.conftest import LedgerEnv

FIVE = Usage(usd=5.0)
DAY = 24 * 3600


def refusal(env: LedgerEnv, task_id: str) -> Refused:
    with pytest.raises(Refused) as caught:
        env.start(task_id)
    return caught.value


def daily(env: LedgerEnv, **usage: Any) -> None:
    env.ledger.set_limits("worker", RoleLimits(daily=Usage(**usage)))


# -- per role and day --------------------------------------------------------------------------


def test_a_claim_is_held_once_the_days_budget_is_reached(env: LedgerEnv) -> None:
    daily(env, usd=5.0)
    for number in range(3):
        env.submit(f"task-{number}")
    assert env.claim(1) == ["task-0"]
    env.spend("task-0", 4.99)
    assert env.claim(1) == ["task-1"]
    env.spend("task-1", 0.01)
    # Reached: nothing new starts, and both ways of asking say why; what runs goes on.
    assert env.claim(1) == []
    assert "5 of 5 usd are spent" in refusal(env, "task-2").cause
    assert refusal(env, "task-2").code == "budget"
    assert "budget of role worker" in env.causes("task-2")
    assert "5 of 5 usd are spent" in env.causes("task-2")
    for name in ("task-0", "task-1"):
        assert env.report(name).state is State.COMPLETE
    # The next day, of the store's clock and in UTC, begins with nothing spent.
    env.clock.forward(DAY)
    assert "budget" not in env.causes("task-2")
    assert env.claim(1) == ["task-2"]


def test_every_way_of_saying_a_cost_counts(env: LedgerEnv) -> None:
    for name in ("a", "b", "c"):
        env.submit(name, labels={"team": "core"})
        env.start(name)
    env.spend("a", 1.0)
    env.ledger.report(env.key("b"), Report(1, "done", cost=Usage(usd=2.0, tokens=10)))
    env.ledger.fail(env.key("c"), 1, "no", FailureKind.TRANSIENT, Usage(usd=4.0, turns=1))
    total = Usage(7.0, 10, 1)
    queries = env.ledger.queries
    assert queries.costs("role") == {"worker": total}
    assert queries.costs("label") == {"team=core": total}
    assert queries.costs("day") == {"2023-11-14": total}
    with pytest.raises(Invalid, match="role, label, day"):
        queries.costs("moon")


def test_what_was_refused_costs_nothing(env: LedgerEnv) -> None:
    env.submit()
    key = env.start().key
    env.report()
    for _ in range(2):
        with pytest.raises(Refused):
            env.ledger.spend(key, 2, FIVE)
    # Nor does a report that is told twice cost twice.
    env.ledger.report(key, Report(1, "done", cost=FIVE))
    assert env.ledger.queries.costs("role") == {}


def test_a_clock_that_was_set_back_moves_no_cost_to_the_day_before(env: LedgerEnv) -> None:
    env.clock.now = 1_700_006_400_000  # 2023-11-15, 00:00
    env.submit()
    env.start()
    env.clock.forward(-60)
    env.spend("task-1", 1.5)
    assert env.ledger.queries.costs("day") == {"2023-11-15": Usage(usd=1.5)}
    assert env.problems() == []


def test_what_is_known_after_a_report_counts_for_the_day_and_for_the_tree(env: LedgerEnv) -> None:
    daily(env, usd=5.0)
    env.submit("root", tree_budget=Usage(usd=4.0))
    for name in ("task-1", "next"):
        env.submit(name, parent="root")
    key = env.start("task-1").key
    env.report("task-1")
    env.ledger.spend(key, 1, FIVE)
    assert env.task("task-1").details.spent == FIVE
    assert env.ledger.queries.costs("role") == {"worker": FIVE}
    assert env.claim(2) == []
    causes = env.causes("next")
    assert "5 of 5 usd are spent" in causes and "5 of 4 usd are spent by root" in causes


def test_a_task_that_does_not_fit_is_passed_over(env: LedgerEnv) -> None:
    # Given 2 of 5 dollars left of the day,
    daily(env, usd=5.0)
    env.submit("spender")
    env.start("spender")
    env.spend("spender", 3.0)
    # when larger tasks stand in front of a smaller one and one that says nothing,
    for number in range(150):
        env.submit(f"big-{number}", budget=FIVE)
    env.submit("small", budget=Usage(usd=2.0))
    env.submit("silent")
    # then those are given,
    assert env.claim(2) == ["small", "silent"]
    # and the others know why they wait.
    assert env.claim(2) == []
    assert "it may spend 5 usd, and 2 of the 5 usd of this day" in env.causes("big-0")
    assert refusal(env, "big-0").code == "budget"


def test_what_a_task_has_spent_already_need_not_fit_again(env: LedgerEnv) -> None:
    env.submit("task-1", budget=FIVE)
    held = env.start()
    env.spend("task-1", 4.0)
    env.ledger.release(held.key, 1)
    daily(env, usd=5.0)
    # One dollar of its own budget is left, and one of the day's.
    assert env.claim() == ["task-1"]


@pytest.mark.parametrize("unit", ["tokens", "turns", "seconds"])
def test_other_units_are_budgets_too(env: LedgerEnv, unit: str) -> None:
    daily(env, **{unit: 100})
    env.submit("a")
    env.submit("b")
    held = env.start("a")
    env.ledger.spend(held.key, 1, Usage(**{unit: 100}))
    assert env.claim() == []
    assert f"100 of 100 {unit} are spent" in env.causes("b")


def test_a_roles_budget_is_its_own_and_survives_being_seen(env: LedgerEnv) -> None:
    daily(env, usd=1.0)
    env.submit("a", to="other")
    env.start("a")
    env.spend("a", 9.0)
    env.submit("b")
    env.clock.forward(31)
    assert env.claim() == ["b"]
    assert env.ledger.queries.limits()["worker"] == RoleLimits(daily=Usage(usd=1.0))


def test_pruning_keeps_what_roles_spent(env: LedgerEnv) -> None:
    env.submit(labels={"pr": "7"})
    env.start()
    env.spend("task-1", 1.5)
    env.report()
    env.clock.forward(2 * DAY)
    env.ledger.prune(env.clock.now, lambda _: None)
    assert env.ledger.queries.costs("role") == {"worker": Usage(usd=1.5)}
    assert env.ledger.queries.costs("label") == {}


# -- per tree ----------------------------------------------------------------------------------


def family(env: LedgerEnv, **usage: Any) -> None:
    """A root with a budget for its tree, its child, and its grandchild."""
    env.submit("root", tree_budget=Usage(**(usage or {"usd": 5.0})))
    env.submit("child", parent="root")
    env.submit("grandchild", parent="child")
    env.submit("stranger")


def under(env: LedgerEnv, parent: str, child: str, **fields: Any) -> Task:
    """Submit as the attempt that holds the parent."""
    spec = Spec(child, "worker", parent=parent, **fields)
    return env.ledger.submit([spec], fence=(env.key(parent), env.task(parent).epoch))[0].task


def test_a_whole_tree_spends_from_one_budget(env: LedgerEnv) -> None:
    family(env)
    for name, usd in (("root", 1.0), ("child", 2.0), ("grandchild", 1.99)):
        env.start(name)
        assert env.spend(name, usd).state is State.IN_PROGRESS
    # Whoever uses it up is blocked, with the numbers, and told to stop.
    env.ledger.open_lanes("delivery")
    task = env.spend("grandchild", 0.01)
    assert (task.state, task.details.reason_kind) == (State.BLOCKED, "budget")
    assert "5 of 5 usd are spent by root and its descendants" in task.reason
    assert [each["effect"] for each in env.effects("delivery")] == ["StopHolder"]
    # Others of the tree may not start, and those that run are blocked as soon as they spend.
    assert env.spend("child", 0.5).state is State.BLOCKED


def test_the_trees_other_tasks_are_held_and_say_so(env: LedgerEnv) -> None:
    family(env)
    env.start("root")
    env.spend("root", 6.0)
    assert env.claim(9) == ["stranger"]
    assert "6 of 5 usd are spent by root and its descendants" in env.causes("child")
    error = refusal(env, "grandchild")
    assert error.code == "budget" and "6 of 5 usd" in error.cause
    assert "limits --tree root" in error.remedy


def test_a_report_is_accepted_and_holds_the_rest(env: LedgerEnv) -> None:
    family(env)
    env.ledger.open_lanes("notify")
    env.start("child")
    done = env.report("child", cost=FIVE, leaves_children=True)
    assert done.state is State.COMPLETE
    assert [each["kind"] for each in env.effects("notify")] == ["budget_used_up"]
    assert env.claim(9) == ["stranger"]


def test_a_failure_that_uses_it_up_blocks(env: LedgerEnv) -> None:
    family(env)
    key = env.start("child").key
    task = env.ledger.fail(key, 1, "no", FailureKind.TRANSIENT, FIVE)
    assert (task.state, task.details.reason_kind) == (State.BLOCKED, "budget")


def test_it_warns_once_when_most_is_spent(env: LedgerEnv) -> None:
    family(env)
    env.ledger.open_lanes("notify")
    for name in ("root", "child"):
        env.start(name)
    for name in ("root", "child", "root", "child", "root"):
        env.spend(name, 0.9)
    incoming = env.effects("notify")
    assert [each["kind"] for each in incoming] == ["budget_low"]
    assert "4.5 of 5 usd are spent by root" in incoming[0]["text"]


def test_children_of_an_attempt_and_next_tasks_belong_to_the_tree(env: LedgerEnv) -> None:
    env.submit("root", tree_budget=FIVE, next=(Spec("later", "worker", next=(Spec("last", "w"),)),))
    env.start("root")
    under(env, "root", "child")
    env.spend("root", 2.0)
    env.report("root", leaves_children=True)
    env.start("later")
    env.spend("later", 2.0)
    env.report("later")
    env.start("child")
    env.spend("child", 1.0)
    assert env.state("child") is State.BLOCKED
    assert env.claim(9, role="w") == []
    assert "root and its descendants" in env.causes("last")


def test_a_tree_within_a_tree_has_both_budgets(env: LedgerEnv) -> None:
    env.submit("root", tree_budget=FIVE)
    env.submit("branch", parent="root", tree_budget=Usage(usd=1.0))
    env.submit("leaf", parent="branch")
    env.submit("twig", parent="root")
    env.start("leaf")
    assert "by branch" in env.spend("leaf", 1.0).reason
    # The inner one is used up, the outer one is not.
    assert env.claim(9) == ["root", "twig"]
    env.spend("twig", 4.0)
    assert env.state("twig") is State.BLOCKED


def test_a_batch_may_bring_a_tree_in_any_order(env: LedgerEnv) -> None:
    env.submit_many(
        Spec("leaf", "worker", parent="branch"),
        Spec("branch", "worker", parent="root"),
        Spec("root", "worker", tree_budget=FIVE),
        # Nonsense is possible and leads nowhere.
        Spec("ring-a", "worker", parent="ring-b"),
        Spec("ring-b", "worker", parent="ring-a"),
        Spec("orphan", "worker", parent="nobody"),
    )
    env.start("leaf")
    assert env.spend("leaf", 5.0).state is State.BLOCKED
    assert env.claim(9) == ["ring-a", "ring-b", "orphan"]


def test_an_answer_with_money_raises_the_trees_budget(env: LedgerEnv) -> None:
    family(env)
    key = env.start("child").key
    env.spend("child", 5.0)
    # Without money, or with too little, it would only be blocked again: refused, nothing changes.
    for extra in (Usage(), Usage(tokens=5)):
        with pytest.raises(Refused, match="5 of 5 usd are spent by root"):
            env.ledger.answer(key, "boss", "go on", Resolution.RETRY, extra)
    assert env.claim(9) == ["stranger"]
    env.rung.clear()
    task = env.ledger.answer(key, "boss", "go on", Resolution.RETRY, Usage(usd=2.0))
    # What was granted is the tree's: the task has no budget of its own to raise.
    assert (task.state, task.details.extra_budget) == (State.READY, Usage())
    assert role_topic("worker") in env.rung
    assert env.claim(9) == ["root", "child", "grandchild"]
    assert env.spend("root", 1.99).state is State.IN_PROGRESS
    assert "7 of 7 usd" in env.spend("grandchild", 0.01).reason


def test_a_question_is_answered_whatever_was_spent(env: LedgerEnv) -> None:
    family(env)
    key = env.start("child").key
    env.start("root")
    env.ledger.block(key, 1, "which branch?")
    env.spend("root", 5.0)
    assert env.ledger.answer(key, "boss", "main").state is State.READY
    assert env.claim(9) == ["stranger"]
    assert env.ledger.answer(env.key("root"), "boss", "", Resolution.GIVE_UP).is_terminal


def test_a_budget_can_be_raised_when_nobody_is_blocked(env: LedgerEnv) -> None:
    family(env)
    env.start("child")
    env.report("child", cost=FIVE, leaves_children=True)
    assert env.claim(9) == ["stranger"]
    env.rung.clear()
    env.ledger.raise_tree(env.key("root"), "boss", Usage(usd=1.0))
    assert role_topic("worker") in env.rung
    assert env.claim(9) == ["root", "grandchild"]
    assert env.kinds("root")[-2:] == ["commented", "claimed"]
    with pytest.raises(Refused, match="no budget for a tree"):
        env.ledger.raise_tree(env.key("stranger"), "boss", FIVE)


def test_own_budget_and_tree_are_raised_together(env: LedgerEnv) -> None:
    env.submit("root", budget=FIVE, tree_budget=FIVE)
    key = env.start("root").key
    assert env.spend("root", 5.0).state is State.BLOCKED
    task = env.ledger.answer(key, "boss", "", Resolution.RETRY, Usage(usd=1.0))
    assert task.details.extra_budget == Usage(usd=1.0)
    assert env.claim() == ["root"]


def test_the_tree_outlives_its_root(env: LedgerEnv) -> None:
    family(env)
    env.start("root")
    env.report("root", cost=Usage(usd=4.0), leaves_children=True)
    env.clock.forward(60)
    env.ledger.prune(env.clock.now, lambda _: None)
    env.start("child")
    assert "by root" in env.spend("child", 1.0).reason


def test_changes_asked_for_do_not_get_round_it(env: LedgerEnv) -> None:
    env.submit("root", tree_budget=FIVE, review=True)
    key = env.start("root").key
    env.ledger.report(key, Report(1, "done", cost=FIVE))
    assert env.ledger.verdict(key, "boss", Ruling.CHANGES, "more").state is State.READY
    assert env.claim() == []


def test_costs_of_many_in_one_transaction(env: LedgerEnv) -> None:
    family(env)
    for name in ("root", "child"):
        env.start(name)
    report = Report(1, "done", cost=Usage(usd=2.5), leaves_children=True)
    reports = [(env.key(name), report) for name in ("root", "child")]
    outcomes = env.ledger.apply_many(reports)
    assert [each.state for each in outcomes if isinstance(each, Task)] == [State.COMPLETE] * 2
    assert env.claim(9) == ["stranger"]
    assert env.ledger.queries.costs("role") == {"worker": FIVE}


@pytest.mark.parametrize("budget", [Usage(usd=-1.0), Usage(usd=float("nan")), "5"])
def test_a_budget_is_a_number(env: LedgerEnv, budget: Any) -> None:
    with pytest.raises(Invalid, match="tree_budget"):
        env.submit("root", tree_budget=budget)
    with pytest.raises(Invalid, match="daily"):
        env.ledger.set_limits("worker", RoleLimits(daily=budget))
