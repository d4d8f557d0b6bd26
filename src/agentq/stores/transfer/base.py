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

from agentq.contracts.copying import MOVED, Fence, Fingerprint, Head, LiveLease
from agentq.core.errors import Conflict, Unavailable
from agentq.stores.migrate import migrations

#: Rows that are read, and written, at once.
BATCH = 2000
#: Not copied: `head` is written by what it means, leader leases belong to their own database, and
#: the positions of events travel with the events, wherever a database keeps them.
_NOT_COPIED = {"head", "terms", "log", "unnumbered"}
_LIVE_LEASES = """
SELECT s.id, t.holder, t.wake_at FROM tasks t JOIN specs s ON s.key = t.key
WHERE t.holder <> '' AND t.wake_at > %s
UNION ALL
SELECT 'agentq up', holder, max(expires_at) FROM terms
WHERE holder <> '' AND expires_at > %s GROUP BY holder
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
    """One end of a move: a ledger to be read whole, filled whole, and marked.

    It has a connection of its own and is used by one thread.
    """

    dialect: str
    #: How to call the ledger in messages: without a password.
    where: str

    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def transaction(self, *, writes: bool) -> AbstractContextManager[None]:
        """One committed state of the ledger; those who write take turns."""

    @abstractmethod
    def query(self, query: str, *values: Any) -> list[tuple[Any, ...]]: ...
    @abstractmethod
    def has_table(self, name: str) -> bool: ...
    @abstractmethod
    def lock(self) -> None:
        """Keep everybody else from writing for the rest of the transaction."""

    @abstractmethod
    def add_triggers(self, message: str) -> None:
        """Refuse every write with this message, also of those who want a leader lease."""

    @abstractmethod
    def drop_triggers(self) -> None: ...
    @abstractmethod
    def tables(self) -> dict[str, list[str]]:
        """Every table that is copied, and its columns in alphabetical order."""

    @abstractmethod
    def head(self) -> Head: ...
    @abstractmethod
    def rows(self, table: str, columns: list[str]) -> Batches: ...
    @abstractmethod
    def insert(self, table: str, columns: list[str], batches: Batches) -> None: ...
    @abstractmethod
    def after_filling(self, head: Head) -> None:
        """Derive what is derived here, and go on with numbers where the source ended."""

    # -- the mark --------------------------------------------------------------------------------

    def fence(self) -> Fence | None:
        with self.transaction(writes=False):
            return self._fence()

    def _fence(self) -> Fence | None:
        if not self.has_table("agentq_fence"):
            return None
        return Fence(*self.query("SELECT state, peer, token FROM agentq_fence")[0])

    def begin(self, fence: Fence) -> None:
        """Note down that a move begins, in place of one that did not get to its end.

        The ledger stays open. `Conflict` under any other mark: it counts for nobody, or is
        elsewhere.
        """
        with self.transaction(writes=True):
            found = self._fence()
            if found is not None and found.state != "begun":
                raise Conflict(
                    f"The ledger {self.where} cannot be moved: {found.message}. Nothing was"
                    " copied.",
                    "Move it from where it is now, or run `agentq move --undo` first.",
                    code="moved",
                )
            self._write_fence(fence)

    def close_as_moved(self, begun: Fence, copied: dict[str, Fingerprint]) -> list[str]:
        """Answer every write with the new address from now on, if the copy is what is here.

        Otherwise change nothing and return the tables that differ. `Conflict` if another run of
        `agentq move` began since.
        """
        with self.transaction(writes=True):
            if self._fence() != begun:
                raise Conflict(
                    f"This move was given up: another `agentq move` of {self.where} was begun or"
                    " undone meanwhile. This run has changed nothing.",
                    "See that nobody else moves this ledger, then run it again.",
                )
            self.lock()
            here = self._fingerprints()
            differ = sorted(name for name in here if here[name] != copied.get(name))
            if not differ:
                self.close_under(begun._replace(state="moved"))
        return differ

    def lift(self, fence: Fence, *, empty: bool = False) -> bool:
        """Remove exactly this mark, which opens the ledger; with `empty` the copy under it as well.

        False if another mark stands.
        """
        with self.transaction(writes=True):
            if self._fence() != fence:
                return False
            self._drop_fence()
            if empty:
                self._delete_all()
        return True

    def close_under(self, fence: Fence) -> None:
        """Within a transaction: refuse every write from now on."""
        self._write_fence(fence)
        self.add_triggers(fence.message)

    def _write_fence(self, fence: Fence) -> None:
        self._drop_fence()
        self.query("CREATE TABLE agentq_fence (state text, peer text, token text)")
        self.query("INSERT INTO agentq_fence VALUES (%s, %s, %s)", *fence)

    def _drop_fence(self) -> None:
        self.drop_triggers()
        self.query("DROP TABLE IF EXISTS agentq_fence")

    # -- reading and filling ---------------------------------------------------------------------

    def live_leases(self, now: int) -> list[LiveLease]:
        """The leases that are alive, those that end last first."""
        with self.transaction(writes=False):
            return [LiveLease(*row) for row in self.query(_LIVE_LEASES, now, now)]

    def last_used(self) -> Head:
        with self.transaction(writes=False):
            return self.head()

    def fingerprints(self) -> dict[str, Fingerprint]:
        """Of all that is copied, by table."""
        with self.transaction(writes=False):
            return self._fingerprints()

    def _fingerprints(self) -> dict[str, Fingerprint]:
        head = self.head()
        found = {"head": _fingerprint([[(*head[:3], *sorted(head.lanes))]])}
        for table, columns in self.tables().items():
            found[table] = _fingerprint(self.rows(table, columns))
        return found

    def check_fillable(self, fence: Fence) -> None:
        """Raise `Conflict` if anything is here but a copy that the same move left."""
        with self.transaction(writes=False):
            self._check_fillable(fence)

    def _check_fillable(self, wanted: Fence) -> None:
        found = self._fence()
        if found is not None:
            if found.state == "filled" and found.move == wanted.move:
                return
            raise Conflict(
                f"The ledger {self.where} cannot be filled: {found.message}. Nothing was copied.",
                "Name another database. If nobody completes that move any more,"
                f" `agentq --url {self.where} move --undo --yes` deletes what was copied there.",
                code="not_empty",
            )
        counts = {
            table: self.query(f"SELECT count(*) FROM {table}")[0][0]  # noqa: S608 - one of ours
            for table in copied_tables(self.dialect)
        }
        counts["head"] = self.head().position  # pruned, but not new
        held = ", ".join(f"{count} in {table}" for table, count in sorted(counts.items()) if count)
        if held:
            raise Conflict(
                f"The ledger {self.where} is not empty (rows: {held}). Nothing was copied.",
                "A ledger moves into an empty database: name another one.",
                code="not_empty",
            )

    def fill(self, source: LedgerCopy, fence: Fence) -> None:
        """Copy everything in one transaction, all or none, and leave the ledger closed."""
        with source.transaction(writes=False), self.transaction(writes=True):
            self.lock()
            self._check_fillable(fence)
            self._drop_fence()
            self._delete_all()
            for table, columns in source.tables().items():
                self.insert(table, columns, source.rows(table, columns))
            self.after_filling(source.head())
            self.close_under(fence)

    def _delete_all(self) -> None:
        for table in set(all_tables(self.dialect)) - {"head", "terms"}:
            self.query(f"DELETE FROM {table}")  # noqa: S608 - one of ours
        self.after_filling(Head(0, 0, 0, self.head().lanes))


def _fingerprint(batches: Iterable[list[tuple[Any, ...]]]) -> Fingerprint:
    rows = digest = 0
    for batch in batches:
        rows += len(batch)
        # A sum does not ask for an order, and the two databases have none in common.
        for row in batch:
            message = repr(tuple(row)).encode("utf-8", "surrogatepass")
            digest += int.from_bytes(blake2b(message, digest_size=16).digest())
    return Fingerprint(rows, digest)


def fenced(where: str, message: str) -> Unavailable:
    """The error for a write that a mark refused with this message."""
    cause = f"The ledger {where} cannot be written: {message}. Nothing was changed."
    if message.startswith(MOVED):
        return Unavailable(cause, "Use the ledger that is named there.", code="moved")
    return Unavailable(cause, "Wait, or ask `agentq doctor` what to do.", code="moving")
