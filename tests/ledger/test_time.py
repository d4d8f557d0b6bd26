"""Time in the ledger: one loop picks what is due, and every timer is a column of the task."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.limits import REMINDER_MS
from agentq.core.retry import BASE_MS
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.ledger.ledger import Ledger
from tests.ledger.conftest import Desk


def test_nothing_is_due_when_nothing_is_there(ledger: Ledger) -> None:
    assert ledger.tick() == 0
    assert ledger.views.next_wake() == 0


def test_the_next_moment_that_matters_is_known(desk: Desk) -> None:
    desk.submit("later", delay_seconds=60)
    desk.submit("sooner", delay_seconds=30)
    assert desk.ledger.views.next_wake() == desk.clock.now + 30_000


def test_a_delay_ends(desk: Desk) -> None:
    desk.submit(delay_seconds=30)
    desk.clock.forward(29.999)
    assert desk.ledger.tick() == 0
    assert desk.claim() == []
    desk.clock.forward(0.001)
    assert desk.ledger.tick() == 1
    assert desk.claim() == ["task-1"]


def test_a_backoff_ends(desk: Desk) -> None:
    # Given chance in the middle of its range (as this desk has it), when an attempt fails,
    key = desk.submit()
    desk.start()
    desk.ledger.fail(key, 1, "network down")
    # then the task is back after half of the window.
    assert desk.ledger.views.next_wake() == desk.clock.now + BASE_MS // 2
    desk.clock.forward(BASE_MS / 2000)
    desk.ledger.tick()
    assert desk.claim() == ["task-1"]
    assert desk.task().epoch == 2


def test_chance_is_written_down_so_that_replay_decides_alike(desk: Desk) -> None:
    key = desk.submit()
    desk.start()
    desk.ledger.fail(key, 1, "network down")
    (*_, last) = desk.ledger.views.history(key)
    assert isinstance(last.event.trigger, t.Fail)
    assert last.event.trigger.jitter == 0.5


def test_a_lease_ends_and_the_task_is_claimable_at_once(desk: Desk) -> None:
    desk.submit(lease_seconds=10)
    desk.start()
    desk.clock.forward(9.999)
    assert desk.ledger.tick() == 0
    desk.clock.forward(0.001)
    assert desk.ledger.tick() == 1
    assert desk.claim(holder="bob") == ["task-1"]
    assert (desk.task().epoch, desk.task().memo.crashes) == (2, 1)


def test_a_worker_that_is_late_but_not_replaced_may_still_report(desk: Desk) -> None:
    # A lease that ended is only over once somebody noticed: safety is in the epoch.
    desk.submit()
    desk.start()
    desk.clock.forward(3600)
    assert desk.report().state is State.COMPLETE
    assert desk.ledger.tick() == 0


def test_a_task_expires_by_tick(desk: Desk) -> None:
    desk.submit(ttl_seconds=60)
    desk.clock.forward(60)
    assert desk.ledger.tick() == 1
    assert desk.state() is State.EXPIRED
    assert desk.ledger.views.next_wake() == 0


def test_a_task_expires_by_claim_even_when_nobody_ticked(desk: Desk) -> None:
    # Given tasks whose time has passed unnoticed, when a worker asks for work,
    for number in range(5):
        desk.submit(f"old-{number}", ttl_seconds=60)
    desk.submit("new")
    desk.clock.forward(60)
    # then it gets none of them, and does get what is behind them.
    assert desk.claim(2) == ["new"]
    assert desk.states(*(f"old-{number}" for number in range(2))) == ["expired"] * 2


def test_expired_work_is_refused_by_name_too(desk: Desk) -> None:
    from agentq.core.errors import Refused

    desk.submit(ttl_seconds=60)
    desk.clock.forward(60)
    with pytest.raises(Refused) as refusal:
        desk.start()
    assert refusal.value.code == "expired"


def test_people_are_reminded_once_a_day(desk: Desk) -> None:
    desk.ledger.open_lanes("notify")
    desk.submit(requires_approval=True, title="Deploy")
    for _ in range(3):
        desk.clock.now += REMINDER_MS
        assert desk.ledger.tick() == 1
        assert desk.ledger.tick() == 0
    kinds = [effect["kind"] for effect in desk.effects("notify")]
    assert kinds == ["approval_wanted", "reminder", "reminder", "reminder"]


def test_a_long_sleep_is_made_up_for_in_one_go(desk: Desk) -> None:
    # Given a machine that slept for a month, when it wakes,
    desk.submit("a", requires_approval=True, approval_timeout_seconds=60, delay_seconds=30)
    desk.submit("b", delay_seconds=30, ttl_seconds=3600)
    desk.clock.forward(30 * 86_400)
    desk.ledger.tick()
    # then everything is where its last missed moment leads, and nothing is due any more.
    assert desk.states("a", "b") == [State.BLOCKED, State.EXPIRED]
    assert desk.ledger.views.next_wake() > desk.clock.now


def test_ticks_are_taken_page_by_page(desk: Desk) -> None:
    desk.submit_many(*(Spec(f"task-{n}", "worker", delay_seconds=5) for n in range(53)))
    desk.clock.forward(5)
    assert desk.ledger.tick(limit=10) == 53
    assert len(desk.claim(100)) == 53


def test_a_tick_counts_what_it_moved_also_in_others(desk: Desk) -> None:
    desk.submit("parent", ttl_seconds=5)
    desk.submit("child", after=("parent",))
    desk.clock.forward(5)
    assert desk.ledger.tick() == 2
    assert desk.state("child") is State.FAILED


def test_a_clock_that_jumps_back_costs_delay_only(desk: Desk) -> None:
    # Given a claim, when the clock falls back an hour,
    desk.submit()
    desk.start()
    desk.clock.forward(-3600)
    assert desk.ledger.tick() == 0
    desk.ledger.progress(desk.key("task-1"), 1, 50)
    # then the history still reads forward, and the work goes on.
    times = [entry.event.at for entry in desk.ledger.views.history(desk.key("task-1"))]
    assert times == sorted(times)
    assert desk.report().state is State.COMPLETE


def test_only_the_stores_clock_counts(desk: Desk) -> None:
    # No verb takes a time from a worker but the moment until which it gives a task back.
    desk.submit()
    desk.start()
    desk.ledger.release(desk.key("task-1"), 1, "quota", not_before=desk.clock.now + 5_000)
    assert desk.task().wake_at == desk.clock.now + 5_000
    desk.clock.forward(5)
    assert desk.ledger.tick() == 1
