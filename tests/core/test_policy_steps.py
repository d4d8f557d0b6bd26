"""What an approval policy will do next, told before it happens."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.policy_steps import (
    PolicyStep,
    PolicyStepKind,
    asked_words,
    is_asked,
    policy_words,
    step_words,
    upcoming_steps,
)
from agentq.core.states import State
from agentq.core.task import ApprovalPolicy, Escalation, Gates, OnTimeout, Task
from tests.core.building import BY_STATE, NOW, SECOND, claimed, due, submitted, then

HOUR = 3600
POLICY = ApprovalPolicy(
    HOUR, (Escalation(2 * HOUR, "lead"), Escalation(4 * HOUR, "boss")), OnTimeout.REJECT
)
REMIND, ESCALATE, TIMEOUT = PolicyStepKind


def asked(**fields: Any) -> Task:
    return submitted(
        **{
            "requires_approval": True,
            "approval": POLICY,
            "approval_timeout_seconds": 8 * HOUR,
            **fields,
        }
    )


def in_hours(hours: int) -> int:
    return NOW + hours * HOUR * SECOND


def test_every_step_is_told_before_it_happens() -> None:
    task = asked()
    seen = []
    while not task.is_terminal:
        told = upcoming_steps(task)
        assert told[0].at == task.wake_at, "the first is the moment it is looked at"
        decided = due(task)
        seen.append((told[0].kind, decided.events[0].kind))
        task = decided.task
    assert seen == [
        (REMIND, "reminded"),
        (ESCALATE, "escalated"),
        (REMIND, "reminded"),
        (ESCALATE, "escalated"),
        (REMIND, "reminded"),
        (REMIND, "reminded"),
        (REMIND, "reminded"),
        (TIMEOUT, "approval_timed_out"),
    ]
    assert upcoming_steps(task) == ()


def test_who_is_asked_and_what_comes() -> None:
    task = asked()
    assert upcoming_steps(task) == (
        PolicyStep(REMIND, in_hours(1)),
        PolicyStep(ESCALATE, in_hours(2), "lead"),
        PolicyStep(TIMEOUT, in_hours(8), outcome="reject"),
    )
    assert asked_words(task) == ""
    assert policy_words(task, NOW) == (
        "unless somebody decides: a reminder in 1h, lead is asked in 2h, it is rejected in 8h"
    )
    task = due(due(task).task).task
    assert asked_words(task) == "lead (escalation 1 of 2)"
    assert policy_words(task, in_hours(2)) == (
        "lead (escalation 1 of 2) is asked; unless somebody decides: a reminder in 1h,"
        " boss is asked in 2h, it is rejected in 6h"
    )


def test_a_moment_that_passed_is_now() -> None:
    assert step_words(PolicyStep(REMIND, NOW), NOW + 5 * SECOND) == "a reminder in 0s"
    assert step_words(PolicyStep(TIMEOUT, NOW + 1, outcome="approve"), NOW) == (
        "it is approved in 1s"
    )


def test_what_falls_on_one_moment_is_told_in_the_order_it_happens() -> None:
    policy = ApprovalPolicy(HOUR, (Escalation(HOUR, "lead"),))
    task = asked(approval=policy, approval_timeout_seconds=HOUR)
    assert [each.kind for each in upcoming_steps(task)] == [TIMEOUT, ESCALATE, REMIND]
    assert due(task).task.state is State.BLOCKED


def test_silence_never_lets_an_irreversible_task_start() -> None:
    """Should a spec say so in spite of its validation, it is told what will really happen."""
    policy = ApprovalPolicy(on_timeout=OnTimeout.APPROVE)
    task = asked(irreversible=True, approval=policy)
    assert upcoming_steps(task)[0].outcome == "hold"
    assert upcoming_steps(asked(approval=policy))[0].outcome == "approve"


def test_what_was_held_is_still_asked() -> None:
    held = due(asked(approval=ApprovalPolicy(), approval_timeout_seconds=HOUR)).task
    assert held.state is State.BLOCKED and is_asked(held)
    assert [each.kind for each in upcoming_steps(held)] == [REMIND]


def test_a_report_is_asked_about_by_the_same_policy() -> None:
    task = claimed(review=True, approval=POLICY, approval_timeout_seconds=8 * HOUR)
    reported = then(task, t.Report(1, "done"))
    assert [each.kind for each in upcoming_steps(reported)] == [REMIND, ESCALATE, TIMEOUT]
    assert "it is rejected in 8h" in policy_words(reported, NOW)


def test_without_a_policy_there_is_nothing_to_tell_but_the_daily_reminder() -> None:
    task = submitted(requires_approval=True)
    assert [each.kind for each in upcoming_steps(task)] == [REMIND]
    assert policy_words(task, NOW) == ""


@pytest.mark.parametrize("state", State)
def test_only_what_waits_for_a_decision_is_asked_about(state: State) -> None:
    task = BY_STATE[state]()
    assert is_asked(task) is (state is State.REVIEW)
    if state is not State.REVIEW:
        assert upcoming_steps(task) == ()


def test_a_policy_without_anything_to_come_says_nothing() -> None:
    task = claimed(approval=POLICY, approval_timeout_seconds=HOUR)
    assert policy_words(task, NOW) == ""


def test_silence_does_not_stand_for_a_reviewer() -> None:
    policy = ApprovalPolicy(on_timeout=OnTimeout.APPROVE)
    gates = Gates(reviewer="reviewer", person=True)
    task = claimed(gates=gates, approval=policy, approval_timeout_seconds=HOUR)
    reported = then(task, t.Report(1, "done"))
    assert upcoming_steps(reported)[0].outcome == "hold"
    said = t.Verdict("rob", t.Ruling.ACCEPT, score=90, review="task-1.review-1", reviewed=1)
    assert upcoming_steps(then(reported, said))[0].outcome == "approve"
