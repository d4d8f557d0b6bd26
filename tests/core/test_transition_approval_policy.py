"""An approval policy: reminders, escalations and the end of the time, while people are asked."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.approvals import BY_POLICY
from agentq.core.digests import spec_digest
from agentq.core.effects import CancelTasks, Notify
from agentq.core.limits import REMINDER_MS
from agentq.core.schedule import approval_deadline, next_escalation
from agentq.core.states import State
from agentq.core.task import ApprovalPolicy, Escalation, Gates, OnTimeout, Task
from agentq.core.transition import Decision, transition
from tests.core.building import LEASE_MS, NOW, SECOND, claimed, due, effects_of, submitted, then

STEPS = (Escalation(20, "lead"), Escalation(50, "head"))


def asking(on_timeout: OnTimeout = OnTimeout.HOLD, seconds: int = 60, **fields: Any) -> Task:
    """A task that waits for an approval, by a policy."""
    policy = ApprovalPolicy(fields.pop("remind", 0), fields.pop("escalate", ()), on_timeout)
    return submitted(
        requires_approval=True, approval=policy, approval_timeout_seconds=seconds, **fields
    )


def reported(on_timeout: OnTimeout = OnTimeout.HOLD, seconds: int = 60, **fields: Any) -> Task:
    """A task whose report waits for a verdict, by a policy."""
    policy = ApprovalPolicy(fields.pop("remind", 0), fields.pop("escalate", ()), on_timeout)
    fields = {"review": True, **fields}
    task = claimed(approval=policy, approval_timeout_seconds=seconds, **fields)
    return then(task, t.Report(1, "done"))


def story(task: Task, steps: int) -> list[tuple[int, str, str]]:
    """What time does: (seconds since it was asked, what happened, who is asked)."""
    told = []
    for _ in range(steps):
        decision = due(task)
        task = decision.task
        (event,) = decision.events
        told.append(((task.updated_at - NOW) // SECOND, event.kind, task.details.asked_of))
    return told


@pytest.mark.parametrize("begin", [asking, reported])
def test_people_are_reminded_then_others_are_asked_then_the_time_is_over(begin: Any) -> None:
    task = begin(remind=15, escalate=STEPS)
    # Whoever is asked next gets the same time before the first reminder.
    assert story(task, 5) == [
        (15, "reminded", ""),
        (20, "escalated", "lead"),
        (35, "reminded", "lead"),
        (50, "escalated", "head"),
        (
            60,
            "blocked" if begin is asking else "approval_timed_out",
            "" if begin is asking else "head",
        ),
    ]


def test_an_escalation_says_whom_it_asks() -> None:
    decision = due(asking(escalate=STEPS))
    assert decision.effects == (Notify("escalated", "lead: nobody has decided for 20 s"),)


def test_a_delay_that_is_over_does_not_keep_an_escalated_task_due() -> None:
    task = asking(escalate=STEPS, delay_seconds=10)
    late = NOW + 30 * SECOND
    decision = transition(task, t.Tick(), late)
    assert [event.kind for event in decision.events] == ["escalated"]
    assert decision.task.wake_at > late
    not_yet = asking(escalate=STEPS, delay_seconds=40)
    assert due(not_yet).task.details.not_before == NOW + 40 * SECOND


def test_escalations_that_were_missed_are_made_up_for_one_by_one() -> None:
    task = asking(escalate=STEPS, seconds=0)
    late = NOW + 3_600_000
    kinds = []
    while task.wake_at <= late:
        decision = transition(task, t.Tick(), late)
        kinds.append((decision.events[0].kind, decision.task.details.asked_of))
        task = decision.task
    assert kinds == [("escalated", "lead"), ("escalated", "head")]
    assert task.wake_at == late + REMINDER_MS


def test_a_timeout_before_the_escalations_is_the_end_of_them() -> None:
    task = due(asking(escalate=(Escalation(90, "lead"),))).task
    assert (task.state, task.details.asked_of) == (State.BLOCKED, "")
    held = due(reported(escalate=(Escalation(90, "lead"),))).task
    assert (held.state, held.wake_at) == (State.REVIEW, held.updated_at + REMINDER_MS)


def test_who_decides_is_asked_no_more() -> None:
    task = due(asking(escalate=STEPS)).task
    approved = then(task, t.Approve("boss"))
    assert (approved.details.escalations, approved.details.asked_of) == (0, "")
    assert approved.wake_at == 0
    accepted = then(due(reported(escalate=STEPS)).task, t.Verdict("boss", t.Ruling.ACCEPT))
    assert (accepted.state, accepted.details.asked_of) == (State.COMPLETE, "")
    changed = then(due(reported(escalate=STEPS)).task, t.Verdict("boss", t.Ruling.CHANGES, "more"))
    assert (changed.details.asked_at, changed.details.escalations) == (0, 0)


def test_nobody_else_is_asked_about_what_waits_for_no_decision() -> None:
    task = asking(escalate=STEPS)
    asked = task.details
    assert next_escalation(State.PENDING, task.spec, asked) == NOW + 20 * SECOND
    assert next_escalation(State.BLOCKED, task.spec, asked) == 0
    assert approval_deadline(State.PENDING, task.spec, asked) == NOW + 60 * SECOND
    assert approval_deadline(State.BLOCKED, task.spec, asked) == 0


def test_an_edit_asks_from_the_beginning() -> None:
    task = then(due(asking(escalate=STEPS)).task, t.Edit("ed", instructions="other"))
    assert (task.details.escalations, task.details.asked_of) == (0, "")
    assert task.wake_at == task.updated_at + 20 * SECOND


# -- the end of the time ------------------------------------------------------------------------


def test_silence_holds_unless_the_policy_says_otherwise() -> None:
    held = due(asking()).task
    assert (held.state, held.details.reason_kind) == (State.BLOCKED, "approval_timeout")
    report = due(reported(remind=90)).task
    assert (report.state, report.details.reason_kind) == (State.REVIEW, "approval_timeout")
    assert report.reason == "nobody judged it within 60 s"
    # It is reminded of from then on, and can still be judged.
    assert due(report).events[0].kind == "reminded"
    done = then(report, t.Verdict("boss", t.Ruling.ACCEPT))
    assert (done.state, done.reason) == (State.COMPLETE, "")


@pytest.mark.parametrize("begin", [asking, reported])
def test_it_may_be_rejected_then(begin: Any) -> None:
    decision = due(begin(OnTimeout.REJECT, escalate=(Escalation(70, "lead"),)))
    task = decision.task
    assert (task.state, task.details.reason_kind) == (State.FAILED, "approval_timeout")
    assert "and its policy is to reject it then" in task.reason
    assert [each.kind for each in effects_of(decision, Notify)] == ["dead_letter"]
    # A person may open it again, and is asked again.
    again = then(task, t.Requeue("boss", asks_again=True))
    assert again.state is (State.PENDING if begin is asking else State.READY)


def test_it_may_be_approved_then_and_the_log_says_by_whom() -> None:
    decision = due(asking(OnTimeout.APPROVE))
    task = decision.task
    assert (task.state, decision.events[0].kind) == (State.READY, "approval_timed_out")
    assert task.details.approved_by == BY_POLICY
    assert task.details.approved_digest == spec_digest(task.spec)
    assert task.details.notes[-1].by == BY_POLICY
    assert "nobody approved it within 60 s" in task.details.notes[-1].text


def test_a_report_may_be_accepted_then() -> None:
    task = due(reported(OnTimeout.APPROVE)).task
    assert (task.state, task.details.notes[-1].by) == (State.COMPLETE, BY_POLICY)


def test_other_things_are_waited_for_all_the_same() -> None:
    task = due(asking(OnTimeout.APPROVE, waiting_on=("task-0",))).task
    assert (task.state, task.details.approved_by) == (State.PENDING, BY_POLICY)


def test_nothing_irreversible_is_approved_by_silence() -> None:
    policy = ApprovalPolicy(on_timeout=OnTimeout.APPROVE)
    task = submitted(irreversible=True, approval=policy, approval_timeout_seconds=60)
    assert due(task).task.state is State.BLOCKED
    running = then(task, t.Approve("boss"), t.ClaimTask("ann", LEASE_MS))
    report = then(running, t.Report(1, "done"))
    assert report.state is State.COMPLETE
    reviewed = reported(OnTimeout.APPROVE, irreversible=True)
    assert due(reviewed).task.state is State.REVIEW


# -- with a reviewer ----------------------------------------------------------------------------

REVIEWED = Gates(reviewer="reviewer", person=True)


def timeout(task: Task) -> Decision:
    return due(task)


def test_the_silence_of_people_does_not_stand_for_a_reviewer() -> None:
    task = reported(OnTimeout.APPROVE, gates=REVIEWED)
    held = timeout(task)
    assert (held.task.state, effects_of(held, CancelTasks)) == (State.REVIEW, [])
    assert held.task.details.review_task == "task-1.review-1"
    # Once the reviewer has accepted it, only people are waited for.
    accepted = t.Verdict("reviewer", t.Ruling.ACCEPT, review="task-1.review-1", reviewed=1)
    after = then(task, accepted)
    assert timeout(after).task.state is State.COMPLETE
    # Who could not judge it has not accepted it either.
    failed = then(task, t.ReviewFailed("task-1.review-1", State.FAILED))
    assert timeout(failed).task.state is State.REVIEW


def test_what_is_rejected_by_policy_is_not_reviewed_any_more() -> None:
    decision = timeout(reported(OnTimeout.REJECT, gates=REVIEWED))
    (cancelled,) = effects_of(decision, CancelTasks)
    assert (cancelled.tasks, decision.task.details.review_task) == (("task-1.review-1",), "")
