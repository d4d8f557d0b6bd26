"""What a task remembers after each decision: exactly this, and nothing of what is settled.

A moment or a counter that stays behind after its question is answered changes what happens much
later, where nobody looks for the cause. So these tests compare everything that a task remembers.
"""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.limits import REMINDER_MS
from agentq.core.retry import BASE_MS
from agentq.core.states import State
from agentq.core.task import Note, OnDependencyFailure, Reported, TaskDetails, Usage
from agentq.core.transition import transition
from agentq.core.values import replace
from tests.core.building import LEASE_MS, NOW, SECOND, claimed, due, submitted, then

CLAIM = t.ClaimTask("bob", LEASE_MS)
LATER = NOW + 10 * SECOND


def a_note(kind: str, text: str, by: str = "boss", at: int = NOW) -> Note:
    return Note(at, by, kind, text)


# -- approvals ---------------------------------------------------------------------------------


def test_an_approval_ends_the_question_and_its_reminders() -> None:
    task = submitted(requires_approval=True, delay_seconds=60)
    assert task.details == TaskDetails(
        not_before=NOW + 60 * SECOND, asked_at=NOW, remind_at=NOW + REMINDER_MS
    )
    approved = then(task, t.Approve("boss"), at=LATER)
    assert approved.details == TaskDetails(
        not_before=NOW + 60 * SECOND, asked_at=NOW, approved_by="boss",
        approved_digest=spec_digest(task.spec),
    )  # fmt: skip


def test_a_question_that_nobody_answered_in_time_is_forgotten_for_another() -> None:
    task = submitted(requires_approval=True, approval_timeout_seconds=60)
    late = NOW + 60 * SECOND
    blocked = due(task).task
    assert blocked.details == TaskDetails(
        reason="nobody approved it within 60 s", reason_kind="approval_timeout",
        remind_at=late + REMINDER_MS,
    )  # fmt: skip
    # A late yes leaves nothing of it,
    digest = spec_digest(task.spec)
    assert then(blocked, t.Approve("boss")).details == TaskDetails(
        approved_by="boss", approved_digest=digest
    )
    # and an answer begins the question anew.
    answered = then(blocked, t.Answer("boss", "soon"), at=late + 5)
    assert answered.details == TaskDetails(
        notes=(a_note("answer", "soon", at=late + 5),), asked_at=late + 5,
        remind_at=late + 5 + REMINDER_MS,
    )  # fmt: skip


def test_what_waits_for_a_time_and_an_approval_is_reminded_of_when_both_are_due() -> None:
    # Given a delay that ends when the reminder is due, one tick does both:
    task = submitted(requires_approval=True, delay_seconds=REMINDER_MS // 1000)
    decision = transition(task, t.Tick(), NOW + REMINDER_MS)
    # the delay is over, and the next look is a day later, not at once again.
    assert decision.events[0].kind == "waited"
    assert decision.task.details == TaskDetails(asked_at=NOW, remind_at=NOW + 2 * REMINDER_MS)
    assert decision.task.wake_at == NOW + 2 * REMINDER_MS
    # A delay that ends before it leaves the reminder where it was.
    early = due(submitted(requires_approval=True, delay_seconds=60)).task
    assert early.details == TaskDetails(asked_at=NOW, remind_at=NOW + REMINDER_MS)


def test_a_no_leaves_the_reason_and_no_moment() -> None:
    task = submitted(requires_approval=True, delay_seconds=60, waiting_on=("task-0",))
    rejected = then(task, t.Reject("boss"))
    assert rejected.details == TaskDetails(
        reason="rejected by boss", reason_kind="rejected", asked_at=NOW
    )
    # Reopened, it asks anew, at its own time.
    reopened = then(rejected, t.Requeue("ann", "please"), at=LATER)
    assert reopened.details == TaskDetails(
        notes=(a_note("requeue", "please", "ann", LATER),), asked_at=LATER,
        remind_at=LATER + REMINDER_MS, reopened_at=LATER,
    )  # fmt: skip


# -- attempts ----------------------------------------------------------------------------------


def test_a_claim_begins_with_nothing_of_the_attempt_before() -> None:
    # Given an attempt that got far and was interrupted,
    task = then(claimed(), t.Progress(1, 80, "nearly"), t.Release(1, "shutting down"))
    assert task.details == TaskDetails(interruptions=1, progress_percent=80, progress_note="nearly")
    # when the next one starts, then it has got nowhere yet.
    assert then(task, CLAIM).details == TaskDetails(interruptions=1)


def test_a_release_keeps_the_task_back_until_its_moment_only() -> None:
    task = then(claimed(), t.Release(1, "quota", LATER))
    assert task.details == TaskDetails(interruptions=1, not_before=LATER)
    assert due(task).task.details == TaskDetails(interruptions=1)
    # Between two it counts on, and the moment is that of the last.
    again = then(due(task).task, CLAIM, t.Release(2))
    assert again.details == TaskDetails(interruptions=2)


def test_a_failure_is_remembered_with_its_reason_and_the_wait() -> None:
    task = then(claimed(), t.Progress(1, 80, "nearly"), t.FailAttempt(1, "no disk", jitter=0.5))
    assert task.details == TaskDetails(
        failures=1, not_before=NOW + BASE_MS // 2, reason="no disk", reason_kind="transient",
        notes=(a_note("failure", "no disk", "ann"),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kinds", "failures", "crashes", "wait_ms"),
    [
        ("f", 1, 0, BASE_MS // 2),
        ("ff", 2, 0, BASE_MS),
        ("fc", 1, 1, BASE_MS),
        ("cc", 0, 2, BASE_MS),
        ("fcf", 2, 1, 2 * BASE_MS),
        ("ccf", 1, 2, 2 * BASE_MS),
    ],
)
def test_failures_and_crashes_lengthen_the_wait_together(
    kinds: str, failures: int, crashes: int, wait_ms: int
) -> None:
    waiting = task = claimed(max_attempts=9)
    for epoch, kind in enumerate(kinds, 1):
        crashed = t.FailureKind.CRASHED if kind == "c" else t.FailureKind.TRANSIENT
        task = then(task, t.FailAttempt(epoch, "x", crashed, jitter=0.5))
        waiting, task = task, then(due(task).task, CLAIM)
    assert (waiting.details.failures, waiting.details.crashes) == (failures, crashes)
    assert waiting.details.not_before - waiting.updated_at == wait_ms


def test_running_out_of_money_is_no_failure() -> None:
    task = then(claimed(), t.FailAttempt(1, "no money", t.FailureKind.BUDGET))
    assert task.details == TaskDetails(
        reason="The budget is used up: no money", reason_kind="budget",
        remind_at=NOW + REMINDER_MS, notes=(a_note("failure", "no money", "ann"),),
    )  # fmt: skip


def test_a_lease_that_ended_is_remembered_as_a_crash() -> None:
    task = then(claimed(), t.Progress(1, 80, "nearly"))
    reason = "the lease of attempt 1 ended: ann no longer renewed it"
    end = NOW + LEASE_MS
    assert due(task).task.details == TaskDetails(
        crashes=1, reason=reason, reason_kind="crashed",
        notes=(a_note("crash", reason, "agentq", end),),
    )  # fmt: skip
    # The third of them says how many there were.
    task = then(due(then(due(task).task, CLAIM)).task, CLAIM)
    poison = due(task).task
    assert (poison.state, poison.details.reason_kind) == (State.FAILED, "poison")
    assert poison.reason.startswith("3 attempts vanished without a word; the last: the lease of")


def test_a_warning_is_remembered_until_there_is_more_money() -> None:
    task = then(claimed(budget=Usage(tokens=10)), t.Spend(1, Usage(tokens=8)))
    assert task.details == TaskDetails(spent=Usage(tokens=8), budget_warned=True)
    blocked = then(task, t.Spend(1, Usage(tokens=2)))
    more = then(blocked, t.Answer("boss", "", extra_budget=Usage(tokens=5)))
    assert more.details == TaskDetails(spent=Usage(tokens=10), extra_budget=Usage(tokens=5))


def test_an_irreversible_attempt_leaves_no_approval_behind() -> None:
    task = then(claimed(irreversible=True), t.BlockTask(1, "which one?"))
    assert task.details == TaskDetails(
        reason="which one?", reason_kind="asked", asked_at=NOW, remind_at=NOW + REMINDER_MS
    )
    # Whoever answers does not approve by that: it is asked anew.
    answered = then(task, t.Answer("ann", "this one"), at=LATER)
    assert answered.details == TaskDetails(
        notes=(a_note("answer", "this one", "ann", LATER),), asked_at=LATER,
        remind_at=LATER + REMINDER_MS,
    )  # fmt: skip


# -- reports and verdicts ----------------------------------------------------------------------

DONE = Reported(1, "ann", "done", "result.md", "f" * 64)
REPORT = t.Report(1, "done", "result.md", "f" * 64)


def test_a_report_that_waits_for_its_verdict() -> None:
    task = then(claimed(review=True), REPORT)
    assert task.details == TaskDetails(report=DONE, remind_at=NOW + REMINDER_MS)
    accepted = then(task, t.Verdict("boss", t.Ruling.ACCEPT, "fine"), at=LATER)
    assert accepted.details == TaskDetails(report=DONE, notes=(a_note("review", "fine", at=LATER),))
    assert then(claimed(), REPORT).details == TaskDetails(report=DONE)


def test_changes_requested_count_a_round_and_forget_the_report() -> None:
    task = then(claimed(review=True), REPORT, t.Verdict("boss", t.Ruling.CHANGES, "again"))
    assert task.details == TaskDetails(rounds=1, notes=(a_note("review", "again"),))
    task = then(task, CLAIM, t.Report(2, "done"), t.Verdict("boss", t.Ruling.CHANGES))
    assert task.details == TaskDetails(rounds=2, notes=(a_note("review", "again"),))


def test_a_rejected_report_stays_until_the_task_is_reopened() -> None:
    task = then(claimed(review=True), REPORT, t.Verdict("boss", t.Ruling.CHANGES), CLAIM)
    task = then(task, t.Report(2, "done"), t.Verdict("boss", t.Ruling.REJECT))
    reported = Reported(2, "bob", "done")
    assert task.details == TaskDetails(
        rounds=1, report=reported, reason="rejected by boss", reason_kind="rejected"
    )
    reopened = then(task, t.Requeue("boss"), at=LATER)
    assert reopened.details == TaskDetails(
        reopened_at=LATER, notes=(a_note("requeue", "was failed: rejected by boss", at=LATER),)
    )


# -- people ------------------------------------------------------------------------------------


def test_an_answer_ends_the_question() -> None:
    task = then(claimed(), t.BlockTask(1, "which branch?"))
    answered = then(task, t.Answer("boss", "main"), at=LATER)
    assert answered.details == TaskDetails(notes=(a_note("answer", "main", at=LATER),))


def test_who_finishes_it_themselves_reports() -> None:
    task = then(claimed(), t.BlockTask(1, "which branch?"))
    done = then(task, t.Answer("boss", "", t.Resolution.DONE))
    assert done.details == TaskDetails(report=Reported(1, "boss", "done, says boss"))
    given_up = then(task, t.Answer("boss", "", t.Resolution.GIVE_UP))
    assert given_up.details == TaskDetails(reason="given up by boss", reason_kind="given_up")


def test_a_cancelled_task_waits_for_nothing() -> None:
    task = submitted(waiting_on=("task-0",), delay_seconds=60, requires_approval=True)
    cancelled = then(task, t.Cancel("boss"))
    assert cancelled.details == TaskDetails(
        reason="cancelled by boss", reason_kind="cancelled", asked_at=NOW
    )
    assert cancelled.wake_at == 0


@pytest.mark.parametrize(
    ("policy", "state", "kind"),
    [("fail", State.FAILED, "failed"), ("skip", State.CANCELLED, "skipped")],
)
def test_a_dependency_that_failed_leaves_the_reason_only(
    policy: str, state: State, kind: str
) -> None:
    task = submitted(
        waiting_on=("task-0", "task-9"), delay_seconds=60,
        on_dependency_failure=OnDependencyFailure(policy),
    )  # fmt: skip
    decision = transition(task, t.DependencyEnded("task-0", State.FAILED), NOW)
    assert (decision.task.state, decision.events[0].kind) == (state, kind)
    assert decision.task.details == TaskDetails(
        reason="its dependency task-0 is failed", reason_kind="dependency"
    )


def test_what_expired_waits_for_nothing() -> None:
    task = due(submitted(ttl_seconds=30, delay_seconds=60, requires_approval=True)).task
    assert task.details == TaskDetails(
        reason="its time to live of 30 s passed before it started", reason_kind="expired",
        asked_at=NOW,
    )  # fmt: skip


def test_a_refused_report_is_counted_and_changes_nothing_else() -> None:
    task = claimed(budget=Usage(tokens=5))
    refused = then(task, t.RefuseReport(1, "ann", "completed", "late"))
    assert refused.details == replace(task.details, refused_reports=1)
