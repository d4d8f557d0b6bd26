"""The numbers that charts and metrics show are what the database itself counts, on every store."""

from __future__ import annotations

import random
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest

from agentq.contracts.number_values import PERIODS, Numbers
from agentq.contracts.sample_rows import SampleFilter, SampleRow
from agentq.contracts.store import Changes, Expired, Reader, Store
from agentq.core import triggers as t
from agentq.core.errors import AgentqError
from agentq.core.samples import Sample, total_of
from agentq.core.task import Spec, Usage
from tests.contracts.conftest import Backend
from tests.contracts.rows import Clock
from tests.ledger_verbs import VerbLedger

ROLES = ("builder", "writer")


def query(backend: Backend, sql: str) -> list[tuple[Any, ...]]:
    """Ask the database past everything of ours."""
    if backend.name == "postgres":
        import psycopg

        with psycopg.connect(backend.address) as connection:
            connection.execute("SET search_path TO agentq")
            return connection.execute(sql).fetchall()
    import sqlite3

    with closing(sqlite3.connect(backend.address)) as connection:
        return connection.execute(sql).fetchall()


def histories(ledger: VerbLedger, clock: Clock, chance: random.Random) -> None:
    """Some hundred tasks, of which each lives its own life."""
    store = ledger.store
    for number in range(120):
        task_id, role = f"task-{number}", chance.choice(ROLES)
        ledger.submit([Spec(task_id, role, max_attempts=2)])
        key = store.read(partial(_keys, ids=[task_id]))[task_id]
        clock.now += chance.randrange(90_000)
        for epoch in range(1, chance.randrange(1, 4)):
            with suppress(AgentqError):  # it is over, or waits: that is a life, too
                ledger.claim_task(key, "ann", 30_000)
                clock.now += chance.randrange(20_000)
                ledger.apply(key, t.Spend(epoch, Usage(usd=0.25)))
                ledger.apply(key, _end(epoch, chance))
            clock.now += chance.randrange(400_000)
            ledger.tick()
        if chance.random() < 0.1:
            ledger.queries.numbers().count()
        if chance.random() < 0.1:
            with suppress(AgentqError):
                ledger.apply(key, t.Cancel("boss"))


def _keys(reader: Reader, ids: list[str]) -> dict[str, int]:
    return reader.keys(ids)


def _end(epoch: int, chance: random.Random) -> t.Trigger:
    kind = chance.choice(list(t.FailureKind))
    ends: list[t.Trigger] = [
        t.Report(epoch, "done", cost=Usage(usd=0.5)), t.Report(epoch, "done"),
        t.FailAttempt(epoch, "no", kind, cost=Usage(usd=0.125)), t.Progress(epoch, 10),
        t.Release(epoch),
    ]  # fmt: skip
    return chance.choice(ends)


_BY_ROLE = """
SELECT r.name, {what} FROM events e JOIN tasks t ON t.key = e.key JOIN roles r ON r.id = t.role
LEFT JOIN events b ON b.key = e.key AND b.version = e.version - 1
WHERE e.at >= {since} AND e.at < {until} GROUP BY r.name ORDER BY r.name
"""
_COUNTS = """
sum(CASE WHEN e.trigger = 'Submit' THEN 1 ELSE 0 END),
sum(CASE WHEN e.trigger = 'Claim' THEN 1 ELSE 0 END),
sum(CASE WHEN e.kind = 'completed' THEN 1 ELSE 0 END),
sum(CASE WHEN e.state IN (6, 8) AND coalesce(b.state, 0) NOT IN (6, 8) THEN 1 ELSE 0 END),
sum(CASE WHEN e.state = 7 AND coalesce(b.state, 0) <> 7 THEN 1 ELSE 0 END),
sum(CASE WHEN e.kind IN ('retrying', 'lease_ended') THEN 1 ELSE 0 END),
sum(CASE WHEN e.trigger = 'Fail' OR (e.trigger = 'Tick' AND b.state = 2) THEN 1 ELSE 0 END),
sum(CASE WHEN b.state = 2 AND e.state <> 2 THEN 1 ELSE 0 END)
"""


def shown(sample: Sample) -> tuple[int, ...]:
    return (
        sample.submitted, sample.started, sample.completed, sample.dead, sample.cancelled,
        sample.retried, sample.failed, sample.processing.count,
    )  # fmt: skip


def in_sql(backend: Backend, since: int, until: int) -> dict[str, tuple[int, ...]]:
    sql = _BY_ROLE.format(what=_COUNTS, since=since, until=until)
    return {name: tuple(map(int, counts)) for name, *counts in query(backend, sql)}


@pytest.mark.parametrize("seed", [1, 2])
def test_numbers_equal_sql_counts(shared: Backend, seed: int) -> None:
    clock = Clock()
    store = shared.open(clock)
    ledger = VerbLedger(store, lambda: 0.5)
    histories(ledger, clock, random.Random(seed))
    found: dict[str, Numbers] = {}
    for period in PERIODS:
        found[period] = ledger.queries.numbers().numbers(period, "")
        sums = {role: shown(each) for role, each in found[period].by_role().items()}
        assert sums == in_sql(shared, found[period].since, clock.now + 1)
    assert sum(map(sum, map(shown, found["total"].by_role().values()))) > 400
    # Sample by sample, as a chart shows them.
    for each in found["24h"].samples:
        window = in_sql(shared, each.at, each.at + found["24h"].span_ms)
        assert shown(each.sample) == window[each.role]
    spending = "SELECT name, sum(usd) FROM spending WHERE kind = 'role' GROUP BY 1"
    spent = dict(query(shared, spending))
    costs = {role: each.cost.usd for role, each in found["total"].by_role().items()}
    assert costs == pytest.approx(spent)
    waited = total_of(each.sample for each in found["total"].samples).waiting
    claims = query(shared, "SELECT count(*) FROM events WHERE trigger = 'Claim'")
    assert waited.count == claims[0][0]


def test_what_is_stored_is_read_and_forgotten(store: Store) -> None:
    counted = SampleRow(0, 0, "", '{"position":7}')
    ever = SampleRow(0, 0, "builder", "{}")
    minutes = [SampleRow(60_000, at, "ü", "{}") for at in (60_000, 120_000, 180_000)]
    store.write(lambda tx: tx.save(Changes(samples=[ever, *minutes, counted])))
    changed = minutes[1]._replace(body='{"started":1}')
    store.write(lambda tx: tx.save(Changes(samples=[changed])))

    def listed(span_ms: int, since: int = 0) -> list[SampleRow]:
        return store.read(lambda reader: reader.records(SampleFilter(span_ms, since)))

    assert listed(60_000, 120_000) == [counted, changed, minutes[2]]
    assert listed(0) == [counted, ever]
    assert listed(900_000) == [counted]
    gone = Expired(samples_at=240_000, samples_kept=2)
    store.write(lambda tx: tx.delete([], gone))
    assert listed(60_000) == [counted, changed, minutes[2]]
    assert listed(0) == [counted, ever]
