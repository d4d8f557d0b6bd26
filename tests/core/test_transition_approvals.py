"""Approval before start: asked for once, reminded, timed out into a question, never assumed."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.effects import Announce, Notify, ResolveDependents
from agentq.core.errors import Refused
from agentq.core.limits import REMINDER_MS
from agentq.core.schedule import waiting_for
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.transition import transition
from tests.core.building import (
    LEASE_MS,
    NOW,
    SECOND,
    a_spec,
    claimed,
    due,
    effects_of,
    submitted,
    then,
)


def timed_out(**fields: Any) -> Task:
    return due(submitted(requires_approval=True, approval_timeout_seconds=60, **fields)).task


def refusal(task: Task, trigger: t.Trigger) -> Refused:
    with pytest.raises(Refused) as caught:
        transition(task, trigger, task.updated_at)
    return caught.value


def test_the_approval_is_asked_for_at_submit() -> None:
    decision = transition(None, t.Submit(a_spec(requires_approval=True, title="Deploy")), NOW)
    assert decision.task.state is State.PENDING
    assert waiting_for(decision.task) == ["approval"]
    assert decision.effects == (Notify("approval_wanted", "Deploy"),)


def test_it_is_asked_for_once_even_while_other_things_are_waited_for() -> None:
    task = submitted(requires_approval=True, waiting_on=("task-0",))
    decision = transition(task, t.DependencyEnded("task-0", State.COMPLETE), NOW)
    assert decision.task.state is State.PENDING
    assert decision.effects == ()


def test_approval_and_dependencies_may_come_in_any_order() -> None:
    task = submitted(requires_approval=True, waiting_on=("task-0",))
    approve, ended = t.Approve("boss"), t.DependencyEnded("task-0", State.COMPLETE)
    assert then(task, approve, ended).state is State.READY
    assert then(task, ended, approve).state is State.READY


def test_silence_is_reminded_of_once_a_day() -> None:
    task = submitted(requires_approval=True)
    for day in (1, 2, 3):
        assert task.wake_at == NOW + day * REMINDER_MS
        decision = due(task)
        assert decision.effects == (Notify("reminder", "approval wanted"),)
        task = decision.task
        assert task.state is State.PENDING
    # Once it is approved nobody is reminded any more.
    assert then(task, t.Approve("boss")).wake_at == 0


def test_silence_past_the_timeout_is_a_question_not_a_no() -> None:
    # Given an approval that must come within a minute, when it does not,
    task = submitted(requires_approval=True, approval_timeout_seconds=60)
    assert task.wake_at == NOW + 60 * SECOND
    decision = due(task)
    # then the task is blocked and says so; nothing has failed behind people's backs.
    assert decision.task.state is State.BLOCKED
    assert decision.task.details.reason_kind == "approval_timeout"
    assert [effect.kind for effect in effects_of(decision, Notify)] == ["blocked"]
    assert not effects_of(decision, ResolveDependents)


def test_a_late_approval_still_counts() -> None:
    approved = transition(timed_out(), t.Approve("boss"), NOW + 3600 * SECOND)
    assert approved.task.state is State.READY
    assert approved.task.reason == ""
    assert effects_of(approved, Announce)


def test_answering_a_timeout_asks_anew_with_a_new_deadline() -> None:
    task = then(timed_out(), t.Answer("boss", "I will look"), at=NOW + 100 * SECOND)
    assert task.state is State.PENDING
    assert task.wake_at == NOW + 160 * SECOND


def test_no_is_a_dead_letter_with_the_reason() -> None:
    task = submitted(requires_approval=True)
    decision = transition(task, t.Reject("boss", "too risky"), NOW)
    assert decision.task.state is State.FAILED
    assert decision.task.reason == "rejected by boss: too risky"
    assert decision.effects[0] == ResolveDependents(State.FAILED)
    assert decision.task.wake_at == 0


@pytest.mark.parametrize("trigger", [t.Approve("boss"), t.Reject("boss")])
def test_nothing_to_approve_nothing_to_reject(trigger: t.Trigger) -> None:
    # Given pending tasks that wait for something else, or are approved already,
    waiting = submitted(waiting_on=("task-0",))
    approved = then(submitted(requires_approval=True, delay_seconds=60), t.Approve("boss"))
    for task in (waiting, approved):
        assert refusal(task, trigger).code == "wrong_state"


def test_a_block_that_asks_something_else_is_not_answered_by_an_approval() -> None:
    task = then(claimed(requires_approval=True), t.BlockTask(1, "which branch?"))
    assert refusal(task, t.Approve("boss")).code == "wrong_state"


def test_the_submitter_cannot_approve_a_reversible_task_either() -> None:
    assert refusal(submitted(requires_approval=True), t.Approve("coordinator")).code == (
        "self_approval"
    )


def test_an_approval_of_a_reversible_task_lasts_through_its_retries() -> None:
    task = then(claimed(requires_approval=True), t.FailAttempt(1, "network down"))
    ready = due(task).task
    assert ready.state is State.READY
    assert then(ready, t.ClaimTask("bob", LEASE_MS)).epoch == 2


def test_the_deadline_counts_from_the_question() -> None:
    # Given a task that was rejected and reopened much later,
    task = submitted(requires_approval=True, approval_timeout_seconds=60)
    task = then(task, t.Reject("boss"))
    # when it asks again, then the minute starts again.
    reopened = then(task, t.Requeue("boss"), at=NOW + 3600 * SECOND)
    assert reopened.state is State.PENDING
    assert reopened.wake_at == NOW + 3660 * SECOND
