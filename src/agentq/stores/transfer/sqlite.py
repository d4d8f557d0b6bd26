"""An SQLite ledger as one end of a move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apsw

from agentq.contracts.copying import Fence, Fingerprint, Head, Holding, Snapshot
from agentq.core.errors import Unavailable
from agentq.stores.sqlite.store import BUSY_SECONDS
from agentq.stores.transfer import base as copying
from agentq.stores.transfer.base import BATCH, DERIVED, FENCE_TABLE, Passing, quoted

_VERBS = ("INSERT", "UPDATE", "DELETE")


#: A task's history is a chain here, by the positions of its events.
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


class SqliteCopy:
    """Keeps `contracts.copying.LedgerCopy` on one SQLite file."""

    def __init__(self, path: str) -> None:
        self.where = f"sqlite:///{path}"
        self._tables = copying.copied_tables("sqlite")
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
    def _writing(self) -> Iterator[None]:
        with self._in_words():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One state of the ledger, whoever changes it meanwhile."""
        with self._in_words():
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")

    def _one(self, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        return next(iter(self._connection.execute(sql, values)), None)

    # -- the fence -------------------------------------------------------------------------------

    def fence(self) -> Fence | None:
        with self._reading():
            return self._fence()

    def _fence(self) -> Fence | None:
        known = self._one("SELECT 1 FROM sqlite_schema WHERE name = ?", (FENCE_TABLE,))
        row = self._one("SELECT * FROM agentq_fence") if known else None
        return Fence(*row) if row else None

    def set_fence(self, fence: Fence) -> list[Holding]:
        with self._writing():
            copying.check_closable(self.where, self._fence(), fence)
            held = self._held()
            if not held:
                self._raise_fence(fence)
        return held

    def _held(self) -> list[Holding]:
        return [
            Holding(*row)
            for row in self._connection.execute(
                "SELECT t.key, s.id, t.epoch, t.holder, t.state FROM tasks t"
                " JOIN specs s ON s.key = t.key WHERE t.holder <> '' ORDER BY t.key LIMIT 1000"
            )
        ]

    def change_fence(self, found: Fence, wanted: Fence) -> bool:
        with self._writing():
            if self._fence() != found or self._held():
                return False
            self._raise_fence(wanted)
        return True

    def _raise_fence(self, fence: Fence) -> None:
        self._drop_fence()
        message = apsw.format_sql_value(fence.words)
        for table in copying.all_tables("sqlite"):
            for verb in _VERBS:
                self._connection.execute(
                    f"CREATE TRIGGER {FENCE_TABLE}_{table}_{verb} BEFORE {verb} ON {table}"
                    f" BEGIN SELECT RAISE(ABORT, {message}); END"
                )
        self._connection.execute(f"CREATE TABLE {FENCE_TABLE} (state TEXT, peer TEXT, token TEXT)")
        self._connection.execute("INSERT INTO agentq_fence VALUES (?, ?, ?)", fence)

    def _drop_fence(self) -> None:
        for table in copying.all_tables("sqlite"):
            for verb in _VERBS:
                self._connection.execute(f"DROP TRIGGER IF EXISTS {FENCE_TABLE}_{table}_{verb}")
        self._connection.execute(f"DROP TABLE IF EXISTS {FENCE_TABLE}")

    def lift_fence(self, fence: Fence) -> bool:
        with self._writing():
            if self._fence() != fence:
                return False
            self._drop_fence()
        return True

    # -- reading ---------------------------------------------------------------------------------

    def check_fillable(self, fence: Fence) -> None:
        with self._reading():
            self._check_fillable(fence)

    def _check_fillable(self, fence: Fence) -> None:
        copying.check_fillable(self.where, self._contents(), self._fence(), fence)

    def _contents(self) -> dict[str, int]:
        counts = {table: self._count(table) for table in self._tables}
        (floor,) = self._one("SELECT floor FROM head") or (0,)
        if floor:  # pruned, but not new
            counts["head"] = floor
        return {table: count for table, count in counts.items() if count}

    def _count(self, table: str) -> int:
        (count,) = self._one(f"SELECT count(*) FROM {table}") or (0,)  # noqa: S608 - of our tables
        return int(count)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._reading():
            yield _SqliteSnapshot(self._connection, self._tables, self._one)

    def fingerprints(self) -> dict[str, Fingerprint]:
        with self.snapshot() as snapshot:
            return copying.fingerprints(snapshot)

    # -- filling ---------------------------------------------------------------------------------

    def fill(self, source: Snapshot, fence: Fence) -> dict[str, Fingerprint]:
        written: dict[str, Fingerprint] = {}
        with self._writing():
            self._check_fillable(fence)
            columns_of = source.tables()
            here = _SqliteSnapshot(self._connection, self._tables, self._one)
            copying.check_same_tables(columns_of, here.tables(), self.where)
            self._empty()
            for table, columns in columns_of.items():
                names, passing = sorted(columns), Passing()
                marks = ", ".join("?" * len(names))
                into = quoted(names)
                if table in DERIVED:
                    into, marks = f"{into}, {DERIVED[table]}", f"{marks}, 0"
                insert = f"INSERT INTO {table} ({into}) VALUES ({marks})"  # noqa: S608
                for batch in passing.through(source.rows(table, names)):
                    self._connection.executemany(insert, batch)
                written[table] = passing.fingerprint
            for derive in _CHAIN:
                self._connection.execute(derive)
            self._set_head(source.head())
            self._raise_fence(fence)
        return written

    def _set_head(self, head: Head) -> None:
        (here,) = self._one("SELECT lanes FROM head") or ("",)
        lanes = " ".join(sorted(head.lanes | set(here.split())))
        self._connection.execute(
            "UPDATE head SET floor = ?, key_floor = ?, lanes = ?", (head.position, head.key, lanes)
        )
        if head.sequence:
            self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'outbox'")
            self._connection.execute(
                "INSERT INTO sqlite_sequence (name, seq) VALUES ('outbox', ?)", (head.sequence,)
            )

    def _empty(self) -> None:
        self._drop_fence()
        for table in self._tables:
            self._connection.execute(f"DELETE FROM {table}")  # noqa: S608
        self._connection.execute("UPDATE head SET floor = 0, key_floor = 0")

    def clear(self, fence: Fence) -> bool:
        with self._writing():
            if not copying.is_copy(self._fence(), fence):
                return False
            self._empty()
        return True


class _SqliteSnapshot:
    def __init__(
        self,
        connection: apsw.Connection,
        tables: Sequence[str],
        one: Callable[[str], tuple[Any, ...] | None],
    ) -> None:
        self._connection = connection
        self._tables = tables
        self._one = one

    def tables(self) -> dict[str, tuple[str, ...]]:
        return {
            table: tuple(
                str(row[1])
                for row in self._connection.execute(f"PRAGMA table_info({table})")
                if row[1] != DERIVED.get(table)
            )
            for table in self._tables
        }

    def head(self) -> Head:
        position, key, lanes = self._one(
            "SELECT max(floor, coalesce((SELECT max(position) FROM events), 0)),"
            " max(key_floor, coalesce((SELECT max(key) FROM specs), 0)), lanes FROM head"
        ) or (0, 0, "")
        (sequence,) = self._one("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'") or (0,)
        return Head(position, key, sequence, frozenset(lanes.split()))

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        cursor = self._connection.execute(f"SELECT {quoted(columns)} FROM {table}")  # noqa: S608
        batch: list[tuple[Any, ...]] = []
        for row in cursor:
            batch.append(row)
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch
