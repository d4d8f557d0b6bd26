"""A ledger of PostgreSQL that is lied to, and made good again afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from agentq.contracts.service_values import Problem
from agentq.ledger.replay import verify
from agentq.stores.postgres.store import PostgresStore
from tests.proofs.lies import Row, Table

_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'agentq'"
_COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'agentq' AND table_name = %s ORDER BY ordinal_position
"""
_KEYS = """
SELECT a.attname FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indisprimary AND i.indrelid = ('agentq.' || %s::text)::regclass ORDER BY a.attnum
"""


class PostgresLedger:
    """The ledger at an address, and what a proof of it finds."""

    refusal: tuple[type[Exception], ...] = (psycopg.IntegrityError, psycopg.DataError)

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url)
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("SET search_path TO agentq")

    def tables(self) -> list[Table]:
        names = [name for (name,) in self._connection.execute(_TABLES).fetchall()]
        return [self._table(name) for name in sorted(names) if name not in _NO_TABLES]

    def _table(self, name: str) -> Table:
        columns = [each for (each,) in self._connection.execute(_COLUMNS, [name]).fetchall()]
        keys = [each for (each,) in self._connection.execute(_KEYS, [name]).fetchall()]
        return Table(name, tuple(columns), tuple(keys))

    def rows(self, table: Table) -> list[Row]:
        columns, order = ", ".join(table.columns), ", ".join(table.keys)
        found = self._connection.execute(f"SELECT {columns} FROM {table.name} ORDER BY {order}")  # noqa: S608
        return [Row(zip(table.columns, row, strict=True)) for row in found.fetchall()]

    def run(self, statement: str, values: Sequence[Any]) -> None:
        self._connection.execute(statement.replace("?", "%s"), list(values))

    @contextmanager
    def undone(self, table: Table) -> Iterator[None]:
        """Whatever is changed of the table here is as it was afterwards, and what a proof makes of
        that: it gives events their positions."""
        names = {table.name, "head", "log", "unnumbered"}
        for name in names:
            self._connection.execute(f"CREATE TEMP TABLE kept_{name} AS TABLE {name}")
        try:
            yield
        finally:
            with self._connection.transaction():
                for name in names:
                    self._connection.execute(f"DELETE FROM {name}")  # noqa: S608
                    self._connection.execute(f"INSERT INTO {name} SELECT * FROM kept_{name}")  # noqa: S608
                    self._connection.execute(f"DROP TABLE kept_{name}")

    def problems(self) -> list[Problem]:
        return [each for _, found in verify(self.store) for each in found]

    def close(self) -> None:
        self._connection.close()
        self.store.close()


#: Which migrations were applied: the database's own, and read before anything else.
_NO_TABLES = ("schema_migrations", "migrations")
