"""Lies made up from a schema: every column of every row changed, every row deleted and copied.

A new column is lied about as soon as it is there; whoever adds one gives it a rule, or a reason in
`free.py` why nobody can tell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

DELETED, ADDED = "(row deleted)", "(row added)"


class Table(NamedTuple):
    """A table as the database describes it; `keys` are columns that must not be the same twice."""

    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]


class Row(dict[str, Any]):
    """A row by column."""


class Lie(NamedTuple):
    """One change of one row; `what` is a column, or that a row was deleted or added."""

    table: Table
    what: str
    row: Row
    new: Row | None

    @property
    def column(self) -> str:
        return f"{self.table.name}.{self.what}"

    def __str__(self) -> str:
        key = ", ".join(f"{name} {self.row[name]!r}" for name in self.table.keys)
        became = ""
        if self.new is not None and self.what != ADDED:
            became = f": {str(self.row[self.what])[:80]!r} became {str(self.new[self.what])[:80]!r}"
        return f"{self.column} of {key}{became}"


class Database(Protocol):
    """What a lie is told to; every `?` stands for a value."""

    #: What the database raises for a row that its constraints do not allow.
    refusal: tuple[type[Exception], ...]

    def tables(self) -> list[Table]: ...
    def rows(self, table: Table) -> list[Row]: ...
    def run(self, statement: str, values: Sequence[Any]) -> None: ...


def tell_lie(database: Database, lie: Lie) -> None:
    name, row = lie.table.name, lie.row
    if lie.new is None or lie.what != ADDED:
        where = " AND ".join(f"{column} = ?" for column in lie.table.keys)
        values = [row[column] for column in lie.table.keys]
        if lie.new is None:
            database.run(f"DELETE FROM {name} WHERE {where}", values)  # noqa: S608
        else:
            change = f"UPDATE {name} SET {lie.what} = ? WHERE {where}"  # noqa: S608
            database.run(change, [lie.new[lie.what], *values])
        return
    columns = ", ".join(lie.new)
    marks = ", ".join("?" for _ in lie.new)
    database.run(f"INSERT INTO {name} ({columns}) VALUES ({marks})", list(lie.new.values()))  # noqa: S608


def lies_about(table: Table, rows: Sequence[Row]) -> Iterator[Lie]:
    """Everything that is tried on a table that has these rows."""
    for row in rows:
        for column in table.columns:
            for value in other_values(row[column]):
                yield Lie(table, column, row, Row(row | {column: value}))
        yield Lie(table, DELETED, row, None)
        for column in table.keys:
            yield Lie(table, ADDED, row, Row(row | {column: next(other_keys(row[column]))}))


def other_values(value: Any) -> Iterator[Any]:
    """What a value may be changed into, so that it still looks like one."""
    if isinstance(value, (int, float)):
        yield value + 1
        if value:
            yield value - 1
        if value > 2**40:  # a moment
            yield value + 2**40
        return
    text = str(value)
    if text.startswith("{"):
        yield from _other_json(text)
    else:
        yield text + "x"
    if text:
        yield ""


def _other_json(text: str) -> Iterator[str]:
    plain = json.loads(text)
    for name, value in plain.items():
        if isinstance(value, bool):
            changed: Any = not value
        elif isinstance(value, (int, float)):
            changed = value + 1
        elif isinstance(value, str):
            changed = value + "x"
        elif isinstance(value, list):
            changed = value[1:] if value else ["x"]
        else:
            changed = None
        yield json.dumps(plain | {name: changed}, separators=(",", ":"))
        yield json.dumps(
            {each: plain[each] for each in plain if each != name}, separators=(",", ":")
        )
    yield json.dumps(plain | {"made_up": 1}, separators=(",", ":"))


def other_keys(value: Any) -> Iterator[Any]:
    if isinstance(value, (int, float)):
        yield value + 1000
    else:
        yield f"{value}-copy"
