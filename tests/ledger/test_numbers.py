"""Numbers come from the log, each event once, however many count and whenever somebody asks."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.sample_rows import SampleFilter
from agentq.contracts.store import Changes, EffectRow
from agentq.core import triggers as t
from agentq.core.errors import Invalid
from agentq.core.samples import Sample, latencies_of
from agentq.core.task import Spec, Usage
from agentq.ledger import numbers as module
from agentq.ledger.numbers import NumberLedger
from tests.ledger.conftest import LedgerEnv

DAY_SECONDS = 86_400


def numbers(env: LedgerEnv) -> NumberLedger:
    return env.ledger.queries.numbers()


def rows(env: LedgerEnv, span_ms: int) -> int:
    found = env.store.read(lambda reader: reader.records(SampleFilter(span_ms)))
    return sum(bool(row.role) for row in found)


def by_role(env: LedgerEnv, period: str = "1h", role: str = "") -> dict[str, Sample]:
    return numbers(env).numbers(period, role).by_role()


def work(env: LedgerEnv, task_id: str, to: str = "worker", usd: float = 0.5) -> None:
    """A task that waits two seconds, and fails once after three."""
    key = env.submit(task_id, to)
    env.clock.forward(2)
    env.start(task_id)
    env.clock.forward(3)
    env.ledger.apply(key, t.FailAttempt(1, "no", cost=Usage(usd=usd)))
    env.clock.forward(60)
    env.ledger.tick()
    env.start(task_id)
    env.ledger.apply(key, t.Spend(2, Usage(tokens=5)))
    env.clock.forward(1)
    env.ledger.apply(key, t.Report(2, "done"))


def test_an_answer_is_the_same_before_and_after_it_is_counted(env: LedgerEnv) -> None:
    assert numbers(env).numbers("24h", "").samples == ()
    assert not numbers(env).count() and rows(env, 0) == 0
    work(env, "task-1")
    work(env, "task-2", "writer", usd=0.25)
    periods = ("1h", "24h", "30d", "total")
    before = [numbers(env).numbers(period, "").samples for period in periods]
    assert not numbers(env).count()
    assert rows(env, 0) == 2
    assert [numbers(env).numbers(period, "").samples for period in periods] == before
    assert not numbers(env).count()
    assert [numbers(env).numbers(period, "").samples for period in periods] == before
    found = by_role(env)
    assert found["worker"].cost == Usage(usd=0.5, tokens=5)
    worker = found["worker"]
    assert (worker.started, worker.retried, worker.completed) == (2, 1, 1)
    assert found["worker"].failures == {"transient": 1}
    assert found["worker"].processing == latencies_of([3_000, 1_000])
    assert by_role(env, role="writer") == {"writer": found["writer"]}
    assert by_role(env, "30d") == by_role(env, "total") == found


def test_what_was_counted_and_what_came_since_add_up(env: LedgerEnv) -> None:
    """A task whose submission, claim and end are counted at three moments."""
    key = env.submit()
    numbers(env).count()
    env.clock.forward(2)
    env.start()
    numbers(env).count()
    env.ledger.apply(key, t.Progress(1, 5))
    env.clock.forward(120)
    env.ledger.apply(key, t.Spend(1, Usage(usd=1)))
    numbers(env).count()
    env.ledger.apply(key, t.Report(1, "done"))
    expected = Sample(
        submitted=1, started=1, completed=1, waiting=latencies_of([2_000]),
        processing=latencies_of([120_000]), cost=Usage(usd=1),
    )  # fmt: skip
    assert by_role(env) == {"worker": expected}
    assert len(numbers(env).numbers("1h", "").samples) == 2


def test_what_moves_nothing_ends_nothing_a_second_time(env: LedgerEnv) -> None:
    """A cost and a remark that come after an end, which was counted before."""
    key = env.submit()
    env.start()
    env.ledger.apply(key, t.FailAttempt(1, "no", t.FailureKind.INVALID))
    numbers(env).count()
    env.ledger.apply(key, t.Spend(1, Usage(usd=1)))
    env.ledger.apply(key, t.Comment("kim", "a pity"))
    numbers(env).count()
    found = by_role(env)["worker"]
    assert (found.dead, found.cost) == (1, Usage(usd=1))


def test_a_cost_that_blocks_a_task_ends_its_attempt(env: LedgerEnv) -> None:
    key = env.submit(budget=Usage(usd=1))
    env.start()
    numbers(env).count()
    env.clock.forward(4)
    env.ledger.apply(key, t.Spend(1, Usage(usd=1)))
    numbers(env).count()
    assert by_role(env)["worker"].processing == latencies_of([4_000])


def test_a_long_log_is_counted_page_by_page(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 3)
    monkeypatch.setattr(module, "TAIL_MAX", 2)
    env.submit_many(*(Spec(f"task-{number}", "worker") for number in range(7)))
    behind = numbers(env).numbers("1h", "")
    assert behind.behind and behind.position == 2
    assert [numbers(env).count() for _ in range(4)] == [True, True, False, False]
    found = numbers(env).numbers("1h", "")
    assert (found.behind, found.position) == (False, 7)
    assert found.by_role()["worker"].submitted == 7


def test_whoever_counts_at_the_same_time_counts_nothing_twice(env: LedgerEnv) -> None:
    env.submit()
    first, write = numbers(env), env.store.write

    def late(change: Any) -> Any:
        env.store.write = write  # type: ignore[method-assign]
        assert not numbers(env).count()  # somebody else is quicker
        return write(change)

    env.store.write = late  # type: ignore[method-assign,assignment]
    assert not first.count()
    assert by_role(env, "total")["worker"].submitted == 1


def test_periods_end_and_totals_do_not(env: LedgerEnv) -> None:
    work(env, "task-1")
    numbers(env).count()
    env.clock.forward(2 * DAY_SECONDS)
    assert by_role(env, "1h") == by_role(env, "24h") == {}
    assert by_role(env, "30d")["worker"].completed == 1
    # What happened long before it is counted is in days and totals alone.
    env.submit("task-2")
    env.clock.forward(40 * DAY_SECONDS)
    numbers(env).count()
    assert rows(env, 60_000) == 2 and rows(env, 86_400_000) == 2
    assert by_role(env, "30d") == {}
    assert by_role(env, "total")["worker"].submitted == 2


def test_samples_outlive_tasks_and_are_deleted_in_turn(env: LedgerEnv) -> None:
    work(env, "task-1")
    numbers(env).count()
    env.clock.forward(5 * DAY_SECONDS)
    env.ledger.prune(env.clock.now, lambda task_id: None)
    assert rows(env, 60_000) == rows(env, 900_000) == 0
    assert by_role(env, "30d")["worker"].completed == 1
    env.clock.forward(400 * DAY_SECONDS)
    env.ledger.prune(env.clock.now, lambda task_id: None)
    assert rows(env, 86_400_000) == 0
    assert by_role(env, "total")["worker"].completed == 1


def test_there_are_numbers_for_some_periods_only(env: LedgerEnv) -> None:
    with pytest.raises(Invalid, match="no numbers for '2h'"):
        numbers(env).numbers("2h", "")


def test_how_long_the_oldest_effect_of_a_lane_waits(env: LedgerEnv) -> None:
    env.ledger.open_lanes("delivery", "reply", "notify")
    env.submit()
    env.clock.forward(7)
    env.submit("task-2")
    env.clock.forward(5)
    ages = env.ledger.queries.stats().oldest_effect_ms
    assert ages == {"delivery": 12_000}


def test_effects_of_roles_have_their_own_moment_and_some_have_none(victim: LedgerEnv) -> None:
    victim.ledger.open_lanes("notify", "reply")
    now = victim.clock.now
    rows = [
        EffectRow(0, 1, 1, "notify", f'{{"role":"worker","at":{now - 3_000}}}'),
        EffectRow(0, 0, 0, "reply", "{}"),
    ]
    victim.store.write(lambda tx: tx.save(Changes(effects=rows)))
    assert victim.ledger.queries.stats().oldest_effect_ms == {"notify": 3_000}
