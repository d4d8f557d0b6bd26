"""An SQLite ledger as one end of a move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import apsw

from agentq.contracts.copying import Head
from agentq.core.errors import Unavailable
from agentq.stores.sqlite.store import BUSY_SECONDS
from agentq.stores.transfer.base import (
    BATCH,
    Batches,
    LedgerCopy,
    all_tables,
    copied_tables,
    quoted,
)

#: Columns that follow from others: a task's history is a chain, by the positions of its events.
_DERIVED = {"events": "previous", "tasks": "last_event"}
_CHAIN = (
    """
    UPDATE events SET previous = c.previous FROM (
        SELECT position, lag(position, 1, 0) OVER (PARTITION BY key ORDER BY version) AS previous
        FROM events) AS c
    WHERE c.position = events.position
    """,
    """
    UPDATE tasks SET last_event = c.last_event FROM (
        SELECT key, max(position) AS last_event FROM events GROUP BY key) AS c
    WHERE c.key = tasks.key
    """,
)
_HEAD = """
SELECT max(floor, coalesce((SELECT max(position) FROM events), 0)),
       max(key_floor, coalesce((SELECT max(key) FROM specs), 0)),
       coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0), lanes, ledger_id
FROM head
"""


class SqliteCopy(LedgerCopy):
    """One SQLite file."""

    dialect = "sqlite"
    head_sql = _HEAD

    def __init__(self, path: str) -> None:
        self.where = f"sqlite:///{path}"
        with self._in_words():
            self._connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
            self._connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
            self._connection.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise Unavailable(
                f"The ledger {self.where} cannot be moved: {error}. Nothing was changed in it.",
                "Check the file, its folder and the disk; look for a process that keeps it locked.",
            ) from error

    @contextmanager
    def transaction(self, *, exclusive: bool = False) -> Iterator[None]:
        self.query("BEGIN IMMEDIATE" if exclusive else "BEGIN")
        try:
            yield
            self.query("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self.query("ROLLBACK")
            raise

    def query(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._in_words():
            return list(self._connection.execute(query.replace("%s", "?"), values))

    def has_table(self, name: str) -> bool:
        return self._connection.table_exists(None, name)

    def add_triggers(self, message: str) -> None:
        text = apsw.format_sql_value(message)
        for name, verb, table in _triggers():
            self.query(
                f"CREATE TRIGGER {name} BEFORE {verb} ON {table}"
                f" BEGIN SELECT RAISE(ABORT, {text}); END"
            )

    def drop_triggers(self) -> None:
        for name, _, _ in _triggers():
            self.query(f"DROP TRIGGER IF EXISTS {name}")

    def tables(self) -> dict[str, list[str]]:
        found = {}
        for table in copied_tables("sqlite"):
            columns = {str(row[1]) for row in self.query(f"PRAGMA table_info({table})")}
            found[table] = sorted(columns - {_DERIVED.get(table)})
        return found

    def rows(self, table: str, columns: list[str]) -> Batches:
        with self._in_words():
            cursor = self._connection.execute(f"SELECT {quoted(columns)} FROM {table}")  # noqa: S608
            while batch := list(islice(cursor, BATCH)):
                yield batch

    def insert(self, table: str, columns: list[str], batches: Batches) -> None:
        into, marks = quoted(columns), ", ".join("?" * len(columns))
        if table in _DERIVED:
            into, marks = f"{into}, {_DERIVED[table]}", f"{marks}, 0"
        insert = f"INSERT INTO {table} ({into}) VALUES ({marks})"  # noqa: S608 - one of ours
        with self._in_words():
            for batch in batches:
                self._connection.executemany(insert, batch)

    def after_filling(self, head: Head) -> None:
        for derive in _CHAIN:
            self.query(derive)
        self.query(
            "UPDATE head SET floor = %s, key_floor = %s, lanes = %s, ledger_id = %s",
            head.position, head.key, " ".join(sorted(head.lanes)), head.ledger_id,
        )  # fmt: skip
        self.query("DELETE FROM sqlite_sequence WHERE name = 'outbox'")
        self.query("INSERT INTO sqlite_sequence VALUES ('outbox', %s)", head.outbox_sequence)


def _triggers() -> Iterator[tuple[str, str, str]]:
    """The name, verb and table of each trigger of a closed ledger."""
    for table in all_tables("sqlite"):
        for verb in ("INSERT", "UPDATE", "DELETE"):
            yield f"agentq_fence_{table}_{verb}", verb, table
