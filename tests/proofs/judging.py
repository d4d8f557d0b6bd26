"""Tells lies one after the other, and says which of them a proof has missed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from agentq.contracts.service_values import Problem
from tests.proofs.free import SOMETIMES, is_always_free, is_free
from tests.proofs.lies import Database, Lie, Row, Table, lies_about, tell_lie


class Ledger(Database, Protocol):
    """A ledger that can be lied to and proved."""

    def undone(self, table: Table) -> AbstractContextManager[None]: ...
    def problems(self) -> list[Problem]: ...


class Judged(msgspec.Struct):
    """What became of lies."""

    told: int = 0
    #: Lies that nobody noticed, and that are not listed as free.
    missed: list[str] = []
    #: Lies that are listed as free, and were noticed.
    noticed: list[str] = []
    #: Columns of which some lies are free, and that were missed where they are.
    really_free: set[str] = set()


def judge(ledger: Ledger, lies: Iterable[Lie]) -> Judged:
    judged = Judged()
    for lie in lies:
        with ledger.undone(lie.table):
            try:
                tell_lie(ledger, lie)
            except ledger.refusal:
                continue  # the database itself knows better
            judged.told += 1
            found = ledger.problems()
        if found:
            assert all(each.what and each.task_id for each in found)
            if is_always_free(lie):
                judged.noticed.append(f"{lie}: {found[0].what}")
        elif not is_free(lie):
            judged.missed.append(str(lie))
        elif lie.column in SOMETIMES:
            judged.really_free.add(lie.column)
    return judged


def some(rows: Sequence[Row], count: int) -> list[Row]:
    """So many of these rows, from all over."""
    step = max(len(rows) // count, 1)
    return list(rows[::step][:count])


def all_lies(ledger: Ledger, count: int) -> Iterable[Lie]:
    for table in ledger.tables():
        yield from lies_about(table, some(ledger.rows(table), count))
