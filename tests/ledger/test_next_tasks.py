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
from tests.ledger.conftest import LedgerEnv


def chained(env: LedgerEnv, *children: Spec, **fields: Any) -> int:
    return env.submit("build", next=children, **fields)


REVIEW = Spec("build.1", "reviewer", title="Look at it")


def test_the_next_task_is_born_when_its_parent_completes(env: LedgerEnv) -> None:
    chained(env, REVIEW)
    env.start("build")
    with pytest.raises(NotFound):
        env.task("build.1")
    # When the parent completes, then the child is there in the same breath,
    position = env.ledger.queries.last_position()
    env.report("build")
    events = [(e.task_id, e.event.kind) for e in env.ledger.queries.events_after(position)]
    assert sorted(events) == [("build", "completed"), ("build.1", "submitted")]
    # with all that was said about it, knowing where it came from, and its workers are woken.
    child = env.task("build.1")
    assert (child.state, child.to, child.spec.title) == (State.READY, "reviewer", "Look at it")
    assert child.spec.parent == "build"
    assert role_topic("reviewer") in env.rung


def test_it_is_born_once(env: LedgerEnv) -> None:
    key = chained(env, REVIEW)
    env.complete("build")
    # A report that is sent again gives the same answer, and no second child.
    env.ledger.report(key, t.Report(1, "done"))
    assert env.kinds("build.1") == ["submitted"]


@pytest.mark.parametrize("how", ["failed", "cancelled", "expired"])
def test_it_is_not_born_otherwise(env: LedgerEnv, how: str) -> None:
    key = chained(env, REVIEW, ttl_seconds=60)
    match how:
        case "failed":
            env.fail("build")
        case "cancelled":
            env.ledger.cancel(key, "boss")
        case _:
            env.clock.forward(60)
            env.ledger.tick()
    assert env.state("build") == how
    with pytest.raises(NotFound):
        env.task("build.1")


def test_it_waits_for_the_verdict(env: LedgerEnv) -> None:
    key = chained(env, REVIEW, review=True)
    env.complete("build")
    with pytest.raises(NotFound):
        env.task("build.1")
    env.ledger.verdict(key, "boss", t.Ruling.ACCEPT)
    assert env.state("build.1") is State.READY


def test_a_person_who_finishes_a_blocked_task_also_starts_the_next(env: LedgerEnv) -> None:
    key = chained(env, REVIEW)
    env.start("build")
    env.ledger.block(key, 1, "?")
    env.ledger.answer(key, "boss", "did it", t.Resolution.DONE)
    assert env.state("build.1") is State.READY


def test_generations_follow_each_other(env: LedgerEnv) -> None:
    chained(env, Spec("test", "worker", next=(Spec("ship", "worker"),)))
    env.complete("build", "test", "ship")
    assert env.task("ship").spec.parent == "test"
    assert env.state("ship") is State.COMPLETE


def test_several_may_follow_and_follow_each_other(env: LedgerEnv) -> None:
    # In whatever order they are named.
    chained(
        env,
        Spec("ship", "worker", after=("test", "docs")),
        Spec("docs", "worker"),
        Spec("test", "worker", after=("build",)),
    )
    env.complete("build")
    assert env.states("test", "docs", "ship") == ["ready", "ready", "pending"]
    env.complete("test", "docs")
    assert env.state("ship") is State.READY


def test_what_comes_next_is_accepted_like_any_task(env: LedgerEnv) -> None:
    env.ledger.open_lanes(*LANES)
    chained(
        env,
        Spec("late", "worker", delay_seconds=60),
        Spec("careful", "worker", requires_approval=True, title="Ship it"),
        Spec("picky", "worker", resources=("repo",)),
    )
    env.complete("build")
    assert env.states("late", "careful", "picky") == ["pending", "pending", "ready"]
    assert "approval_wanted" in [effect["kind"] for effect in env.effects("notify")]
    assert "picky" in [effect["task_id"] for effect in env.effects("delivery")]
    env.start("picky")
    assert env.sql("SELECT resource FROM holds") == [("repo",)]


def test_those_who_come_after_the_parent_are_told_as_well(env: LedgerEnv) -> None:
    chained(env, REVIEW)
    env.submit("after", after=("build",))
    env.complete("build")
    assert env.states("after", "build.1") == ["ready", "ready"]


def test_others_may_come_after_what_is_not_born_yet_once_it_is(env: LedgerEnv) -> None:
    chained(env, REVIEW)
    with pytest.raises(AgentqError, match=r"build\.1"):
        env.submit("after", after=("build.1",))
    env.complete("build")
    env.submit("after", after=("build.1",))
    env.complete("build.1")
    assert env.state("after") is State.READY


# -- what must never keep a task from completing -----------------------------------------------


def test_two_that_complete_together_and_name_the_same(env: LedgerEnv) -> None:
    keys = [chained(env, REVIEW), env.submit("other", next=(REVIEW,))]
    for name in ("build", "other"):
        env.start(name)
    # When both complete in one transaction, the first has its next task, and the second a note.
    env.ledger.apply_many([(key, t.Report(1, "done")) for key in keys])
    assert env.states("build", "other", "build.1") == ["complete", "complete", "ready"]
    assert env.task("build.1").spec.parent == "build"
    (*_, last) = env.ledger.queries.history(keys[1])
    assert isinstance(last.event.trigger, t.Comment)
    assert last.event.trigger.text == "the next task build.1 was not submitted: that id is taken"


def test_a_name_that_was_taken_meanwhile_is_noted_and_nothing_is_lost(env: LedgerEnv) -> None:
    chained(env, REVIEW, Spec("build.2", "worker"))
    env.submit("build.1", to="somebody-else")
    env.complete("build")
    assert env.state("build") is State.COMPLETE
    assert env.task("build.1").to == "somebody-else"
    assert env.state("build.2") is State.READY
    assert env.kinds("build")[-1] == "commented"


def test_a_dependency_that_is_not_there_is_noted_and_nothing_is_lost(env: LedgerEnv) -> None:
    # Given a follow-up that comes after a task which was cleaned away before,
    env.submit("old")
    env.complete("old")
    env.ledger.prune(env.clock.now + 1, lambda _: None)
    chained(env, Spec("build.1", "worker", after=("old",)), Spec("build.2", "worker"))
    # when the task completes, then it does, and says what could not follow.
    env.complete("build")
    assert env.state("build") is State.COMPLETE
    assert env.state("build.2") is State.READY
    (*_, last) = env.ledger.queries.history(env.key("build"))
    assert isinstance(last.event.trigger, t.Comment)
    assert "build.1" in last.event.trigger.text and "old" in last.event.trigger.text


def test_follow_ups_that_wait_for_each_other_are_refused_at_submit(env: LedgerEnv) -> None:
    with pytest.raises(AgentqError):
        chained(env, Spec("a", "w", after=("b",)), Spec("b", "w", after=("a",)))
    with pytest.raises(NotFound):
        env.task("build")


def test_follow_ups_of_one_name_are_refused_at_submit(env: LedgerEnv) -> None:
    with pytest.raises(AgentqError):
        chained(env, Spec("a", "w"), Spec("a", "w", title="other"))
    with pytest.raises(NotFound):
        env.task("build")


def test_many_families_at_once(env: LedgerEnv) -> None:
    env.submit_many(
        *(Spec(f"p{n}", "worker", next=(Spec(f"p{n}.1", "worker"),)) for n in range(10))
    )
    held = env.ledger.claim("worker", 10, "ann")
    done = env.ledger.apply_many([(each.key, t.Report(1, "done")) for each in held])
    assert not any(isinstance(each, AgentqError) for each in done)
    assert sorted(env.claim(20)) == sorted(f"p{n}.1" for n in range(10))


def test_a_key_of_what_comes_next_stands_for_it_unless_it_stands_for_another(
    env: LedgerEnv,
) -> None:
    # Given two tasks to come, one with a key that is new, one with a key that is taken,
    env.submit("other", idempotency_key="taken")
    fresh = Spec("build.1", "worker", idempotency_key="fresh")
    second = Spec("build.2", "worker", idempotency_key="taken")
    chained(env, fresh, second)
    env.complete("build")
    assert env.states("build.1", "build.2") == [State.READY, State.READY]
    # then the first key gives the task that came of it,
    again = Spec("made-up", "worker", idempotency_key="fresh", parent="build")
    (found,) = env.ledger.submit([again], {"made-up"})
    assert (found.task.id, found.created) == ("build.1", False)
    # and the second goes on to stand for the other.
    again = Spec("made-up", "worker", idempotency_key="taken")
    (found,) = env.ledger.submit([again], {"made-up"})
    assert (found.task.id, found.created) == ("other", False)
