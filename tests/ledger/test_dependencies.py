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
from tests.ledger.conftest import Desk

FAIL, SKIP, RUN = OnDependencyFailure.FAIL, OnDependencyFailure.SKIP, OnDependencyFailure.RUN


def family(desk: Desk, **child: Any) -> None:
    desk.submit("parent")
    desk.submit("child", after=("parent",), **child)


#: Every way in which a parent can end without having completed.
ENDS: dict[str, Callable[[Desk], object]] = {
    "failed": lambda desk: desk.fail("parent"),
    "cancelled": lambda desk: desk.ledger.cancel(desk.key("parent"), "boss"),
    "expired": lambda desk: (desk.clock.forward(3601), desk.ledger.tick()),
    "rejected": lambda desk: (
        desk.start("parent"),
        desk.ledger.block(desk.key("parent"), 1, "?"),
        desk.ledger.reject(desk.key("parent"), "boss"),
    ),
}


def test_a_child_is_claimable_when_its_parent_completes_and_not_before(desk: Desk) -> None:
    family(desk)
    assert desk.state("child") is State.PENDING
    assert desk.claim(5) == ["parent"]
    assert desk.claim(5) == []
    desk.report("parent")
    assert desk.state("child") is State.READY
    assert desk.claim(5) == ["child"]


def test_child_and_parent_change_in_one_transaction(desk: Desk) -> None:
    # Given a parent and children, when it completes,
    desk.submit("parent")
    for number in range(3):
        desk.submit(f"child-{number}", to="other", after=("parent",))
    desk.start("parent")
    position, desk.rung[:] = desk.ledger.views.last_position(), []
    desk.report("parent")
    # then the log shows its end and theirs side by side, and their workers are woken.
    events = [(e.task_id, e.event.kind) for e in desk.ledger.views.events_after(position)]
    assert events == [
        ("parent", "completed"),
        *((f"child-{number}", "dependency_ended") for number in range(3)),
    ]
    assert role_topic("other") in desk.rung


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    ("policy", "becomes"), [(FAIL, State.FAILED), (SKIP, State.CANCELLED), (RUN, State.READY)]
)
def test_a_parent_that_did_not_complete_resolves_its_child(
    desk: Desk, end: str, policy: OnDependencyFailure, becomes: State
) -> None:
    desk.submit("parent", ttl_seconds=3600)
    desk.submit("child", after=("parent",), on_dependency_failure=policy)
    ENDS[end](desk)
    assert desk.state("child") is becomes
    if becomes is not State.READY:
        assert "its dependency parent is" in desk.task("child").reason


@pytest.mark.parametrize("end", ENDS)
def test_a_child_of_what_has_already_ended_is_resolved_at_submit(desk: Desk, end: str) -> None:
    desk.submit("parent", ttl_seconds=3600)
    ENDS[end](desk)
    for policy, becomes in ((FAIL, State.FAILED), (SKIP, State.CANCELLED), (RUN, State.READY)):
        desk.submit(f"child-{policy}", after=("parent",), on_dependency_failure=policy)
        assert desk.state(f"child-{policy}") is becomes


def test_a_failure_runs_down_the_whole_line(desk: Desk) -> None:
    # Given a long chain behind one task, when that fails,
    names = [f"t{number}" for number in range(300)]
    desk.submit_many(
        Spec("t0", "worker"),
        *(Spec(name, "worker", after=(before,)) for before, name in pairwise(names)),
    )
    desk.fail("t0")
    # then all of it has failed, in that one transaction, each for the reason before it.
    assert {desk.state(name) for name in names} == {State.FAILED}
    assert desk.task("t299").reason == "its dependency t298 is failed"


def test_skipping_is_passed_on_by_each_childs_own_policy(desk: Desk) -> None:
    desk.submit("a")
    desk.submit("b", after=("a",), on_dependency_failure=SKIP)
    desk.submit("c", after=("b",), on_dependency_failure=RUN)
    desk.submit("d", after=("b",))
    desk.fail("a")
    assert desk.states("b", "c", "d") == [State.CANCELLED, State.READY, State.FAILED]


def test_a_diamond_joins_once(desk: Desk) -> None:
    desk.submit_many(
        Spec("top", "worker"),
        Spec("left", "worker", after=("top",)),
        Spec("right", "worker", after=("top",)),
        Spec("bottom", "worker", after=("left", "right")),
    )
    desk.complete("top", "left")
    assert desk.state("bottom") is State.PENDING
    desk.complete("right")
    assert desk.kinds("bottom") == ["submitted", "dependency_ended", "dependency_ended"]
    assert desk.state("bottom") is State.READY


def test_parents_that_end_together_resolve_their_child_once(desk: Desk) -> None:
    # Given a child of two, when both fail in the same transaction,
    keys = [desk.submit("a"), desk.submit("b")]
    desk.submit("child", after=("a", "b"))
    desk.claim(2)
    desk.ledger.tell_many([(key, t.Fail(1, "no", t.FailureKind.INVALID)) for key in keys])
    # then it fails once.
    assert desk.kinds("child") == ["submitted", "failed"]


def test_a_parent_in_the_same_batch_that_is_over_at_once_resolves_its_child(desk: Desk) -> None:
    desk.submit("broken")
    desk.fail("broken")
    desk.submit_many(Spec("a", "worker", after=("broken",)), Spec("b", "worker", after=("a",)))
    assert desk.states("a", "b") == [State.FAILED, State.FAILED]


def test_a_review_holds_the_children_back(desk: Desk) -> None:
    desk.submit("parent", review=True)
    desk.submit("child", after=("parent",))
    desk.start("parent")
    desk.report("parent")
    assert desk.state("child") is State.PENDING
    desk.ledger.verdict(desk.key("parent"), "boss", t.Ruling.ACCEPT)
    assert desk.state("child") is State.READY


# -- children that ended on their own ----------------------------------------------------------


def _timed_out(desk: Desk) -> int:
    desk.clock.forward(61)
    desk.ledger.tick()
    return desk.key("child")


#: A child may end while it still waits for its parent.
CHILD_ENDS: dict[str, tuple[dict[str, object], Callable[[Desk], object]]] = {
    "cancelled": ({}, lambda desk: desk.ledger.cancel(desk.key("child"), "boss")),
    "expired": ({"ttl_seconds": 60}, _timed_out),
    "rejected": (
        {"requires_approval": True},
        lambda desk: desk.ledger.reject(desk.key("child"), "boss"),
    ),
    "given up": (
        {"requires_approval": True, "approval_timeout_seconds": 60},
        lambda desk: desk.ledger.answer(_timed_out(desk), "boss", "", t.Resolution.GIVE_UP),
    ),
    "done by hand": (
        {"requires_approval": True, "approval_timeout_seconds": 60},
        lambda desk: desk.ledger.answer(_timed_out(desk), "boss", "", t.Resolution.DONE),
    ),
}


@pytest.mark.parametrize("how", CHILD_ENDS)
@pytest.mark.parametrize("parent_fails", [False, True])
def test_a_child_that_is_over_does_not_stand_in_its_parents_way(
    desk: Desk, how: str, parent_fails: bool
) -> None:
    # Given a child that ended before its parent,
    fields, end = CHILD_ENDS[how]
    family(desk, **fields)
    end(desk)
    before = desk.task("child")
    assert before.is_terminal
    # when the parent ends in turn, then it can, and the child stays as it was.
    if parent_fails:
        assert desk.fail("parent").state is State.FAILED
    else:
        desk.complete("parent")
    assert desk.task("child") == before


def test_a_blocked_child_is_settled_by_its_parents_failure(desk: Desk) -> None:
    family(desk, requires_approval=True, approval_timeout_seconds=60)
    _timed_out(desk)
    assert desk.state("child") is State.BLOCKED
    desk.fail("parent")
    assert desk.state("child") is State.FAILED


# -- reopening ---------------------------------------------------------------------------------


def test_a_reopened_child_waits_for_parents_that_are_under_way(desk: Desk) -> None:
    # Given a child that failed with its parent, when both are reopened, the parent first,
    family(desk)
    desk.fail("parent")
    desk.ledger.requeue(desk.key("parent"), "boss")
    desk.ledger.requeue(desk.key("child"), "boss")
    # then the child waits as it did before,
    assert desk.task("child").memo.waiting_on == ("parent",)
    desk.complete("parent")
    assert desk.state("child") is State.READY


def test_a_reopened_parent_that_fails_again_resolves_a_reopened_child_again(desk: Desk) -> None:
    family(desk)
    desk.fail("parent")
    for name in ("parent", "child"):
        desk.ledger.requeue(desk.key(name), "boss")
    desk.fail("parent")
    assert desk.state("child") is State.FAILED


def test_a_late_child_of_a_reopened_parent_waits_for_it(desk: Desk) -> None:
    desk.submit("parent")
    desk.fail("parent")
    desk.ledger.requeue(desk.key("parent"), "boss")
    desk.submit("child", after=("parent",))
    assert desk.state("child") is State.PENDING
    desk.complete("parent")
    assert desk.state("child") is State.READY
