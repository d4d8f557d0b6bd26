"""An SQLite ledger as one end of a move."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import apsw

from agentq.contracts.copying import Head
from agentq.core.errors import Unavailable
from agentq.stores.sqlite.store import BUSY_SECONDS
from agentq.stores.transfer.base import (
    BATCH,
    FENCE_TABLE,
    Batches,
    DatabaseCopy,
    all_tables,
    copied_tables,
    quoted,
)

_VERBS = ("INSERT", "UPDATE", "DELETE")
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
       coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0), lanes
FROM head
"""


class SqliteCopy(DatabaseCopy):
    """One SQLite file."""

    dialect = "sqlite"

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
    def _transaction(self, *, writes: bool) -> Iterator[None]:
        with self._in_words():
            self._connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(query.replace("%s", "?"), values))

    def _has_table(self, name: str) -> bool:
        return bool(self._ask("SELECT 1 FROM sqlite_schema WHERE name = %s", name))

    def _number_events(self) -> None:
        """Whoever writes an event here gives it its position."""

    def _lock(self) -> None:
        """Whoever writes is alone here."""

    def _add_triggers(self, words: str) -> None:
        message = apsw.format_sql_value(words)
        for table in all_tables("sqlite"):
            for verb in _VERBS:
                self._connection.execute(
                    f"CREATE TRIGGER {FENCE_TABLE}_{table}_{verb} BEFORE {verb} ON {table}"
                    f" BEGIN SELECT RAISE(ABORT, {message}); END"
                )

    def _drop_triggers(self) -> None:
        for table in all_tables("sqlite"):
            for verb in _VERBS:
                self._ask(f"DROP TRIGGER IF EXISTS {FENCE_TABLE}_{table}_{verb}")

    def tables(self) -> dict[str, tuple[str, ...]]:
        return {
            table: tuple(
                str(row[1])
                for row in self._ask(f"PRAGMA table_info({table})")
                if row[1] != _DERIVED.get(table)
            )
            for table in copied_tables("sqlite")
        }

    def head(self) -> Head:
        ((position, key, sequence, lanes),) = self._ask(_HEAD)
        return Head(position, key, sequence, frozenset(lanes.split()))

    def rows(self, table: str, columns: Sequence[str]) -> Batches:
        cursor = self._connection.execute(f"SELECT {quoted(columns)} FROM {table}")  # noqa: S608
        while batch := list(islice(cursor, BATCH)):
            yield batch

    def _pour(self, table: str, names: list[str], batches: Batches) -> None:
        into, marks = quoted(names), ", ".join("?" * len(names))
        if table in _DERIVED:
            into, marks = f"{into}, {_DERIVED[table]}", f"{marks}, 0"
        insert = f"INSERT INTO {table} ({into}) VALUES ({marks})"  # noqa: S608 - one of ours
        for batch in batches:
            self._connection.executemany(insert, batch)

    def _after_filling(self, head: Head) -> None:
        for derive in _CHAIN:
            self._ask(derive)
        lanes = " ".join(sorted(head.lanes))
        self._ask(
            "UPDATE head SET floor = %s, key_floor = %s, lanes = %s",
            head.position, head.key, lanes,
        )  # fmt: skip
        self._ask("DELETE FROM sqlite_sequence WHERE name = 'outbox'")
        self._ask("INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', %s)", head.sequence)
