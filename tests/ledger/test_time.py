"""Time in the ledger: one loop picks what is due, and every timer is a column of the task."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.limits import REMINDER_MS
from agentq.core.retry import BASE_MS
from agentq.core.states import State
from agentq.core.task import Spec
from tests.ledger.conftest import LedgerEnv
from tests.ledger_verbs import VerbLedger


def test_nothing_is_due_when_nothing_is_there(ledger: VerbLedger) -> None:
    assert ledger.tick() == 0
    assert ledger.queries.next_wake() == 0


def test_the_next_moment_that_matters_is_known(env: LedgerEnv) -> None:
    env.submit("later", delay_seconds=60)
    env.submit("sooner", delay_seconds=30)
    assert env.ledger.queries.next_wake() == env.clock.now + 30_000


def test_a_delay_ends(env: LedgerEnv) -> None:
    env.submit(delay_seconds=30)
    env.clock.forward(29.999)
    assert env.ledger.tick() == 0
    assert env.claim() == []
    env.clock.forward(0.001)
    assert env.ledger.tick() == 1
    assert env.claim() == ["task-1"]


def test_a_backoff_ends(env: LedgerEnv) -> None:
    # Given chance in the middle of its range (as this desk has it), when an attempt fails,
    key = env.submit()
    env.start()
    env.ledger.fail(key, 1, "network down")
    # then the task is back after half of the window.
    assert env.ledger.queries.next_wake() == env.clock.now + BASE_MS // 2
    env.clock.forward(BASE_MS / 2000)
    env.ledger.tick()
    assert env.claim() == ["task-1"]
    assert env.task().epoch == 2


def test_chance_is_written_down_so_that_replay_decides_alike(env: LedgerEnv) -> None:
    key = env.submit()
    env.start()
    env.ledger.fail(key, 1, "network down")
    (*_, last) = env.ledger.queries.history(key)
    assert isinstance(last.event.trigger, t.FailAttempt)
    assert last.event.trigger.jitter == 0.5


def test_a_lease_ends_and_the_task_is_claimable_at_once(env: LedgerEnv) -> None:
    env.submit(lease_seconds=10)
    env.start()
    env.clock.forward(9.999)
    assert env.ledger.tick() == 0
    env.clock.forward(0.001)
    assert env.ledger.tick() == 1
    assert env.claim(holder="bob") == ["task-1"]
    assert (env.task().epoch, env.task().details.crashes) == (2, 1)


def test_a_worker_that_is_late_but_not_replaced_may_still_report(env: LedgerEnv) -> None:
    # A lease that ended is only over once somebody noticed: safety is in the epoch.
    env.submit()
    env.start()
    env.clock.forward(3600)
    assert env.report().state is State.COMPLETE
    assert env.ledger.tick() == 0


def test_a_task_expires_by_tick(env: LedgerEnv) -> None:
    env.submit(ttl_seconds=60)
    env.clock.forward(60)
    assert env.ledger.tick() == 1
    assert env.state() is State.EXPIRED
    assert env.ledger.queries.next_wake() == 0


def test_a_task_expires_by_claim_even_when_nobody_ticked(env: LedgerEnv) -> None:
    # Given tasks whose time has passed unnoticed, when a worker asks for work,
    for number in range(5):
        env.submit(f"old-{number}", ttl_seconds=60)
    env.submit("new")
    env.clock.forward(60)
    # then it gets none of them, and does get what is behind them.
    assert env.claim(2) == ["new"]
    assert env.states(*(f"old-{number}" for number in range(2))) == ["expired"] * 2


def test_expired_work_is_refused_by_name_too(env: LedgerEnv) -> None:
    from agentq.core.errors import Refused

    env.submit(ttl_seconds=60)
    env.clock.forward(60)
    with pytest.raises(Refused) as refusal:
        env.start()
    assert refusal.value.code == "expired"


def test_people_are_reminded_once_a_day(env: LedgerEnv) -> None:
    env.ledger.open_lanes("notify")
    env.submit(requires_approval=True, title="Deploy")
    for _ in range(3):
        env.clock.now += REMINDER_MS
        assert env.ledger.tick() == 1
        assert env.ledger.tick() == 0
    kinds = [effect["kind"] for effect in env.effects("notify")]
    assert kinds == ["approval_wanted", "reminder", "reminder", "reminder"]


def test_a_long_sleep_is_made_up_for_in_one_go(env: LedgerEnv) -> None:
    # Given a machine that slept for a month, when it wakes,
    env.submit("a", requires_approval=True, approval_timeout_seconds=60, delay_seconds=30)
    env.submit("b", delay_seconds=30, ttl_seconds=3600)
    env.clock.forward(30 * 86_400)
    env.ledger.tick()
    # then everything is where its last missed moment leads, and nothing is due any more.
    assert env.states("a", "b") == [State.BLOCKED, State.EXPIRED]
    assert env.ledger.queries.next_wake() > env.clock.now


def test_ticks_are_taken_page_by_page(env: LedgerEnv) -> None:
    env.submit_many(*(Spec(f"task-{n}", "worker", delay_seconds=5) for n in range(53)))
    env.clock.forward(5)
    assert env.ledger.tick(limit=10) == 53
    assert len(env.claim(100)) == 53


def test_a_tick_counts_what_it_moved_also_in_others(env: LedgerEnv) -> None:
    env.submit("parent", ttl_seconds=5)
    env.submit("child", after=("parent",))
    env.clock.forward(5)
    assert env.ledger.tick() == 2
    assert env.state("child") is State.FAILED


def test_a_clock_that_jumps_back_costs_delay_only(env: LedgerEnv) -> None:
    # Given a claim, when the clock falls back an hour,
    env.submit()
    env.start()
    env.clock.forward(-3600)
    assert env.ledger.tick() == 0
    env.ledger.progress(env.key("task-1"), 1, 50)
    # then the history still reads forward, and the work goes on.
    times = [entry.event.at for entry in env.ledger.queries.history(env.key("task-1"))]
    assert times == sorted(times)
    assert env.report().state is State.COMPLETE


def test_only_the_stores_clock_counts(env: LedgerEnv) -> None:
    # No verb takes a time from a worker but the moment until which it gives a task back.
    env.submit()
    env.start()
    env.ledger.release(env.key("task-1"), 1, "quota", not_before=env.clock.now + 5_000)
    assert env.task().wake_at == env.clock.now + 5_000
    env.clock.forward(5)
    assert env.ledger.tick() == 1
