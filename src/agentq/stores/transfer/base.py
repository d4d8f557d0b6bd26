"""Copying a ledger whole, from one database to another: what both kinds have in common.

SQL is written as PostgreSQL takes it, in the words that SQLite has too, with %s for a value.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Any

from agentq.contracts.copying import Head, LiveLease, MovedTo
from agentq.core.errors import Conflict, Unavailable
from agentq.stores.migrate import migrations

#: Rows that are read, and written, at once.
BATCH = 2000
#: Not copied: `head` is written by what it means, the leases of loops and workers belong to their
#: own database, and the positions of events travel with them, wherever a database keeps them.
_NOT_COPIED = {"head", "terms", "log", "unnumbered"}
_LIVE_LEASES = """
SELECT s.id, t.holder, t.wake_at FROM tasks t JOIN specs s ON s.key = t.key
WHERE t.holder <> '' AND t.wake_at > %s
UNION ALL
SELECT 'agentq up', holder, max(expires_at) FROM terms
WHERE holder <> '' AND expires_at > %s AND name NOT LIKE 'worker:%%' GROUP BY holder
ORDER BY 3 DESC LIMIT 1000
"""
_CREATED = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)

Batches = Iterator[list[tuple[Any, ...]]]


def all_tables(dialect: str) -> list[str]:
    """The ledger's own tables, by the migrations that made them: others may live beside them."""
    return sorted({name for _, _, sql in migrations(dialect) for name in _CREATED.findall(sql)})


def copied_tables(dialect: str) -> list[str]:
    return [table for table in all_tables(dialect) if table not in _NOT_COPIED]


def quoted(names: Iterable[str]) -> str:
    """Columns as both dialects accept them; one of ours is called trigger."""
    return ", ".join(f'"{name}"' for name in names)


class LedgerCopy(ABC):
    """One end of a move, with a connection of its own.

    Everything but `close` is called within a `transaction`.
    """

    dialect: str
    #: Asks for the columns of a `Head`.
    head_sql: str
    #: How to call the ledger in messages: without a password.
    where: str

    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def transaction(self, *, exclusive: bool = False) -> AbstractContextManager[None]:
        """One committed state to read; if `exclusive`, to write while nobody else does."""

    @abstractmethod
    def query(self, query: str, *values: Any) -> list[tuple[Any, ...]]: ...
    @abstractmethod
    def has_table(self, name: str) -> bool: ...
    @abstractmethod
    def add_triggers(self, message: str) -> None:
        """Refuse every write with this message, also of those who want a leader lease."""

    @abstractmethod
    def drop_triggers(self) -> None: ...
    @abstractmethod
    def tables(self) -> dict[str, list[str]]:
        """Every table that is copied, and its columns in alphabetical order."""

    @abstractmethod
    def rows(self, table: str, columns: list[str]) -> Batches: ...
    @abstractmethod
    def insert(self, table: str, columns: list[str], batches: Batches) -> None: ...
    @abstractmethod
    def after_filling(self, head: Head) -> None:
        """Derive what is derived here, and go on with numbers where the source ended."""

    def head(self) -> Head:
        ((position, key, sequence, lanes, ledger_id),) = self.query(self.head_sql)
        return Head(position, key, sequence, frozenset(lanes.split()), ledger_id)

    def moved_to(self) -> MovedTo | None:
        if not self.has_table("agentq_fence"):
            return None
        return MovedTo(*self.query("SELECT peer, files FROM agentq_fence")[0])

    def mark(self, moved_to: MovedTo) -> None:
        """Answer every write with the new address from now on."""
        self.unmark()
        self.query("CREATE TABLE agentq_fence (peer text, files text)")
        self.query("INSERT INTO agentq_fence VALUES (%s, %s)", *moved_to)
        self.add_triggers(moved_to.message)

    def unmark(self) -> None:
        self.drop_triggers()
        self.query("DROP TABLE IF EXISTS agentq_fence")

    def live_leases(self, now: int) -> list[LiveLease]:
        """The leases that are alive, those that end last first."""
        return [LiveLease(*row) for row in self.query(_LIVE_LEASES, now, now)]

    def count(self, table: str) -> int:
        return int(self.query(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 - one of ours

    def check_empty(self) -> None:
        counts = {table: self.count(table) for table in copied_tables(self.dialect)}
        counts["head"] = self.head().position  # pruned, but not new
        counts["system_events"] -= 1  # every ledger has the first
        held = ", ".join(f"{count} in {table}" for table, count in sorted(counts.items()) if count)
        if held:
            raise Conflict(
                f"The ledger {self.where} is not empty (rows: {held}). Nothing was copied.",
                "A ledger moves into an empty database: name another one.",
                code="not_empty",
            )

    def fill(self, source: LedgerCopy) -> None:
        self.query("DELETE FROM system_events")
        for table, columns in source.tables().items():
            self.insert(table, columns, source.rows(table, columns))
        self.after_filling(source.head())

    def fingerprints(self) -> dict[str, int]:
        """A number for each table: equal for the same rows, and practically never for others."""
        head = self.head()
        found = {"head": _fingerprint([[(*head[:3], head.ledger_id, *sorted(head.lanes))]])}
        for table, columns in self.tables().items():
            found[table] = _fingerprint(self.rows(table, columns))
        return found


def _fingerprint(batches: Iterable[list[tuple[Any, ...]]]) -> int:
    digest = 0
    for batch in batches:
        # A sum does not ask for an order, and the two databases have none in common.
        for row in batch:
            message = repr(tuple(row)).encode("utf-8", "surrogatepass")
            digest += int.from_bytes(blake2b(message, digest_size=16).digest())
    return digest


def fenced(where: str, message: str) -> Unavailable:
    """The error for a write that the mark of a move refused with this message."""
    return Unavailable(
        f"The ledger {where} cannot be written: {message}. Nothing was changed.",
        "Use the ledger that is named there.",
        code="moved",
    )
