"""Every column of every row is lied about: `agentq verify` finds it, or it is listed as free."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import agentq.stores
from tests.proofs.free import FREE, SOMETIMES
from tests.proofs.judging import Judged, all_lies, judge, some
from tests.proofs.lies import Lie, Row, Table, lies_about, other_keys
from tests.proofs.sqlite_ledgers import SqliteLedger

MIGRATIONS = Path(agentq.stores.__file__).parent / "migrations" / "sqlite"
TABLES = sorted(
    set(re.findall(r"^CREATE TABLE (\w+)", "".join(
        each.read_text() for each in sorted(MIGRATIONS.glob("*.sql"))
    ), re.MULTILINE))
)  # fmt: skip
#: So many rows of each table are lied about in `make test`; all of them in `make test-long`.
ROWS = 1


def table_of(told: SqliteLedger, name: str) -> Table:
    (table,) = [each for each in told.tables() if each.name == name]
    return table


def test_nothing_is_found_where_nobody_has_lied(told: SqliteLedger) -> None:
    assert told.problems() == []
    assert {each.name for each in told.tables()} == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_every_column_has_a_rule_or_a_reason(told: SqliteLedger, name: str) -> None:
    table = table_of(told, name)
    rows = told.rows(table)
    if f"{name}.*" not in FREE:
        assert rows, f"{name} is empty: tell something of it in told_ledger.py"
    judged = judge(told, lies_about(table, some(rows, ROWS)))
    assert judged.missed == [], "give these a rule in agentq verify, or a reason in free.py"
    assert judged.noticed == [], "these are listed as free in free.py, and are found"
    for column in table.columns:
        assert f"{name}.{column}" not in FREE or f"{name}.*" not in FREE


def test_every_reason_is_about_something(told: SqliteLedger) -> None:
    columns = {f"{each.name}.{column}" for each in told.tables() for column in each.columns}
    tables = {f"{each.name}.*" for each in told.tables()}
    named = {each for each in FREE | SOMETIMES if "(" not in each}
    assert named - columns - tables - ONLY_ON_POSTGRES == set()


#: Listed in free.py for columns that the other database has.
ONLY_ON_POSTGRES: set[str] = set()


@pytest.mark.parametrize("name", [each.removesuffix(".*") for each in FREE if each.endswith(".*")])
def test_a_table_that_is_free_is_free(told: SqliteLedger, name: str) -> None:
    """Where the ledger has told nothing, a made-up row is not found either."""
    table = table_of(told, name)
    info = told.describe(name)
    row = Row({column: 1 if "INT" in kind or kind == "REAL" else "x" for column, kind in info})
    new = Row(row | {column: next(other_keys(row[column])) for column in table.keys})
    assert judge(told, [Lie(table, "(row added)", row, new)]) == Judged(told=1)


@pytest.mark.long
def test_every_row_of_every_table(told: SqliteLedger) -> None:
    judged = judge(told, all_lies(told, 10_000))
    assert (judged.missed, judged.noticed) == ([], [])
    assert judged.told > 1_500
    assert judged.really_free == set(SOMETIMES), "these are found now: take them out of free.py"
