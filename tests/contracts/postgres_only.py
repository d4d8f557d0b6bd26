"""For tests that no other store can pass: a store in PostgreSQL, and a way past it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from agentq.stores.postgres.store import PostgresStore
from tests.eventually import eventually


@pytest.fixture
def store(postgres_ledger_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(postgres_ledger_url, create=True)
    yield store
    store.close()


def run_sql(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def somebody_waits(url: str) -> None:
    """Wait until a transaction waits for a lock."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    eventually(lambda: run_sql(url, waiting)[0][0], what="a wait for a lock")
