"""Numbered plain-SQL migrations, and the check that code and database speak of the same schema."""

from __future__ import annotations

from functools import cache

from agentq.core.errors import Unavailable
from agentq.stores.statements import FOLDER


@cache
def migrations(dialect: str) -> list[tuple[int, str, str]]:
    """(number, name, sql) of each migration, in order."""
    return [
        (int(file.name.split("_", 1)[0]), file.stem, file.read_text("utf-8"))
        for file in sorted((FOLDER / "migrations" / dialect).glob("*.sql"))
    ]


@cache
def newest(dialect: str) -> int:
    """The number of the last migration, by the files' names alone: every start asks for it."""
    return max(
        int(file.name.split("_", 1)[0]) for file in (FOLDER / "migrations" / dialect).iterdir()
    )


def check_version(version: int, dialect: str, where: str, *, may_be_older: bool = False) -> None:
    """Refuse a schema this code does not know."""
    known = newest(dialect)
    if version > known:
        raise Unavailable(
            f"The ledger {where} has schema {version}, written by a newer agentq; this one knows up"
            f" to {known}. Nothing was touched.",
            "Upgrade agentq, or point it at another ledger.",
            code="newer_schema",
        )
    if version < known and not may_be_older:
        raise Unavailable(
            f"The ledger {where} has schema {version}; this agentq needs {known}."
            " Nothing was touched.",
            "Run `agentq db migrate` (and take a backup first: `agentq db backup`).",
            code="older_schema",
        )


def no_ledger(where: str) -> Unavailable:
    """The error of opening a ledger at a place where none was ever created."""
    return Unavailable(
        f"There is no ledger at {where}. Nothing was created.",
        "`agentq init` or `Queue.create(url)` makes an empty one; if there was one, bring it back"
        " from a backup.",
        code="no_ledger",
    )
