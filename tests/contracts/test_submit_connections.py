"""Connections on which one can submit, those on which one cannot, and async ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from agentq.client.async_queue import on_loop
from agentq.client.queue import Queue
from agentq.core.errors import AgentqError, Invalid, Refused
from tests.contracts.callers import conn, files, is_waiting, orders, q
from tests.contracts.postgres_only import run_sql
from tests.servers.postgres import PostgresServer

__all__ = ["conn", "files", "q"]


def test_the_connection_is_left_as_it_was(q: Queue, postgres_ledger_url: str) -> None:
    with psycopg.connect(
        postgres_ledger_url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor
    ) as conn:
        conn.execute("SET search_path = public, pg_temp")
        conn.execute("SET lock_timeout = '3s'")
        q.submit("packer", "Pack.", connection=conn)
        with pytest.raises(Invalid):
            q.submit("packer", "Pack.", after=["task-nobody"], connection=conn)
        shown = conn.execute(
            "SELECT current_setting('search_path') AS path,"
            " current_setting('lock_timeout') AS lock,"
            " current_setting('idle_in_transaction_session_timeout') AS idle"
        ).fetchone()
        assert shown == {"path": "public, pg_temp", "lock": "3s", "idle": "0"}
        conn.commit()
    assert q.claim("packer") is not None


# -- connections that will not do ------------------------------------------------------------------


def refusal(q: Queue, connection: object) -> AgentqError:
    with pytest.raises(AgentqError) as told:
        q.submit("packer", "Pack.", connection=connection)
    assert told.value.remedy
    assert "Nothing was submitted" in told.value.cause
    return told.value


def test_autocommit_without_a_transaction(q: Queue, conn: psycopg.Connection[Any]) -> None:
    conn.autocommit = True
    assert refusal(q, conn).code == "no_transaction"


def test_a_failed_transaction(q: Queue, conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("SELECT 1/0")
    assert refusal(q, conn).code == "failed_transaction"


def test_a_read_only_transaction(q: Queue, conn: psycopg.Connection[Any]) -> None:
    conn.read_only = True
    assert refusal(q, conn).code == "read_only_transaction"


def test_a_busy_connection(q: Queue, conn: psycopg.Connection[Any]) -> None:
    with conn.pipeline():
        assert refusal(q, conn).code == "busy_connection"
    with conn.cursor().copy("COPY orders FROM STDIN"):
        assert refusal(q, conn).code == "busy_connection"


def test_a_closed_connection(q: Queue, conn: psycopg.Connection[Any]) -> None:
    conn.close()
    assert "closed" in refusal(q, conn).cause


def test_a_broken_connection(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    conn.execute("SELECT 1")
    run_sql(postgres_ledger_url, f"SELECT pg_terminate_backend({conn.info.backend_pid}, 5000)")
    assert refusal(q, conn).code == "server_away"


def test_another_database(q: Queue, shared_postgres: PostgresServer) -> None:
    with psycopg.connect(shared_postgres.url) as conn:
        assert refusal(q, conn).code == "other_database"


def test_another_ledger_of_the_same_name_on_the_same_server(
    q: Queue, shared_postgres: PostgresServer
) -> None:
    with shared_postgres.fresh_database() as url, Queue.create(url), psycopg.connect(url) as conn:
        assert refusal(q, conn).code == "other_database"


def test_a_user_without_rights(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    conn.execute("CREATE ROLE plain_submitter")
    try:
        conn.execute("SET LOCAL ROLE plain_submitter")
        assert "GRANT USAGE ON SCHEMA agentq" in refusal(q, conn).remedy
        conn.execute("SET LOCAL ROLE NONE")
        conn.execute("GRANT USAGE ON SCHEMA agentq TO plain_submitter")
        conn.execute(
            "GRANT SELECT, INSERT, UPDATE ON agentq.dedup, agentq.outbox TO plain_submitter"
        )
        conn.execute("GRANT SELECT ON agentq.specs, agentq.tasks TO plain_submitter")
        conn.execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA agentq TO plain_submitter")
        conn.execute("SET LOCAL ROLE plain_submitter")
        q.submit("packer", "Pack.", id="task-1", connection=conn)
    finally:
        conn.rollback()


@pytest.mark.parametrize("strange", ["postgresql://", 7, object()])
def test_something_else(q: Queue, strange: object) -> None:
    assert "psycopg 3" in refusal(q, strange).cause


def test_a_text_that_the_connection_cannot_carry(q: Queue, conn: psycopg.Connection[Any]) -> None:
    conn.execute("SET client_encoding = 'latin1'")
    with pytest.raises(Invalid, match="encoding"):
        q.submit("packer", "包装", connection=conn)


def test_sqlite_says_what_to_do_instead(tmp_path: Path) -> None:
    with Queue.create(f"sqlite:///{tmp_path / 'ledger.db'}") as q:
        found = refusal(q, object())
        assert isinstance(found, Refused)
        assert "idempotency_key" in found.remedy


# -- async -----------------------------------------------------------------------------------------


def test_async_commit_rollback_and_refusal(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    async def program() -> list[str]:
        async with await psycopg.AsyncConnection.connect(postgres_ledger_url) as other:
            await other.execute("INSERT INTO orders VALUES (1)")
            kept = await on_loop(other, lambda c: q.submit("packer", "Pack.", connection=c))
            await other.commit()
            await on_loop(other, lambda c: q.submit("packer", "No.", connection=c))
            await other.rollback()
            with pytest.raises(Invalid, match="await"):
                q.submit("packer", "Pack.", connection=other)
            with pytest.raises(Invalid, match="psycopg 3"):
                await on_loop(7, lambda c: q.submit("packer", "Pack.", connection=c))
            return [kept.id]

    kept = asyncio.run(program())
    assert [task.id for task in q._client.tasks().tasks] == kept
    assert orders(postgres_ledger_url) == [1]


def test_an_async_submit_that_is_cancelled_leaves_the_connection_to_its_owner(
    q: Queue, conn: psycopg.Connection[Any], postgres_ledger_url: str
) -> None:
    q.submit("packer", "Pack.", id="task-1", connection=conn)

    async def program() -> None:
        async with await psycopg.AsyncConnection.connect(
            postgres_ledger_url, application_name="second"
        ) as other:
            waiting = asyncio.ensure_future(
                on_loop(other, lambda c: q.submit("packer", "Pack.", id="task-1", connection=c))
            )
            while not await asyncio.to_thread(is_waiting, postgres_ledger_url, "second"):
                assert not waiting.done()
            waiting.cancel()
            await asyncio.sleep(0)  # it hears that, and is told once more
            waiting.cancel()
            await asyncio.sleep(0)
            assert not waiting.done()
            await asyncio.to_thread(conn.commit)  # the twin ends, and with it the wait
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await other.execute("SELECT 1")  # nobody else is using it
            await other.commit()

    asyncio.run(program())
    assert [task.id for task in q._client.tasks().tasks] == ["task-1"]
