"""Every lie about what the log implies is undone by `agentq repair`, byte for byte; a lie about the
log itself never is, and stays found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.proof_values import Repair
from agentq.ledger.repairing import repair_rows
from tests.proofs.judging import some
from tests.proofs.lies import ADDED, DELETED, Lie, Row, Table, lies_about, tell_lie
from tests.proofs.sqlite_ledgers import SqliteLedger

pytestmark = pytest.mark.long  # tests/ledger/test_repairs.py is quicker

DERIVED = (
    "tasks", "edges", "wants", "holds", "tree_members", "trees", "artifacts", "roles", "resources",
    "circuits", "tokens", "head",
)  # fmt: skip
LOGGED = ("events", "specs", "system_events")
#: Derived, and yet nothing but a backup has it.
NOT_REPAIRED = {
    "tasks.key": "by it events and specs are found",
    "tasks.last_event": "by it events are found; whoever moves it may hide the last one",
    f"tasks.{DELETED}": "the same",
    f"tasks.{ADDED}": "who knows what it stands for",
    "roles.id": "no event says by which number tasks know a role",
    "roles.name": "the same",
    f"roles.{DELETED}": "the same",
    "head.only": "the ledger's own row",
    "head.floor": "where the log ends is told by nothing else",
    "head.ledger_id": "signatures and seals are over it",
    f"head.{DELETED}": "the ledger's own row",
}
#: So many rows of each table are lied about.
ROWS = 2
#: What repairs write beside what they repair.
_NOTES = ("system_events", "audit")


class Repairable(SqliteLedger):
    """A ledger that is lied to for good, and can be had back."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._kept = apsw.Connection(":memory:")
        self._copy(self._kept, self._connection)
        self.original = self.dump()

    @staticmethod
    def _copy(target: apsw.Connection, source: apsw.Connection) -> None:
        with target.backup("main", source, "main") as backup:
            backup.step()

    def restore(self) -> None:
        self._copy(self._connection, self._kept)
        self.store._tx.rolled_back()

    def dump(self) -> dict[str, list[Row]]:
        return {each.name: self.rows(each) for each in self.tables() if each.name not in _NOTES}

    def stream(self) -> list[tuple[object, ...]]:
        return list(self._connection.execute("SELECT * FROM system_events ORDER BY number"))

    def repair(self, *, dry_run: bool = False) -> list[Repair]:
        """As the service does it, until nothing more is repaired."""
        done: list[Repair] = []
        for _ in range(1 if dry_run else 4):
            repaired = repair_rows(self.store, self.problems(), _noted, dry_run=dry_run)
            done += repaired
            if not repaired:
                break
        return done


def _noted(subject: str, where: str) -> AuditRow:
    return AuditRow(0, "ann", "person", "", "", "operate", subject, "done", "", 1, where)


@pytest.fixture(scope="module")
def repairable(told_folder: Path) -> Iterator[Repairable]:
    ledger = Repairable(told_folder / ".agentq/ledger.db")
    yield ledger
    ledger.close()


def found_lies(ledger: Repairable, name: str, count: int) -> Iterator[Lie]:
    """Lies that are told one after the other, and that a proof finds."""
    (table,) = [each for each in ledger.tables() if each.name == name]
    for lie in lies_about(table, some(ledger.original.get(name) or ledger.rows(table), count)):
        ledger.restore()
        try:
            tell_lie(ledger, lie)
        except ledger.refusal:
            continue
        if ledger.problems():
            yield lie
    ledger.restore()


def check_derived(ledger: Repairable, name: str, count: int) -> int:
    seen = 0
    for lie in found_lies(ledger, name, count):
        seen += 1
        lied, stream = ledger.dump(), ledger.stream()
        rehearsed = ledger.repair(dry_run=True)
        assert ledger.dump() == lied and ledger.stream() == stream, f"{lie}: a rehearsal wrote"
        done = ledger.repair()
        if lie.column in NOT_REPAIRED:
            continue
        assert rehearsed and done and ledger.problems() == [], f"{lie}: {done}"
        assert ledger.dump() == ledger.original, f"{lie}: {done}"
    return seen


def check_logged(ledger: Repairable, name: str, count: int) -> int:
    seen = 0
    for lie in found_lies(ledger, name, count):
        seen += 1
        lied, stream = ledger.dump(), ledger.stream()
        assert ledger.repair() == [], str(lie)
        assert ledger.problems() and (ledger.dump(), ledger.stream()) == (lied, stream), str(lie)
    return seen


@pytest.mark.parametrize("name", DERIVED)
def test_every_lie_about_what_the_log_implies(repairable: Repairable, name: str) -> None:
    assert check_derived(repairable, name, ROWS)


@pytest.mark.parametrize("name", LOGGED)
def test_every_lie_about_the_log(repairable: Repairable, name: str) -> None:
    assert check_logged(repairable, name, ROWS)


def test_what_is_not_repaired_is_there(repairable: Repairable) -> None:
    tables: dict[str, Table] = {each.name: each for each in repairable.tables()}
    for column in NOT_REPAIRED:
        table, _, name = column.partition(".")
        assert name in (DELETED, ADDED) or name in tables[table].columns
