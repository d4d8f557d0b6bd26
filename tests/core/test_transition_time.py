"""Time: delay, time to live and reminders, all behind the one column `wake_at`."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.effects import Announce, Notify, Reply, ResolveDependents
from agentq.core.errors import Refused
from agentq.core.limits import REMINDER_MS
from agentq.core.schedule import waiting_for
from agentq.core.states import State
from agentq.core.transition import transition
from tests.core.building import BY_STATE, LEASE_MS, NOW, SECOND, claimed, due, submitted, then

CLAIM = t.ClaimTask("ann", LEASE_MS)
DAY = 86_400 * SECOND


def test_a_delay_is_waited_out() -> None:
    task = submitted(delay_seconds=90)
    assert (task.state, waiting_for(task)) == (State.PENDING, ["time"])
    assert task.wake_at == NOW + 90 * SECOND
    assert transition(task, t.Tick(), task.wake_at - 1).task is task
    decision = due(task)
    assert decision.task.state is State.READY
    assert decision.effects == (Announce("worker"),)


def test_a_delay_counts_from_submit_whatever_else_is_waited_for() -> None:
    # Given a delayed task with a dependency, when the dependency ends after the delay,
    task = submitted(delay_seconds=90, waiting_on=("task-0",))
    ended = t.DependencyEnded("task-0", State.COMPLETE)
    # then it is ready at once; when it ends before, the rest of the delay is waited out.
    assert then(task, ended, at=NOW + 100 * SECOND).state is State.READY
    early = then(task, ended, at=NOW + 10 * SECOND)
    assert (early.state, early.wake_at) == (State.PENDING, NOW + 90 * SECOND)


@pytest.mark.parametrize("waiting_on", [(), ("task-0",)], ids=["ready", "pending"])
def test_the_time_to_live_ends_a_task_that_nobody_started(waiting_on: tuple[str, ...]) -> None:
    task = submitted(ttl_seconds=60, waiting_on=waiting_on, reply_to="results.boss")
    assert task.wake_at == NOW + 60 * SECOND
    assert transition(task, t.Tick(), task.wake_at - 1).task is task
    decision = due(task)
    assert decision.task.state is State.EXPIRED
    assert decision.task.wake_at == 0
    reason = decision.task.reason
    assert "60 s" in reason
    assert decision.effects == (
        ResolveDependents(State.EXPIRED),
        Reply("results.boss", "expired", reason),
        Notify("dead_letter", reason),
    )


def test_from_the_moment_of_expiry_nobody_can_claim_it() -> None:
    task = submitted(ttl_seconds=60)
    assert transition(task, CLAIM, task.wake_at - 1).task.state is State.IN_PROGRESS
    with pytest.raises(Refused) as refusal:
        transition(task, CLAIM, task.wake_at)
    assert refusal.value.code == "expired"
    assert refusal.value.remedy


@pytest.mark.parametrize(
    "back",
    [t.FailAttempt(1, "x"), t.Release(1), t.Release(1, "quota", NOW + DAY)],
    ids=["failed", "released", "released until tomorrow"],
)
def test_the_time_to_live_matters_only_before_the_first_start(back: t.Trigger) -> None:
    # Given a task that was started in time, when it comes back to the queue past its time to live,
    task = then(claimed(ttl_seconds=60), back)
    late = NOW + 10 * DAY
    if task.state is State.PENDING:
        task = transition(task, t.Tick(), late).task
    # then it can still be claimed.
    assert task.state is State.READY
    assert task.wake_at == 0
    assert transition(task, CLAIM, late).task.epoch == 2


def test_a_started_task_never_expires_however_long_it_runs() -> None:
    task = claimed(ttl_seconds=1)
    assert transition(task, t.Report(1, "done"), NOW + 365 * DAY).task.state is State.COMPLETE


def test_a_reopened_task_has_its_whole_time_to_live_again() -> None:
    expired = due(submitted(ttl_seconds=60)).task
    reopened = then(expired, t.Requeue("boss"), at=NOW + DAY)
    assert reopened.state is State.READY
    assert reopened.wake_at == NOW + DAY + 60 * SECOND
    assert due(reopened).task.state is State.EXPIRED


def test_the_earliest_moment_counts() -> None:
    task = submitted(delay_seconds=30, ttl_seconds=60, requires_approval=True)
    assert task.wake_at == NOW + 30 * SECOND
    task = due(task).task
    assert (task.state, task.wake_at) == (State.PENDING, NOW + 60 * SECOND)
    assert due(task).task.state is State.EXPIRED


def test_a_delay_longer_than_the_time_to_live_expires() -> None:
    task = due(submitted(delay_seconds=60, ttl_seconds=30)).task
    assert (task.state, task.updated_at) == (State.EXPIRED, NOW + 30 * SECOND)
    assert task.details.not_before == 0


@pytest.mark.parametrize("state", [State.REVIEW, State.BLOCKED])
def test_whoever_waits_for_a_person_is_reminded_of_daily(state: State) -> None:
    task = BY_STATE[state]()
    for day in (1, 2):
        assert task.wake_at == NOW + day * REMINDER_MS
        decision = due(task)
        assert [type(effect) for effect in decision.effects] == [Notify]
        assert decision.events[0].kind == "reminded"
        task = decision.task
        assert task.state is state


@pytest.mark.parametrize("state", [State.COMPLETE, State.FAILED, State.EXPIRED])
def test_time_no_longer_matters_to_what_is_over(state: State) -> None:
    assert BY_STATE[state]().wake_at == 0


@pytest.mark.parametrize("state", list(State))
def test_a_task_never_goes_back_in_time(state: State) -> None:
    # Given a clock that jumped back, when something is said to the task,
    task = BY_STATE[state]()
    decision = transition(task, t.Comment("boss", "hm"), NOW - DAY)
    # then its history still reads forward.
    assert decision.task.updated_at == task.updated_at
    assert decision.events[0].at >= task.updated_at


def test_a_clock_that_jumped_back_does_not_shorten_a_lease() -> None:
    task = transition(submitted(), CLAIM, NOW - DAY).task
    assert task.wake_at == NOW + LEASE_MS
