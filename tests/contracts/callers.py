"""For tests of programs that submit in transactions of their own, on the ledger's database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentq.client.queue import Queue
from agentq.core.access import Principal, PrincipalKind
from agentq.settings import Settings
from agentq.wiring import open_installation
from tests.contracts.postgres_only import run_sql


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "files"


@pytest.fixture
def q(request: pytest.FixtureRequest, postgres_ledger_url: str, files: Path) -> Iterator[Queue]:
    """A client; at the end its log still tells what its rows say."""
    settings = Settings(postgres_ledger_url, str(files), "the test")
    with Queue(installation=open_installation(settings, create=True)) as made:
        yield made
        if request.node.get_closest_marker("damages") is None:
            assert [problems for _, problems in made.admin.verify() if problems] == []


@pytest.fixture
def conn(q: Queue, postgres_ledger_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a program that has a table of its own in the same database."""
    run_sql(postgres_ledger_url, "CREATE TABLE orders (number int PRIMARY KEY)")
    with psycopg.connect(postgres_ledger_url) as connection:
        yield connection


def orders(url: str) -> list[int]:
    return [row[0] for row in run_sql(url, "SELECT number FROM orders ORDER BY 1")]


def is_waiting(url: str, name: str) -> bool:
    """Whether the session of this name waits for a lock."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = %s"
            " AND wait_event_type = 'Lock'",
            [name],
        )
        return found.fetchone() is not None


def attempt_of(q: Queue, task_id: str, epoch: int) -> Queue:
    """The queue as an attempt at this task uses it."""
    who = Principal(PrincipalKind.ATTEMPT, "the attempt", task_id=task_id, epoch=epoch)
    return Queue(installation=q._client.installation, who=who)
