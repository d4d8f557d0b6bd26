"""Copying a ledger whole, from one database to another: what both kinds have in common.

SQL is written as PostgreSQL takes it, in the words that SQLite has too, with %s for a value.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import blake2b
from typing import Any

from agentq.contracts.copying import (
    Fence,
    Fingerprint,
    Head,
    Holding,
    LedgerCopy,
    Snapshot,
    is_final,
)
from agentq.core.errors import Conflict, Unavailable
from agentq.stores.migrate import migrations

#: Rows that are read, and written, at once.
BATCH = 2000
FENCE_TABLE = "agentq_fence"
#: Not copied: `head` is written by what it means, leader leases belong to their own database, and
#: the positions of events travel with the events, wherever a database keeps them.
#: Closed all the same: whoever may write nothing else shall not get a leader lease either.
_LEFT_OUT = {"head", "terms", "log", "unnumbered"}
_HELD = """
SELECT s.id, t.epoch, t.holder, t.wake_at FROM tasks t JOIN specs s ON s.key = t.key
WHERE t.holder <> '' AND t.wake_at > %s
UNION ALL
SELECT 'agentq up', 0, holder, max(expires_at) FROM terms
WHERE holder <> '' AND expires_at > %s GROUP BY holder
ORDER BY 4 DESC LIMIT 1000
"""

_CREATED = re.compile(r"^CREATE TABLE (?:IF NOT EXISTS )?(\w+)", re.MULTILINE)
_MODULO = 1 << 128

Batches = Iterator[list[tuple[Any, ...]]]


def open_copy(url: str, path: str = "") -> LedgerCopy:
    """The ledger of this URL, for a move. `path` is the file of an SQLite ledger."""
    if path:
        from agentq.stores.transfer.sqlite import SqliteCopy

        return SqliteCopy(path)
    from agentq.stores.transfer.postgres import PostgresCopy

    return PostgresCopy(url)


def copied_tables(dialect: str) -> list[str]:
    """The ledger's own tables, by the migrations that made them: others may live beside them."""
    return sorted(set(all_tables(dialect)) - _LEFT_OUT)


def all_tables(dialect: str) -> list[str]:
    """All that is closed by a fence."""
    return sorted({name for _, _, sql in migrations(dialect) for name in _CREATED.findall(sql)})


def quoted(names: Iterable[str]) -> str:
    """Columns as both dialects accept them; one of ours is called trigger."""
    return ", ".join(f'"{name}"' for name in names)


class DatabaseCopy(ABC):
    """Keeps `contracts.copying.LedgerCopy`: all that does not depend on the kind of database.

    Within a transaction it is its own `Snapshot`.
    """

    dialect: str
    where: str

    # -- what a kind of database does its own way ------------------------------------------------

    @abstractmethod
    def _transaction(self, *, writes: bool) -> AbstractContextManager[None]:
        """One state of the ledger; those who write take turns."""

    @abstractmethod
    def _ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]: ...
    @abstractmethod
    def _has_table(self, name: str) -> bool: ...
    @abstractmethod
    def _number_events(self) -> None:
        """Give every event its position."""

    @abstractmethod
    def _lock(self) -> None:
        """Keep everybody else from writing for the rest of the transaction."""

    @abstractmethod
    def _add_triggers(self, words: str) -> None: ...
    @abstractmethod
    def _drop_triggers(self) -> None: ...
    @abstractmethod
    def _pour(self, table: str, names: list[str], batches: Batches) -> None: ...
    @abstractmethod
    def _after_filling(self, head: Head) -> None:
        """Derive what is derived here, and go on with numbers where the source ended."""

    @abstractmethod
    def close(self) -> None: ...
    @abstractmethod
    def tables(self) -> dict[str, tuple[str, ...]]: ...
    @abstractmethod
    def head(self) -> Head: ...
    @abstractmethod
    def rows(self, table: str, columns: Sequence[str]) -> Batches: ...

    # -- the mark --------------------------------------------------------------------------------

    def fence(self) -> Fence | None:
        with self._transaction(writes=False):
            return self._fence()

    def _fence(self) -> Fence | None:
        rows = self._ask("SELECT * FROM agentq_fence") if self._has_table(FENCE_TABLE) else []
        return Fence(*rows[0]) if rows else None

    def held(self, now: int) -> list[Holding]:
        with self._transaction(writes=False):
            return [Holding(*row) for row in self._ask(_HELD, now, now)]

    def last_used(self) -> Head:
        with self._transaction(writes=False):
            return self.head()

    def begin(self, fence: Fence) -> None:
        with self._transaction(writes=True):
            _check_movable(self.where, self._fence())
            self._drop_fence()
            self._number_events()
            self._write_fence(fence)

    def close_as_moved(self, begun: Fence, copied: dict[str, Fingerprint]) -> list[str]:
        with self._transaction(writes=True):
            _check_begun(self.where, self._fence(), begun)
            self._lock()
            here = self._fingerprints()
            differ = sorted(name for name in here if here[name] != copied.get(name))
            if not differ:
                self._raise_fence(begun._replace(state="moved"))
        return differ

    def lift(self, fence: Fence) -> bool:
        with self._transaction(writes=True):
            stands = self._fence() == fence
            if stands:
                self._drop_fence()
        return stands

    def _raise_fence(self, fence: Fence) -> None:
        self._drop_fence()
        self._add_triggers(fence.words)
        self._write_fence(fence)

    def _write_fence(self, fence: Fence) -> None:
        self._ask("CREATE TABLE agentq_fence (state text, peer text, token text)")
        self._ask("INSERT INTO agentq_fence VALUES (%s, %s, %s)", *fence)

    def _drop_fence(self) -> None:
        self._drop_triggers()
        self._ask("DROP TABLE IF EXISTS agentq_fence")

    # -- reading and filling ---------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self._transaction(writes=False):
            yield self

    def fingerprints(self) -> dict[str, Fingerprint]:
        with self._transaction(writes=False):
            return self._fingerprints()

    def _fingerprints(self) -> dict[str, Fingerprint]:
        head = self.head()
        found = {"head": _fingerprint([[(*head[:3], *sorted(head.lanes))]])}
        for table, columns in self.tables().items():
            found[table] = _fingerprint(self.rows(table, sorted(columns)))
        return found

    def check_fillable(self, fence: Fence) -> None:
        with self._transaction(writes=False):
            self._check_fillable(fence)

    def _check_fillable(self, fence: Fence) -> None:
        counts = {table: self._count(table) for table in copied_tables(self.dialect)}
        counts["head"] = self.head().position  # pruned, but not new
        contents = {table: count for table, count in counts.items() if count}
        _check_fillable(self.where, contents, self._fence(), fence)

    def _count(self, table: str) -> int:
        return int(self._ask(f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608 - one of ours

    def fill(self, source: Snapshot, fence: Fence) -> None:
        with self._transaction(writes=True):
            self._lock()
            self._check_fillable(fence)
            self._empty()
            for table, columns in source.tables().items():
                names = sorted(columns)
                self._pour(table, names, source.rows(table, names))
            self._after_filling(source.head())
            self._raise_fence(fence)

    def clear(self, fence: Fence) -> bool:
        with self._transaction(writes=True):
            stands = fence.is_copy and self._fence() == fence
            if stands:
                self._empty()
        return stands

    def _empty(self) -> None:
        self._drop_fence()
        for table in set(all_tables(self.dialect)) - {"head", "terms"}:
            self._ask(f"DELETE FROM {table}")  # noqa: S608 - one of ours
        self._after_filling(Head(0, 0, 0, self.head().lanes))


def _fingerprint(batches: Iterable[list[tuple[Any, ...]]]) -> Fingerprint:
    rows = digest = 0
    for batch in batches:
        rows += len(batch)
        # A sum does not ask for an order, and the two databases have none in common.
        for row in batch:
            message = repr(tuple(row)).encode("utf-8", "surrogatepass")
            digest += int.from_bytes(blake2b(message, digest_size=16).digest())
    return Fingerprint(rows, digest % _MODULO)


def _check_movable(where: str, found: Fence | None) -> None:
    """A ledger that counts for nobody, or that is elsewhere, cannot be moved."""
    if found is not None and found.state not in {"begun", "moving"}:
        raise Conflict(
            f"The ledger {where} cannot be moved: {found.words}. Nothing was copied.",
            "Move it from where it is now, or run `agentq move --undo` first.",
            code="moved",
        )


def _check_begun(where: str, found: Fence | None, begun: Fence) -> None:
    """Of several runs of a move only the one that began last gets to the end."""
    if found != begun:
        raise Conflict(
            f"This move was given up: another `agentq move` of {where} was begun or undone"
            " meanwhile. This run has changed nothing.",
            "See that nobody else moves this ledger, then run it again.",
        )


def _check_fillable(
    where: str, contents: Mapping[str, int], found: Fence | None, wanted: Fence
) -> None:
    """Nothing is ever poured into a ledger that holds something else."""
    if found is not None and not (found.is_copy and found.move == wanted.move):
        raise Conflict(
            f"The ledger {where} cannot be filled: {found.words}. Nothing was copied.",
            "Name another database. If nobody completes that move any more,"
            f" `agentq --url {where} move --undo --yes` deletes what was copied there.",
            code="not_empty",
        )
    if found is None and contents:
        held = ", ".join(f"{count} in {table}" for table, count in sorted(contents.items()))
        raise Conflict(
            f"The ledger {where} is not empty (rows: {held}). Nothing was copied.",
            "A ledger moves into an empty database: name another one.",
            code="not_empty",
        )


def fenced(where: str, message: str) -> Unavailable:
    """What a writer gets who met a fence, with what that said."""
    cause = f"The ledger {where} cannot be written: {message}. Nothing was changed."
    if is_final(message):
        return Unavailable(cause, "Use the ledger that is named there.", code="moved")
    return Unavailable(cause, "Wait, or ask `agentq doctor` what to do.", code="moving")
