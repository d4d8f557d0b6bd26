"""Dependencies in the ledger: decided with the parent's own end, and nothing waits forever."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from agentq.contracts.doorbell import role_topic
from agentq.core import triggers as t
from agentq.core.states import State
from agentq.core.task import OnDependencyFailure, Spec
from tests.ledger.conftest import LedgerEnv

FAIL, SKIP, RUN = OnDependencyFailure.FAIL, OnDependencyFailure.SKIP, OnDependencyFailure.RUN


def family(env: LedgerEnv, **child: Any) -> None:
    env.submit("parent")
    env.submit("child", after=("parent",), **child)


#: Every way in which a parent can end without having completed.
ENDS: dict[str, Callable[[LedgerEnv], object]] = {
    "failed": lambda env: env.fail("parent"),
    "cancelled": lambda env: env.ledger.cancel(env.key("parent"), "boss"),
    "expired": lambda env: (env.clock.forward(3601), env.ledger.tick()),
    "rejected": lambda env: (
        env.start("parent"),
        env.ledger.block(env.key("parent"), 1, "?"),
        env.ledger.reject(env.key("parent"), "boss"),
    ),
}


def test_a_child_is_claimable_when_its_parent_completes_and_not_before(env: LedgerEnv) -> None:
    family(env)
    assert env.state("child") is State.PENDING
    assert env.claim(5) == ["parent"]
    assert env.claim(5) == []
    env.report("parent")
    assert env.state("child") is State.READY
    assert env.claim(5) == ["child"]


def test_child_and_parent_change_in_one_transaction(env: LedgerEnv) -> None:
    # Given a parent and children, when it completes,
    env.submit("parent")
    for number in range(3):
        env.submit(f"child-{number}", to="other", after=("parent",))
    env.start("parent")
    position, env.rung[:] = env.ledger.queries.last_position(), []
    env.report("parent")
    # then the log shows its end and theirs side by side, and their workers are woken.
    events = [(e.task_id, e.event.kind) for e in env.ledger.queries.events_after(position)]
    assert events == [
        ("parent", "completed"),
        *((f"child-{number}", "dependency_ended") for number in range(3)),
    ]
    assert role_topic("other") in env.rung


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("policy", "becomes"), [(FAIL, State.FAILED), (SKIP, State.CANCELLED), (RUN, State.READY)]
)
def test_a_parent_that_did_not_complete_resolves_its_child(
    env: LedgerEnv, end: str, policy: OnDependencyFailure, becomes: State
) -> None:
    env.submit("parent", ttl_seconds=3600)
    env.submit("child", after=("parent",), on_dependency_failure=policy)
    ENDS[end](env)
    assert env.state("child") is becomes
    if becomes is not State.READY:
        assert "its dependency parent is" in env.task("child").reason


@pytest.mark.parametrize("end", ENDS)
def test_a_child_of_what_has_already_ended_is_resolved_at_submit(env: LedgerEnv, end: str) -> None:
    env.submit("parent", ttl_seconds=3600)
    ENDS[end](env)
    for policy, becomes in ((FAIL, State.FAILED), (SKIP, State.CANCELLED), (RUN, State.READY)):
        env.submit(f"child-{policy}", after=("parent",), on_dependency_failure=policy)
        assert env.state(f"child-{policy}") is becomes


def test_a_failure_runs_down_the_whole_line(env: LedgerEnv) -> None:
    # Given a long chain behind one task, when that fails,
    names = [f"t{number}" for number in range(300)]
    env.submit_many(
        Spec("t0", "worker"),
        *(Spec(name, "worker", after=(before,)) for before, name in pairwise(names)),
    )
    env.fail("t0")
    # then all of it has failed, in that one transaction, each for the reason before it.
    assert {env.state(name) for name in names} == {State.FAILED}
    assert env.task("t299").reason == "its dependency t298 is failed"


def test_skipping_is_passed_on_by_each_childs_own_policy(env: LedgerEnv) -> None:
    env.submit("a")
    env.submit("b", after=("a",), on_dependency_failure=SKIP)
    env.submit("c", after=("b",), on_dependency_failure=RUN)
    env.submit("d", after=("b",))
    env.fail("a")
    assert env.states("b", "c", "d") == [State.CANCELLED, State.READY, State.FAILED]


def test_a_diamond_joins_once(env: LedgerEnv) -> None:
    env.submit_many(
        Spec("top", "worker"),
        Spec("left", "worker", after=("top",)),
        Spec("right", "worker", after=("top",)),
        Spec("bottom", "worker", after=("left", "right")),
    )
    env.complete("top", "left")
    assert env.state("bottom") is State.PENDING
    env.complete("right")
    assert env.kinds("bottom") == ["submitted", "dependency_ended", "dependency_ended"]
    assert env.state("bottom") is State.READY


def test_parents_that_end_together_resolve_their_child_once(env: LedgerEnv) -> None:
    # Given a child of two, when both fail in the same transaction,
    keys = [env.submit("a"), env.submit("b")]
    env.submit("child", after=("a", "b"))
    env.claim(2)
    env.ledger.apply_many([(key, t.FailAttempt(1, "no", t.FailureKind.INVALID)) for key in keys])
    # then it fails once.
    assert env.kinds("child") == ["submitted", "failed"]


def test_a_parent_in_the_same_batch_that_is_over_at_once_resolves_its_child(env: LedgerEnv) -> None:
    env.submit("broken")
    env.fail("broken")
    env.submit_many(Spec("a", "worker", after=("broken",)), Spec("b", "worker", after=("a",)))
    assert env.states("a", "b") == [State.FAILED, State.FAILED]


def test_a_review_holds_the_children_back(env: LedgerEnv) -> None:
    env.submit("parent", review=True)
    env.submit("child", after=("parent",))
    env.start("parent")
    env.report("parent")
    assert env.state("child") is State.PENDING
    env.ledger.verdict(env.key("parent"), "boss", t.Ruling.ACCEPT)
    assert env.state("child") is State.READY


# -- children that ended on their own ----------------------------------------------------------


def _timed_out(env: LedgerEnv) -> int:
    env.clock.forward(61)
    env.ledger.tick()
    return env.key("child")


#: A child may end while it still waits for its parent.
CHILD_ENDS: dict[str, tuple[dict[str, object], Callable[[LedgerEnv], object]]] = {
    "cancelled": ({}, lambda env: env.ledger.cancel(env.key("child"), "boss")),
    "expired": ({"ttl_seconds": 60}, _timed_out),
    "rejected": (
        {"requires_approval": True},
        lambda env: env.ledger.reject(env.key("child"), "boss"),
    ),
    "given up": (
        {"requires_approval": True, "approval_timeout_seconds": 60},
        lambda env: env.ledger.answer(_timed_out(env), "boss", "", t.Resolution.GIVE_UP),
    ),
    "done by hand": (
        {"requires_approval": True, "approval_timeout_seconds": 60},
        lambda env: env.ledger.answer(_timed_out(env), "boss", "", t.Resolution.DONE),
    ),
}


@pytest.mark.parametrize("how", CHILD_ENDS)
@pytest.mark.parametrize("parent_fails", [False, True])
def test_a_child_that_is_over_does_not_stand_in_its_parents_way(
    env: LedgerEnv, how: str, parent_fails: bool
) -> None:
    # Given a child that ended before its parent,
    fields, end = CHILD_ENDS[how]
    family(env, **fields)
    end(env)
    before = env.task("child")
    assert before.is_terminal
    # when the parent ends in turn, then it can, and the child stays as it was.
    if parent_fails:
        assert env.fail("parent").state is State.FAILED
    else:
        env.complete("parent")
    assert env.task("child") == before


def test_a_blocked_child_is_settled_by_its_parents_failure(env: LedgerEnv) -> None:
    family(env, requires_approval=True, approval_timeout_seconds=60)
    _timed_out(env)
    assert env.state("child") is State.BLOCKED
    env.fail("parent")
    assert env.state("child") is State.FAILED


# -- reopening ---------------------------------------------------------------------------------


def test_a_reopened_child_waits_for_parents_that_are_under_way(env: LedgerEnv) -> None:
    # Given a child that failed with its parent, when both are reopened, the parent first,
    family(env)
    env.fail("parent")
    env.ledger.requeue(env.key("parent"), "boss")
    env.ledger.requeue(env.key("child"), "boss")
    # then the child waits as it did before,
    assert env.task("child").details.waiting_on == ("parent",)
    env.complete("parent")
    assert env.state("child") is State.READY


def test_a_reopened_parent_that_fails_again_resolves_a_reopened_child_again(env: LedgerEnv) -> None:
    family(env)
    env.fail("parent")
    for name in ("parent", "child"):
        env.ledger.requeue(env.key(name), "boss")
    env.fail("parent")
    assert env.state("child") is State.FAILED


def test_a_late_child_of_a_reopened_parent_waits_for_it(env: LedgerEnv) -> None:
    env.submit("parent")
    env.fail("parent")
    env.ledger.requeue(env.key("parent"), "boss")
    env.submit("child", after=("parent",))
    assert env.state("child") is State.PENDING
    env.complete("parent")
    assert env.state("child") is State.READY
