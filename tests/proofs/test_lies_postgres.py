"""The same lies on PostgreSQL, whose schema says which there are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq import Queue
from agentq.settings import Settings
from agentq.wiring import open_installation
from tests.proofs.free import FREE
from tests.proofs.judging import all_lies, judge
from tests.proofs.lies import lies_about
from tests.proofs.postgres_ledgers import PostgresLedger
from tests.proofs.told_ledger import tell


@pytest.fixture
def told_postgres(postgres_ledger_url: str, tmp_path: Path) -> Iterator[PostgresLedger]:
    settings = Settings(postgres_ledger_url, str(tmp_path / "files"), "the test")
    with Queue(installation=open_installation(settings)) as queue:
        tell(queue)
        queue._client.queries.last_position(queue._client.who)  # gives events their positions
    ledger = PostgresLedger(postgres_ledger_url)
    yield ledger
    ledger.close()


#: What is kept otherwise than on SQLite. `make test-long` tries all tables.
OTHERWISE = ("events", "log", "tasks", "unnumbered")
#: Which events have no position yet: none, once somebody follows the log.
EMPTY = ("unnumbered",)


def test_columns_that_only_postgresql_has(told_postgres: PostgresLedger) -> None:
    assert told_postgres.problems() == []
    tables = [each for each in told_postgres.tables() if each.name in OTHERWISE]
    assert len(tables) == len(OTHERWISE)
    lies = [lie for each in tables for lie in lies_about(each, told_postgres.rows(each)[3:4])]
    judged = judge(told_postgres, lies)
    assert (judged.missed, judged.noticed) == ([], [])
    assert judged.told > 40


@pytest.mark.long
def test_rows_of_every_table(told_postgres: PostgresLedger) -> None:
    for table in told_postgres.tables():
        assert f"{table.name}.*" in FREE or told_postgres.rows(table) or table.name in EMPTY
    judged = judge(told_postgres, all_lies(told_postgres, 2))
    assert judged.missed == [], "give these a rule in agentq verify, or a reason in free.py"
    assert judged.noticed == [], "these are listed as free in free.py, and are found"
    assert judged.told > 400


@pytest.mark.long
def test_an_event_whose_place_is_yet_to_be_given(told_postgres: PostgresLedger) -> None:
    """It is waited for, and not twice, nor for one that never was."""
    (table,) = [each for each in told_postgres.tables() if each.name == "unnumbered"]
    for version in (1, 1000):
        with told_postgres.undone(table):
            told_postgres.run("INSERT INTO unnumbered (key, version) VALUES (?, ?)", [1, version])
            assert told_postgres.problems()
    assert told_postgres.problems() == []


@pytest.mark.long
def test_a_ledger_without_a_row_of_its_own(told_postgres: PostgresLedger) -> None:
    (table,) = [each for each in told_postgres.tables() if each.name == "head"]
    with told_postgres.undone(table):
        told_postgres.run("DELETE FROM head WHERE one = ?", [1])
        assert told_postgres.problems()
