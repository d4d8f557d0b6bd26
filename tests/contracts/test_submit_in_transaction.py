"""Submitting inside a psycopg transaction of one's own: there if it commits, and only then."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentq import TaskOptions
from agentq.client.queue import Queue
from agentq.core.errors import Conflict, Invalid, NotFound, Unavailable
from agentq.core.states import State
from tests.contracts.callers import attempt_of, conn, files, is_waiting, orders, q
from tests.contracts.postgres_only import run_sql

__all__ = ["conn", "files", "q"]

LONG = "Read all of this. " * 5000
COUNT = """
SELECT (SELECT count(*) FROM agentq.specs) + (SELECT count(*) FROM agentq.tasks)
     + (SELECT count(*) FROM agentq.events) + (SELECT count(*) FROM agentq.unnumbered)
     + (SELECT count(*) FROM agentq.log) + (SELECT count(*) FROM agentq.edges)
     + (SELECT count(*) FROM agentq.dedup) + (SELECT count(*) FROM agentq.outbox)
"""
Fields = dict[str, Any]


def test_what_commits_is_claimable_at_once_together_with_the_callers_rows(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    conn.execute("INSERT INTO orders VALUES (1)")
    task = q.submit("packer", "Pack order 1.", connection=conn)
    assert (task.state, task.version) == (State.PENDING, 0)
    # Before the commit nobody sees it, and nobody can take it.
    assert q.claim("packer") is None
    with pytest.raises(NotFound):
        q.task(task.id)
    conn.commit()
    claim = q.claim("packer")
    assert claim is not None
    assert claim.id == task.id
    assert orders(postgres_ledger_url) == [1]
    claim.complete(summary="packed")
    assert [entry.event.kind for entry in q.history(task.id)] == [
        "submitted", "claimed", "completed",
    ]  # fmt: skip


def test_what_rolls_back_leaves_nothing(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str, files: Path
) -> None:
    conn.execute("INSERT INTO orders VALUES (1)")
    q.submit(
        "packer", "Pack.", id="task-1", idempotency_key="order-1", reply_to="results.ada",
        connection=conn,
    )  # fmt: skip
    q.submit_many([{"to": "packer", "instructions": LONG}], connection=conn)
    conn.rollback()
    assert q._client.tick() == 0
    assert run_sql(postgres_ledger_url, COUNT) == [(0,)]
    assert orders(postgres_ledger_url) == []
    # Its staged file is swept once it is too old to belong to a transaction that is still open.
    staged = [path for path in files.rglob("*") if path.is_file()]
    assert staged
    sweep = q._client.installation.artifacts.sweep(
        q._client.now() + 1000, lambda task_id, sha256: False
    )
    assert sweep == 1
    assert [path for path in files.rglob("*") if path.is_file()] == []
    # The id and the key are free.
    assert q.submit("packer", "Other.", id="task-1", idempotency_key="order-1").version == 1


def test_a_savepoint_of_the_caller_takes_the_task_back_with_it(
    q: Queue, conn: psycopg.Connection[Any]
) -> None:
    kept = q.submit("packer", "Stay.", connection=conn)
    conn.execute("SAVEPOINT mine")
    q.submit("packer", "Go.", id="task-gone", connection=conn)
    conn.execute("ROLLBACK TO SAVEPOINT mine")
    conn.commit()
    assert [task.id for task in q._client.tasks().tasks] == [kept.id]


def test_a_long_context_is_read_after_the_commit(q: Queue, conn: psycopg.Connection[Any]) -> None:
    task = q.submit("packer", LONG, connection=conn)
    conn.commit()
    assert q.context(q.task(task.id)).startswith("Read all of this.")


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
def test_every_isolation_level_will_do(
    q: Queue, conn: psycopg.Connection[Any], level: psycopg.IsolationLevel
) -> None:
    conn.isolation_level = level
    q.submit("packer", "Pack.", idempotency_key="once", connection=conn)
    conn.commit()
    assert q.claim("packer") is not None


def test_autocommit_with_a_transaction_block(q: Queue, conn: psycopg.Connection[Any]) -> None:
    conn.autocommit = True
    with conn.transaction():
        q.submit("packer", "Pack.", connection=conn)
    assert q.claim("packer") is not None


def test_a_waiting_claim_is_woken_by_the_commit(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    taken: list[str] = []

    def work() -> None:
        with Queue(postgres_ledger_url) as other:
            claim = other.claim("packer", wait=60)
            assert claim is not None
            taken.append(claim.complete().id)

    worker = threading.Thread(target=work)
    worker.start()
    task = q.submit("packer", "Pack.", connection=conn)
    conn.commit()
    worker.join(30)
    assert taken == [task.id]


# -- the same again, and something else under the same name ----------------------------------------


def test_the_same_again_is_the_same_task(q: Queue, conn: psycopg.Connection[Any]) -> None:
    fields: dict[str, Any] = {"to": "packer", "instructions": "Pack.", "idempotency_key": "order-1"}
    first = q.submit(**fields, connection=conn)
    again = q.submit(**fields, connection=conn)
    conn.commit()
    between = q.submit(**fields)  # nobody has decided it yet
    q._client.tick()
    after = q.submit(**fields, connection=conn)
    assert {first.id, again.id, between.id, after.id} == {first.id}
    conn.commit()
    assert len(q._client.tasks().tasks) == 1


def test_another_body_is_a_conflict_and_the_transaction_goes_on(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    q.submit("packer", "Pack.", id="task-1", connection=conn)
    others: list[TaskOptions] = [{"id": "task-1"}, {"id": "task-1", "idempotency_key": "k"}]
    for fields in others:
        with pytest.raises(Conflict):
            q.submit("packer", "Throw away.", **fields, connection=conn)
    conn.execute("INSERT INTO orders VALUES (7)")
    conn.commit()
    with pytest.raises(Conflict):
        q.submit("packer", "Throw away.", id="task-1")
    assert q.task("task-1").spec.instructions == "Pack."
    assert orders(postgres_ledger_url) == [7]


@pytest.mark.parametrize("commits", [True, False])
def test_two_open_transactions_with_one_key_take_turns(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str, commits: bool
) -> None:
    fields: dict[str, Any] = {"to": "packer", "instructions": "Pack.", "idempotency_key": "order-1"}
    first = q.submit(**fields, connection=conn)
    found: list[str] = []

    def second() -> None:
        with psycopg.connect(postgres_ledger_url, application_name="second") as other:
            found.append(q.submit(**fields, connection=other).id)

    thread = threading.Thread(target=second)
    thread.start()
    while not is_waiting(postgres_ledger_url, "second"):
        assert thread.is_alive()
    if commits:
        conn.commit()
    else:
        conn.rollback()
    thread.join(30)
    assert (found == [first.id]) is commits
    assert [task.id for task in q._client.tasks().tasks] == found


def test_a_twin_that_stays_open_is_waited_for_in_bounds(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    fields: dict[str, Any] = {"to": "packer", "instructions": "Pack.", "id": "task-1"}
    q.submit(**fields, connection=conn)
    with psycopg.connect(postgres_ledger_url) as other:
        other.execute("SET lock_timeout = '50ms'")
        other.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(Unavailable, match="still open") as told:
            q.submit(**fields, connection=other)
        assert told.value.code == "submission_under_way"
        other.commit()  # it can go on
    assert orders(postgres_ledger_url) == [1]


@pytest.mark.damages
def test_an_expired_key_in_an_open_transaction_keeps_nobody_from_pruning(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    first = q.submit("packer", "Pack.", idempotency_key="order-1")
    q.submit("packer", "Pack.", idempotency_key="order-2")
    run_sql(postgres_ledger_url, "UPDATE agentq.dedup SET expires_at = 1")
    second = q.submit("packer", "Pack again.", idempotency_key="order-1", connection=conn)
    q._client.prune("1h")
    assert run_sql(postgres_ledger_url, "SELECT name FROM agentq.dedup") == [("key:order-1",)]
    conn.commit()
    assert q.submit("packer", "Pack again.", idempotency_key="order-1").id == second.id != first.id


def test_under_repeatable_read_a_key_taken_since_means_run_again(
    q: Queue, conn: psycopg.Connection[Any]
) -> None:
    conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    conn.execute("SELECT 1 FROM orders")
    q.submit("packer", "Pack.", id="task-1")
    with pytest.raises(Unavailable, match="run your transaction again") as told:
        q.submit("packer", "Pack.", id="task-1", connection=conn)
    assert isinstance(told.value.__cause__, psycopg.errors.SerializationFailure)
    conn.rollback()
    assert q.submit("packer", "Pack.", id="task-1", connection=conn).version == 1


# -- dependencies, attempts ------------------------------------------------------------------------


def test_a_parent_can_end_while_the_transaction_is_open(
    q: Queue, conn: psycopg.Connection[Any]
) -> None:
    parent = q.submit("builder", "Build.")
    child = q.submit("packer", "Pack.", after=[parent.id], connection=conn)
    claim = q.claim("builder")
    assert claim is not None
    claim.complete(summary="built")
    conn.commit()
    assert q.task(child.id).state is State.READY


def test_after_a_parent_of_the_same_transaction(q: Queue, conn: psycopg.Connection[Any]) -> None:
    parent = q.submit("builder", "Build.", connection=conn)
    child = q.submit("packer", "Pack.", after=[parent.id], connection=conn)
    conn.commit()
    assert q.task(child.id).state is State.PENDING
    claim = q.claim("builder")
    assert claim is not None
    claim.complete()
    assert q.task(child.id).state is State.READY


def test_an_unknown_parent_is_refused_at_once(q: Queue, conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(Invalid) as told:
        q.submit("packer", "Pack.", after=["task-nobody"], connection=conn)
    assert told.value.code == "unknown_dependency"
    conn.commit()
    assert q._client.tasks().tasks == ()


def test_an_attempt_submits_children_and_its_own_task_stays_free(
    q: Queue, conn: psycopg.Connection[Any]
) -> None:
    q.submit("builder", "Build.")
    claim = q.claim("builder")
    assert claim is not None
    child = attempt_of(q, claim.id, claim.epoch).submit("packer", "Pack.", connection=conn)
    claim.progress(50, "half")  # would wait here if the attempt's row were locked
    conn.commit()
    assert q.task(child.id).spec.parent == claim.id
    claim.complete(leave_children=True)


def test_many_are_decided_once_by_many(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    ids = {q.submit("packer", str(n), connection=conn).id for n in range(150)}
    conn.commit()
    queues = [Queue(postgres_ledger_url) for _ in range(6)]
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda q=each: counts.append(q.admin.tick())) for each in queues
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for each in queues:
        each.close()
    assert sum(counts) == 150
    assert {claim.id for claim in q.claim_many("packer", 200)} == ids
