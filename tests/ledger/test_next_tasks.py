"""What comes next: submitted when the task completes, in the same transaction, once."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.doorbell import role_topic
from agentq.core import triggers as t
from agentq.core.effects import LANES
from agentq.core.errors import AgentqError, NotFound
from agentq.core.states import State
from agentq.core.task import Spec
from tests.ledger.conftest import Desk


def chained(desk: Desk, *children: Spec, **fields: Any) -> int:
    return desk.submit("build", next=children, **fields)


REVIEW = Spec("build.1", "reviewer", title="Look at it")


def test_the_next_task_is_born_when_its_parent_completes(desk: Desk) -> None:
    chained(desk, REVIEW)
    desk.start("build")
    with pytest.raises(NotFound):
        desk.task("build.1")
    # When the parent completes, then the child is there in the same breath,
    position = desk.ledger.views.last_position()
    desk.report("build")
    events = [(e.task_id, e.event.kind) for e in desk.ledger.views.events_after(position)]
    assert sorted(events) == [("build", "completed"), ("build.1", "submitted")]
    # with all that was said about it, knowing where it came from, and its workers are woken.
    child = desk.task("build.1")
    assert (child.state, child.to, child.spec.title) == (State.READY, "reviewer", "Look at it")
    assert child.spec.parent == "build"
    assert role_topic("reviewer") in desk.rung


def test_it_is_born_once(desk: Desk) -> None:
    key = chained(desk, REVIEW)
    desk.complete("build")
    # A report that is sent again gives the same answer, and no second child.
    desk.ledger.report(key, t.Report(1, "done"))
    assert desk.kinds("build.1") == ["submitted"]


@pytest.mark.parametrize("how", ["failed", "cancelled", "expired"])
def test_it_is_not_born_otherwise(desk: Desk, how: str) -> None:
    key = chained(desk, REVIEW, ttl_seconds=60)
    match how:
        case "failed":
            desk.fail("build")
        case "cancelled":
            desk.ledger.cancel(key, "boss")
        case _:
            desk.clock.forward(60)
            desk.ledger.tick()
    assert desk.state("build") == how
    with pytest.raises(NotFound):
        desk.task("build.1")


def test_it_waits_for_the_verdict(desk: Desk) -> None:
    key = chained(desk, REVIEW, review=True)
    desk.complete("build")
    with pytest.raises(NotFound):
        desk.task("build.1")
    desk.ledger.verdict(key, "boss", t.Ruling.ACCEPT)
    assert desk.state("build.1") is State.READY


def test_a_person_who_finishes_a_blocked_task_also_starts_the_next(desk: Desk) -> None:
    key = chained(desk, REVIEW)
    desk.start("build")
    desk.ledger.block(key, 1, "?")
    desk.ledger.answer(key, "boss", "did it", t.Resolution.DONE)
    assert desk.state("build.1") is State.READY


def test_generations_follow_each_other(desk: Desk) -> None:
    chained(desk, Spec("test", "worker", next=(Spec("ship", "worker"),)))
    desk.complete("build", "test", "ship")
    assert desk.task("ship").spec.parent == "test"
    assert desk.state("ship") is State.COMPLETE


def test_several_may_follow_and_follow_each_other(desk: Desk) -> None:
    # In whatever order they are named.
    chained(
        desk,
        Spec("ship", "worker", after=("test", "docs")),
        Spec("docs", "worker"),
        Spec("test", "worker", after=("build",)),
    )
    desk.complete("build")
    assert desk.states("test", "docs", "ship") == ["ready", "ready", "pending"]
    desk.complete("test", "docs")
    assert desk.state("ship") is State.READY


def test_what_comes_next_is_accepted_like_any_task(desk: Desk) -> None:
    desk.ledger.open_lanes(*LANES)
    chained(
        desk,
        Spec("late", "worker", delay_seconds=60),
        Spec("careful", "worker", requires_approval=True, title="Ship it"),
        Spec("picky", "worker", resources=("repo",)),
    )
    desk.complete("build")
    assert desk.states("late", "careful", "picky") == ["pending", "pending", "ready"]
    assert "approval_wanted" in [effect["kind"] for effect in desk.effects("notify")]
    assert "picky" in [effect["task_id"] for effect in desk.effects("delivery")]
    desk.start("picky")
    assert desk.sql("SELECT resource FROM holds") == [("repo",)]


def test_those_who_come_after_the_parent_are_told_as_well(desk: Desk) -> None:
    chained(desk, REVIEW)
    desk.submit("after", after=("build",))
    desk.complete("build")
    assert desk.states("after", "build.1") == ["ready", "ready"]


def test_others_may_come_after_what_is_not_born_yet_once_it_is(desk: Desk) -> None:
    chained(desk, REVIEW)
    with pytest.raises(AgentqError, match=r"build\.1"):
        desk.submit("after", after=("build.1",))
    desk.complete("build")
    desk.submit("after", after=("build.1",))
    desk.complete("build.1")
    assert desk.state("after") is State.READY


# -- what must never keep a task from completing -----------------------------------------------


def test_a_name_that_was_taken_meanwhile_is_noted_and_nothing_is_lost(desk: Desk) -> None:
    chained(desk, REVIEW, Spec("build.2", "worker"))
    desk.submit("build.1", to="somebody-else")
    desk.complete("build")
    assert desk.state("build") is State.COMPLETE
    assert desk.task("build.1").to == "somebody-else"
    assert desk.state("build.2") is State.READY
    assert desk.kinds("build")[-1] == "commented"


def test_a_dependency_that_is_not_there_is_noted_and_nothing_is_lost(desk: Desk) -> None:
    # Given a follow-up that comes after a task which was cleaned away before,
    desk.submit("old")
    desk.complete("old")
    desk.ledger.prune(desk.clock.now + 1, lambda _: None)
    chained(desk, Spec("build.1", "worker", after=("old",)), Spec("build.2", "worker"))
    # when the task completes, then it does, and says what could not follow.
    desk.complete("build")
    assert desk.state("build") is State.COMPLETE
    assert desk.state("build.2") is State.READY
    (*_, last) = desk.ledger.views.history(desk.key("build"))
    assert isinstance(last.event.trigger, t.Comment)
    assert "build.1" in last.event.trigger.text and "old" in last.event.trigger.text


def test_follow_ups_that_wait_for_each_other_are_refused_at_submit(desk: Desk) -> None:
    with pytest.raises(AgentqError):
        chained(desk, Spec("a", "w", after=("b",)), Spec("b", "w", after=("a",)))
    with pytest.raises(NotFound):
        desk.task("build")


def test_follow_ups_of_one_name_are_refused_at_submit(desk: Desk) -> None:
    with pytest.raises(AgentqError):
        chained(desk, Spec("a", "w"), Spec("a", "w", title="other"))
    with pytest.raises(NotFound):
        desk.task("build")


def test_many_families_at_once(desk: Desk) -> None:
    desk.submit_many(
        *(Spec(f"p{n}", "worker", next=(Spec(f"p{n}.1", "worker"),)) for n in range(10))
    )
    held = desk.ledger.claim("worker", 10, "ann")
    done = desk.ledger.tell_many([(each.key, t.Report(1, "done")) for each in held])
    assert not any(isinstance(each, AgentqError) for each in done)
    assert sorted(desk.claim(20)) == sorted(f"p{n}.1" for n in range(10))


def test_a_key_of_what_comes_next_stands_for_it_unless_it_stands_for_another(desk: Desk) -> None:
    # Given two tasks to come, one with a key that is new, one with a key that is taken,
    desk.submit("other", idempotency_key="taken")
    fresh = Spec("build.1", "worker", idempotency_key="fresh")
    second = Spec("build.2", "worker", idempotency_key="taken")
    chained(desk, fresh, second)
    desk.complete("build")
    assert desk.states("build.1", "build.2") == [State.READY, State.READY]
    # then the first key gives the task that came of it,
    again = Spec("made-up", "worker", idempotency_key="fresh", parent="build")
    (found,) = desk.ledger.submit([again], {"made-up"})
    assert (found.task.id, found.created) == ("build.1", False)
    # and the second goes on to stand for the other.
    again = Spec("made-up", "worker", idempotency_key="taken")
    (found,) = desk.ledger.submit([again], {"made-up"})
    assert (found.task.id, found.created) == ("other", False)
