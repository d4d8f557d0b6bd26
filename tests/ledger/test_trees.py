"""Trees of tasks: cancelled to the last of them, and never waiting for themselves."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.errors import AgentqError, Refused
from agentq.core.states import State
from agentq.core.task import Gates, Spec, Usage
from tests.ledger.conftest import LedgerEnv

WAITS = State.PENDING


def submit_child(env: LedgerEnv, parent: str, *specs: Spec) -> None:
    """Submit as the attempt that holds the parent."""
    task = env.task(parent)
    env.ledger.submit(specs, (), (env.key(parent), task.epoch))


def child(task_id: str, parent: str, **fields: object) -> Spec:
    return Spec(task_id, "worker", parent=parent, **fields)  # type: ignore[arg-type]


def test_a_cancelled_tree_has_no_open_task_below_one_that_is_over(env: LedgerEnv) -> None:
    """A child may complete and leave its own behind: they belong to the tree all the same."""
    env.submit("root")
    env.start("root")
    submit_child(env, "root", child("left", "root"), child("dead", "root"))
    for name in ("left", "dead"):
        env.start(name)
        submit_child(env, name, child(f"{name}.below", name))
    env.report("left", leaves_children=True)
    env.ledger.fail(env.key("dead"), 1, "no", t.FailureKind.INVALID)
    env.start("left.below")

    env.ledger.apply(env.key("root"), t.Cancel("boss", "not needed", tree=True))

    assert env.states("left", "dead") == [State.COMPLETE, State.FAILED]
    assert env.states("root", "left.below", "dead.below") == [State.CANCELLED] * 3


def test_what_followed_a_completed_child_is_cancelled_with_the_tree(env: LedgerEnv) -> None:
    env.submit("root")
    env.start("root")
    following = Spec("third", "worker", next=(Spec("fourth", "worker"),))
    submit_child(env, "root", child("second", "root", next=(following,)))
    env.complete("second", "third")
    assert env.state("fourth") is State.READY

    env.ledger.apply(env.key("root"), t.Cancel("boss", "not needed", tree=True))

    assert env.states("second", "third", "fourth") == [
        State.COMPLETE, State.COMPLETE, State.CANCELLED,
    ]  # fmt: skip


def test_without_the_tree_the_children_go_on(env: LedgerEnv) -> None:
    env.submit("root")
    env.start("root")
    submit_child(env, "root", child("below", "root"))
    env.ledger.apply(env.key("root"), t.Cancel("boss"))
    assert env.states("root", "below") == [State.CANCELLED, State.READY]


def test_two_that_leave_in_one_transaction_do_not_wait_for_each_other(env: LedgerEnv) -> None:
    """Each of them alone may leave; the second sees that the first has."""
    env.submit("root")
    env.start("root")
    submit_child(env, "root", child("middle", "root"))
    env.start("middle")
    submit_child(env, "middle", child("low", "middle", after=("root",)))

    outcomes = env.ledger.apply_many(
        [(env.key("root"), t.Yield(1)), (env.key("middle"), t.Yield(1))]
    )

    assert isinstance(outcomes[1], AgentqError) and outcomes[1].code == "cycle"
    assert env.states("root", "middle") == [WAITS, State.IN_PROGRESS]


def test_a_new_child_does_not_come_after_its_waiting_parent_by_way_of_another(
    env: LedgerEnv,
) -> None:
    env.submit("root")
    env.start("root")
    submit_child(env, "root", child("first", "root"))
    env.ledger.apply(env.key("root"), t.Yield(1))
    before = env.snapshot()

    between = Spec("between", "worker", after=("root",))
    with pytest.raises(Refused) as refusal:
        env.submit_many(between, child("second", "root", after=("between",)))

    assert refusal.value.code == "cycle"
    assert env.snapshot() == before


def test_a_review_is_not_given_to_the_role_that_did_the_work(env: LedgerEnv) -> None:
    env.submit("work", gates=Gates(reviewer="judge"))
    env.start("work")
    env.report("work")
    review = env.task("work").details.review_task

    with pytest.raises(Refused) as refusal:
        env.ledger.edit(env.key(review), t.Edit("boss", to="worker"))

    assert refusal.value.code == "self_review"
    env.ledger.edit(env.key(review), t.Edit("boss", to="another"))
    assert env.task(review).to == "another"


def test_a_dead_letter_made_of_a_template_waits_for_its_resources_once_it_is_reopened(
    env: LedgerEnv,
) -> None:
    """Whoever claims passes over it, instead of picking it for ever."""
    env.submit("other", resources=("repo",))
    env.submit("first", next=(Spec("part", "worker", each="result.parts", resources=("repo",)),))
    env.complete("first")
    assert env.state("part") is State.FAILED
    env.ledger.requeue(env.key("part"), "boss")

    assert env.claim() == ["other"]
    assert env.claim() == []
    env.report("other")
    assert env.claim() == ["part"]


def test_a_dead_letter_made_of_a_template_belongs_to_its_tree_once_it_is_reopened(
    env: LedgerEnv,
) -> None:
    """What it spends, its tree spends."""
    part = Spec("part", "worker", each="result.parts")
    env.submit("first", tree_budget=Usage(usd=1), next=(part, Spec("last", "worker")))
    env.complete("first")
    env.ledger.requeue(env.key("part"), "boss")
    env.start("part")
    env.spend("part", usd=2)
    assert env.state("part") is State.BLOCKED
    with pytest.raises(Refused) as refusal:
        env.start("last")
    assert refusal.value.code == "budget"


def test_a_dead_letter_made_of_a_template_is_reopened_and_said_in_other_words(
    env: LedgerEnv,
) -> None:
    part = Spec("part", "worker", each="result.parts", instructions="do {{ item }}")
    env.submit("first", next=(part,))
    env.complete("first")
    env.ledger.requeue(env.key("part"), "boss")
    edited = env.ledger.edit(env.key("part"), t.Edit("boss", instructions="do all of it"))
    assert edited.spec.instructions == "do all of it"
    assert env.claim() == ["part"]
