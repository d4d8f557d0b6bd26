"""Messages of people to agents: kept for every later attempt, given to a running one once."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.agent_messages import is_told_live
from agentq.core.errors import Invalid, Refused, Stale
from agentq.core.limits import MESSAGES_KEPT
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.transition import transition
from agentq.core.trigger_validation import check_message, check_trigger
from tests.core.building import BY_STATE, LEASE_MS, claimed, submitted, then


def told(task: Task, *words: str) -> Task:
    return then(task, *(t.Tell("boss", each) for each in words))


def given(task: Task) -> list[tuple[int, str, int]]:
    return [(each.number, each.text, each.epoch) for each in task.details.messages]


def test_the_next_attempt_has_what_was_told_before_and_meanwhile() -> None:
    task = told(submitted(), "first")
    assert task.state is State.READY and given(task) == [(1, "first", 0)]
    task = told(then(task, t.ClaimTask("ann", LEASE_MS)), "second")
    assert given(task) == [(1, "first", 1), (2, "second", 0)] and task.holder == "ann"
    task = then(task, t.Release(1), t.ClaimTask("bob", LEASE_MS))
    assert given(task) == [(1, "first", 1), (2, "second", 2)]


def test_a_holder_takes_each_message_once() -> None:
    task = told(claimed(), "now")
    assert not is_told_live(task), "nobody has said that messages are taken"
    taken = transition(task, t.TakeMessages(1), task.updated_at)
    assert taken.events[0].kind == "messages_taken" and given(taken.task) == [(1, "now", 1)]
    assert is_told_live(taken.task)
    assert (taken.task.holder, taken.task.wake_at) == (task.holder, task.wake_at)
    # Nothing is new: nothing happened.
    assert transition(taken.task, t.TakeMessages(1), task.updated_at).task is taken.task
    # The next attempt has not said so.
    again = then(taken.task, t.Release(1), t.ClaimTask("bob", LEASE_MS))
    assert not is_told_live(again) and given(again) == [(1, "now", 1)]
    with pytest.raises(Stale):
        transition(again, t.TakeMessages(1), again.updated_at)


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (State.COMPLETE, "agentq rerun task-1"),
        (State.CANCELLED, "agentq rerun task-1"),
        (State.FAILED, "agentq requeue task-1"),
        (State.EXPIRED, "agentq requeue task-1"),
    ],
)
def test_where_nobody_would_read_it_the_refusal_says_what_helps(state: State, remedy: str) -> None:
    task = BY_STATE[state]()
    with pytest.raises(Refused, match="Nobody will work on task-1") as refused:
        transition(task, t.Tell("boss", "more"), task.updated_at)
    assert remedy in refused.value.remedy and refused.value.code == "wrong_state"


def test_what_is_told_during_a_review_is_for_the_attempt_that_changes_are_asked_of() -> None:
    reviewed = told(BY_STATE[State.REVIEW](), "the title is wrong")
    assert reviewed.state is State.REVIEW
    again = then(reviewed, t.Verdict("boss", t.Ruling.CHANGES, "see above"))
    second = then(again, t.ClaimTask("ann", 60_000))
    assert [(each.text, each.epoch) for each in second.details.messages] == [
        ("the title is wrong", 2)
    ]


def test_none_is_dropped_that_no_attempt_has_read() -> None:
    task = told(claimed(), *(f"word {number}" for number in range(MESSAGES_KEPT)))
    with pytest.raises(Refused, match="20 messages wait already") as refused:
        told(task, "one too many")
    assert refused.value.code == "too_many_messages"
    task = told(then(task, t.TakeMessages(1)), "one more")
    numbers = [each.number for each in task.details.messages]
    assert numbers == list(range(2, MESSAGES_KEPT + 2)) and given(task)[-1][2] == 0


def test_a_message_says_something_and_not_too_much() -> None:
    check_message("x")
    with pytest.raises(Invalid, match="needs some text"):
        check_message(" \n")
    check_trigger(t.Tell("boss", "x" * 4000))
    with pytest.raises(Invalid, match="The message may have 4000 characters"):
        check_trigger(t.Tell("boss", "x" * 4001))
