"""Copying a ledger whole, from one database to another: what both kinds have in common."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

from agentq.contracts.copying import Fence, Fingerprint, LedgerCopy, Snapshot, is_final
from agentq.core.errors import Conflict, Unavailable
from agentq.stores.migrate import migrations

#: Rows that are read, and written, at once.
BATCH = 2000
FENCE_TABLE = "agentq_fence"
#: Not copied: `head` is written by what it means, terms of loops belong to their own database, and
#: the places of events travel with the events, wherever a database keeps them.
#: Fenced all the same: whoever may write nothing else shall not get a term either.
_LEFT_OUT = {"head", "terms", "log", "unnumbered"}
#: Columns that follow from others: the chain of a task's events, where one is kept.
DERIVED = {"events": "previous", "tasks": "last_event"}

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
    found = {name for _, _, sql in migrations(dialect) for name in _CREATED.findall(sql)}
    return sorted(found - _LEFT_OUT)


def all_tables(dialect: str) -> list[str]:
    """All that is fenced."""
    return sorted({name for _, _, sql in migrations(dialect) for name in _CREATED.findall(sql)})


def quoted(names: Iterable[str]) -> str:
    """Columns as both dialects accept them; one of ours is called trigger."""
    return ", ".join(f'"{name}"' for name in names)


class Passing:
    """Takes the fingerprint of rows as they pass."""

    def __init__(self) -> None:
        self._rows = 0
        self._digest = 0

    def through(self, batches: Iterable[list[tuple[Any, ...]]]) -> Batches:
        for batch in batches:
            self._rows += len(batch)
            # A sum does not ask for an order, and the two databases have none in common.
            for row in batch:
                digest = blake2b(repr(tuple(row)).encode("utf-8", "surrogatepass"), digest_size=16)
                self._digest += int.from_bytes(digest.digest())
            self._digest %= _MODULO
            yield batch

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self._rows, self._digest)


def fingerprints(snapshot: Snapshot) -> dict[str, Fingerprint]:
    """Of every table."""
    found = {}
    for table, columns in snapshot.tables().items():
        passing = Passing()
        for _ in passing.through(snapshot.rows(table, sorted(columns))):
            continue
        found[table] = passing.fingerprint
    return found


def check_same_tables(
    source: Mapping[str, tuple[str, ...]], target: Mapping[str, tuple[str, ...]], where: str
) -> None:
    """Both sides must be of the same schema: a column that one does not have would be lost."""
    wanted = {table: sorted(columns) for table, columns in source.items()}
    found = {table: sorted(columns) for table, columns in target.items()}
    if wanted != found:
        names = sorted({name for name in {*wanted, *found} if wanted.get(name) != found.get(name)})
        raise Unavailable(
            f"The ledger {where} does not have the same tables as the one that moves"
            f" ({', '.join(names)} differ). Nothing was copied.",
            "Run `agentq db migrate` on both, with the same version of agentq.",
        )


def check_closable(where: str, found: Fence | None, wanted: Fence) -> None:
    """What an unfinished run left is replaced, if it went to the same place; nothing else is."""
    if found is None or (found.state == "moving" and found.peer == wanted.peer):
        return
    raise Conflict(
        f"The ledger {where} cannot be moved: {found.words}. Nothing was moved.",
        "Move it from where it is now, or run `agentq move --undo` first.",
        code="moved",
    )


def fenced(where: str, message: str) -> Unavailable:
    """What a writer gets who met a fence, with what that said."""
    cause = f"The ledger {where} cannot be written: {message}. Nothing was changed."
    if is_final(message):
        return Unavailable(cause, "Use the ledger that is named there.", code="moved")
    return Unavailable(cause, "Wait, or ask `agentq doctor` what to do.", code="moving")


def is_copy(found: Fence | None, fence: Fence) -> bool:
    """Whether this very fence stands, and what is behind it counts for nobody yet."""
    return found == fence and fence.state in {"filling", "filled"}


def check_fillable(
    where: str, contents: Mapping[str, int], found: Fence | None, wanted: Fence
) -> None:
    """Nothing is ever poured into a ledger that holds something else."""
    if found is not None:
        if (found.state, found.peer) == ("filling", wanted.peer):
            return  # left by the same move, which did not get to its end
        raise Conflict(
            f"The ledger {where} cannot be filled: {found.words}. Nothing was copied.",
            "Name another database, or end that move first (`agentq move --undo` there).",
            code="not_empty",
        )
    if contents:
        held = ", ".join(f"{count} in {table}" for table, count in sorted(contents.items()))
        raise Conflict(
            f"The ledger {where} is not empty (rows: {held}). Nothing was copied.",
            "A ledger moves into an empty database: name another one.",
            code="not_empty",
        )
