"""A ledger of SQLite in memory, filled from a file, that is lied to within a savepoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from agentq.contracts.service_values import Problem
from agentq.ledger.replay import CheckFiles, verify
from agentq.stores.sqlite.store import SqliteStore, wall_clock_ms
from tests.proofs.lies import Row, Table

#: A copy is made page by page, so both have pages of the same size.
PAGE_BYTES = 2048


class SqliteLedger:
    """A copy of a ledger, and what a proof of it finds."""

    refusal: tuple[type[Exception], ...] = (apsw.ConstraintError, apsw.MismatchError)

    def __init__(self, path: Path | str, now: int = 0) -> None:
        clock = (lambda: now) if now else wall_clock_ms
        self.store = SqliteStore(":memory:", create=True, clock=clock)
        self._connection = self.store._writer
        source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        with self._connection.backup("main", source, "main") as backup:
            backup.step()
        source.close()

    def tables(self) -> list[Table]:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        return [self._table(str(name)) for (name,) in self._connection.execute(listed).fetchall()]

    def _table(self, name: str) -> Table:
        described = self._info(name)
        keys = [column for _, column, _, _, _, place in described if place]
        return Table(name, tuple(each[1] for each in described), tuple(keys))

    def describe(self, name: str) -> list[tuple[str, str]]:
        """Names and types of the columns of a table."""
        return [(column, kind) for _, column, kind, *_ in self._info(name)]

    def _info(self, name: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(f"PRAGMA table_info({name})").fetchall()

    def rows(self, table: Table) -> list[Row]:
        columns = ", ".join(table.columns)
        found = self._connection.execute(f"SELECT {columns} FROM {table.name}")  # noqa: S608
        return [Row(zip(table.columns, row, strict=True)) for row in found.fetchall()]

    def run(self, statement: str, values: Sequence[Any]) -> None:
        self._connection.execute(statement, tuple(values))

    @contextmanager
    def undone(self, table: Table) -> Iterator[None]:
        """Whatever is changed here is as it was afterwards."""
        self._connection.execute("SAVEPOINT lie")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK TO lie")
            self._connection.execute("RELEASE lie")

    def problems(self, check_files: CheckFiles | None = None) -> list[Problem]:
        return [each for _, found in verify(self.store, check_files) for each in found]

    def close(self) -> None:
        self.store.close()
