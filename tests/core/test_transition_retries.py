"""What becomes of an attempt that did not succeed: each cause has its own counter and answer."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core import retry
from agentq.core import triggers as t
from agentq.core.effects import Announce, Notify, Reply, ResolveDependents
from agentq.core.limits import CRASHES_MAX, NOTES_KEPT
from agentq.core.retry import BASE_MS, CEILING_MS, backoff_ms
from agentq.core.states import State
from agentq.core.task import Task, Usage
from agentq.core.transition import Decision, transition
from tests.core.building import LEASE_MS, SECOND, claimed, due, effects_of, then

AGAIN = t.ClaimTask("bob", LEASE_MS)
RETRIED = [kind for kind in t.FailureKind if kind not in ("refused", "invalid", "budget")]


def back_in_progress(task: Task) -> Task:
    """Let the backoff pass and claim it again."""
    if task.state is State.PENDING:
        task = due(task).task
    return then(task, AGAIN)


@given(failures=st.integers(0, 10**6), jitter=st.floats(-1, 2))
def test_backoff_is_full_jitter_below_a_doubling_window_with_a_ceiling(
    failures: int, jitter: float
) -> None:
    window = min(BASE_MS * 2 ** min(max(failures, 1) - 1, 40), CEILING_MS)
    assert 0 <= backoff_ms(failures, jitter) <= window
    assert backoff_ms(failures, 0.0) == 0
    assert backoff_ms(failures, 0.5) == window // 2


def test_a_failure_waits_out_its_backoff_and_comes_back() -> None:
    # Given an attempt, when it fails,
    task = claimed()
    decision = transition(task, t.FailAttempt(1, "network down", jitter=0.5), task.updated_at)
    retrying = decision.task
    # then the task waits half of the first window, without a holder,
    assert retrying.state is State.PENDING
    assert retrying.wake_at == retrying.details.not_before == task.updated_at + BASE_MS // 2
    assert retrying.holder == ""
    assert decision.events[0].kind == "retrying"
    # is not claimable a moment before, and is announced when the moment comes.
    assert transition(retrying, t.Tick(), retrying.wake_at - 1).task is retrying
    ready = due(retrying)
    assert ready.task.state is State.READY
    assert ready.task.details.not_before == 0
    assert effects_of(ready, Announce) == [Announce("worker")]


def test_even_a_zero_backoff_is_a_moment_so_that_time_can_end_it() -> None:
    retrying = then(claimed(), t.FailAttempt(1, "x", jitter=0.0))
    assert retrying.wake_at > retrying.updated_at


def test_the_window_doubles_with_each_failure() -> None:
    task, waits = claimed(max_attempts=4), []
    for epoch in (1, 2, 3):
        task = then(task, t.FailAttempt(epoch, "x", jitter=0.5))
        waits.append(task.wake_at - task.updated_at)
        task = back_in_progress(task)
    assert waits == [BASE_MS // 2, BASE_MS, 2 * BASE_MS]


@pytest.mark.parametrize("attempts", [1, 2, 3, 5])
def test_tries_used_up_is_a_dead_letter(attempts: int) -> None:
    # Given a task with so many tries, when each of them fails,
    task = claimed(max_attempts=attempts, reply_to="results.boss")
    for epoch in range(1, attempts):
        task = back_in_progress(then(task, t.FailAttempt(epoch, "x")))
        assert task.details.failures == epoch
    decision = transition(task, t.FailAttempt(attempts, "the last straw"), task.updated_at)
    # then it is over, with the last cause, and everybody who should know is told.
    assert decision.task.state is State.FAILED
    assert decision.task.details.failures == attempts
    assert decision.task.reason == "the last straw"
    assert decision.effects == (
        ResolveDependents(State.FAILED),
        Reply("results.boss", "failed", "the last straw"),
        Notify("dead_letter", "the last straw"),
    )


@pytest.mark.parametrize("kind", RETRIED)
def test_what_may_pass_is_retried_with_its_cause_attached(kind: t.FailureKind) -> None:
    task = then(claimed(), t.FailAttempt(1, "what happened", kind))
    assert task.state is State.PENDING
    assert task.details.reason_kind == kind
    (note,) = task.details.notes
    assert (note.by, note.kind, note.text) == ("ann", "failure", "what happened")


@pytest.mark.parametrize("kind", [t.FailureKind.REFUSED, t.FailureKind.INVALID])
def test_what_will_not_pass_is_not_retried(kind: t.FailureKind) -> None:
    task = then(claimed(max_attempts=10), t.FailAttempt(1, "I will not do this", kind))
    assert task.state is State.FAILED
    assert task.details.reason_kind == kind


def test_a_budget_failure_asks_instead_of_retrying() -> None:
    task = then(claimed(), t.FailAttempt(1, "no money", t.FailureKind.BUDGET))
    assert task.state is State.BLOCKED
    assert task.details.reason_kind == "budget"


def test_a_failure_that_used_up_the_budget_asks_instead_of_retrying() -> None:
    task = claimed(budget=Usage(usd=1))
    task = then(task, t.FailAttempt(1, "network down", cost=Usage(usd=1)))
    assert task.state is State.BLOCKED
    assert task.details.spent.usd == 1


# -- crashes -----------------------------------------------------------------------------------


def test_a_vanished_holder_costs_a_crash_and_the_task_is_claimable_at_once() -> None:
    # Given a claim nobody renews, when the lease ends,
    task = claimed()
    decision = due(task)
    # then the task is ready again without backoff, and says what happened.
    after = decision.task
    assert after.state is State.READY
    assert (after.details.crashes, after.details.failures) == (1, 0)
    assert "ann no longer renewed it" in after.details.notes[-1].text
    assert after.holder == ""
    assert effects_of(decision, Announce)


def test_the_lease_holds_until_its_last_moment() -> None:
    task = claimed()
    assert transition(task, t.Tick(), task.wake_at - 1).task is task


@pytest.mark.parametrize("says_so", [False, True], ids=["vanishes", "says it crashed"])
def test_a_task_that_kills_its_holders_is_quarantined(says_so: bool) -> None:
    # Given a task with tries to spare, when one holder after the other dies over it,
    def dies(task: Task) -> Decision:
        crashed = t.FailAttempt(task.epoch, "signal 9", t.FailureKind.CRASHED)
        return transition(task, crashed, task.updated_at) if says_so else due(task)

    task = claimed(max_attempts=1000)
    for _ in range(CRASHES_MAX - 1):
        task = back_in_progress(dies(task).task)
    last = dies(task)
    # then it is poison: a dead letter, not another victim.
    assert last.task.state is State.FAILED
    assert last.events[0].kind == "quarantined"
    assert (last.task.details.crashes, last.task.details.failures) == (CRASHES_MAX, 0)
    assert effects_of(last, Notify) == [Notify("dead_letter", last.task.reason)]


# -- counters are kept apart -------------------------------------------------------------------


def test_failures_and_crashes_do_not_add_up() -> None:
    # Given two of each, one short of either limit,
    task = claimed(max_attempts=3)
    for epoch in (1, 3):
        task = back_in_progress(then(task, t.FailAttempt(epoch, "x")))
        task = back_in_progress(due(task).task)
    # then the task is still alive,
    assert task.state is State.IN_PROGRESS
    assert (task.details.failures, task.details.crashes, task.epoch) == (2, 2, 5)
    # and one more of one kind ends it.
    assert then(task, t.FailAttempt(5, "x")).state is State.FAILED
    assert due(task).task.state is State.FAILED


def test_interruptions_are_free_of_charge() -> None:
    task = claimed(max_attempts=1)
    for epoch in range(1, 30):
        task = then(task, t.Release(epoch, "shutting down"))
        assert task.state is State.READY
        task = then(task, AGAIN)
    assert task.details.interruptions == 29
    assert (task.details.failures, task.details.crashes) == (0, 0)


def test_quota_keeps_a_task_back_until_the_reset_and_uses_no_attempt() -> None:
    # Given an attempt that meets a quota, when it is released until the reset,
    task = claimed(max_attempts=1)
    reset = task.updated_at + 90 * SECOND
    waiting = then(task, t.Release(1, "quota", reset))
    # then it waits for exactly that moment, at no cost.
    assert waiting.state is State.PENDING
    assert waiting.wake_at == reset
    assert waiting.details.failures == 0
    assert due(waiting).task.state is State.READY


def test_a_release_until_a_moment_that_has_passed_is_ready_now() -> None:
    task = claimed()
    assert then(task, t.Release(1, "quota", task.updated_at)).state is State.READY


def test_rounds_count_only_changes_requested() -> None:
    task = claimed(review=True, max_attempts=1)
    for epoch in range(1, 6):
        task = then(
            task, t.Report(epoch, "done"), t.Verdict("boss", t.Ruling.CHANGES, "again"), AGAIN
        )
    assert task.details.rounds == 5
    assert (task.details.failures, task.details.crashes) == (0, 0)


def test_notes_are_bounded_and_the_newest_stay() -> None:
    task = claimed(max_attempts=1000)
    for epoch in range(1, 2 * NOTES_KEPT):
        task = back_in_progress(then(task, t.FailAttempt(epoch, f"reason {epoch}")))
    texts = [note.text for note in task.details.notes]
    assert len(texts) == NOTES_KEPT
    assert texts[-1] == f"reason {2 * NOTES_KEPT - 1}"


def test_a_new_attempt_starts_with_a_clean_sheet_but_keeps_what_was_said() -> None:
    task = then(claimed(), t.Progress(1, 80, "nearly"), t.FailAttempt(1, "network down"))
    assert task.details.progress_percent == -1
    task = back_in_progress(task)
    assert (task.reason, task.details.reason_kind, task.details.report) == ("", "", None)
    assert task.details.notes


def test_the_examples_in_the_documentation_are_true() -> None:
    assert doctest.testmod(retry).failed == 0
