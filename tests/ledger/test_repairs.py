"""What follows from a whole log is written again by `agentq repair`, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.contracts.audit_rows import AuditFilter, AuditRow
from agentq.contracts.store import Reader
from agentq.core import access
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.task import Spec, Usage
from agentq.ledger.repairing import REPAIRED, repair_rows
from agentq.ledger.system_log import stream
from agentq.settings import Settings
from agentq.stores.sqlite.store import SqliteStore
from agentq.wiring import WiredInstallation, open_installation
from tests.ledger.conftest import LedgerEnv

ANN = access.person("ann")
#: Tables in which a repair must leave everything as it was before the damage.
TABLES = (
    "specs", "tasks", "events", "edges", "wants", "holds", "artifacts", "trees", "tree_members",
    "resources", "circuits", "tokens", "head",
)  # fmt: skip


class Damageable:
    """A ledger and its files, with a way past the service."""

    def __init__(self, parts: WiredInstallation, files: Path) -> None:
        self.parts, self.files, self.service = parts, files, parts.service

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        assert isinstance(self.parts.store, SqliteStore)
        return self.parts.store._writer.execute(statement).fetchall()

    def rows(self) -> dict[str, object]:
        return {each: self.sql(f"SELECT * FROM {each} ORDER BY 1, 2") for each in TABLES}  # noqa: S608

    def problems(self) -> list[str]:
        return [each.what for _, found in self.service.verify(ANN) for each in found]

    def repair(self, *, dry_run: bool = False) -> list[str]:
        return [each.where for each in self.service.repair(ANN, dry_run=dry_run)]

    def notes(self) -> list[str]:
        events = self.parts.store.read(lambda reader: list(stream(reader)))
        return [event.subject for event in events if event.kind == REPAIRED]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Damageable]:
    yield from _place(tmp_path)


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Damageable]:
    """One that every test leaves as it has found it."""
    yield from _place(tmp_path_factory.mktemp("repaired"))


def _place(tmp_path: Path) -> Iterator[Damageable]:
    """A task that is over, one that comes after it, one that runs, and its child."""
    files = tmp_path / "files"
    settings = Settings(f"sqlite:///{tmp_path / 'ledger.db'}", str(files), "the test")
    parts = open_installation(settings, create=True)
    service = parts.service
    service.submit(ANN, [Spec("first", "builder", tree_budget=Usage(usd=5.0))])
    first = service.claim_task(ANN, "first", "host:1", 60_000)
    service.spend(ANN, "first", first.epoch, Usage(usd=1))
    service.submit(ANN, [Spec("child", "helper", parent="first")])
    service.complete(ANN, "first", first.epoch, "built", b"built", leave_children=True)
    service.submit(ANN, [Spec("second", "builder", after=("first",))])
    service.submit(ANN, [Spec("held", "gpu", resources=("disk", "license"))])
    service.set_limits(ANN, "builder", RoleLimits(max_running=3))
    service.set_key_limits(ANN, "license", KeyLimits(max_held=2))
    service.open_circuit(ANN, "anthropic", service.now() + 60_000, "no quota")
    service.create_token(ANN, "ann", ["read"])
    service.claim_task(ANN, "held", "host:1", 60_000)
    yield Damageable(parts, files)
    parts.close()


def test_nothing_is_wrong_and_nothing_is_repaired(place: Damageable) -> None:
    assert place.problems() == [] == place.repair() == place.repair(dry_run=True)


REPAIRABLE = {
    "another state": "UPDATE tasks SET state = 1 WHERE key = 1",
    "another version": "UPDATE tasks SET version = version + 1 WHERE key = 1",
    "another digest": "UPDATE tasks SET digest = 'ab' WHERE key = 1",
    "a memo that is none": "UPDATE tasks SET memo = '{' WHERE key = 1",
    "another role": "UPDATE tasks SET role = role + 1 WHERE key = 1",
    "another priority": "UPDATE tasks SET priority = priority + 1 WHERE key = 1",
    "a lease without end": "UPDATE tasks SET wake_at = wake_at * 2 WHERE key = 4",
    "no dependency": "DELETE FROM edges WHERE child = 3",
    "another dependency": "UPDATE edges SET parent = 4 WHERE child = 3",
    "a dependency for no reason": "INSERT INTO edges (parent, child) VALUES (4, 2)",
    "no resource": "DELETE FROM wants",
    "no place": "DELETE FROM holds",
    "another's place": "UPDATE holds SET key = 2 WHERE resource = 'disk'",
    "a place of nobody": "UPDATE holds SET key = 99",
    "another place": "UPDATE holds SET place = 1 WHERE resource = 'disk'",
    "no membership": "DELETE FROM tree_members",
    "a membership of nobody": "INSERT INTO tree_members (key, root) VALUES (99, 1)",
    "another record of evidence": "UPDATE artifacts SET size = 1",
    "no record of evidence": "DELETE FROM artifacts",
    "a record of nobody's evidence": "UPDATE artifacts SET key = 99",
    "no budget": "DELETE FROM trees",
    "the budget of nobody": "UPDATE trees SET root = 99",
    "the budget of another": "UPDATE trees SET root = 3",
    "more budget": "UPDATE trees SET extra = '{\"usd\":9}'",
    "less spent": "UPDATE trees SET spent = ''",
    "spent, unreadable": "UPDATE trees SET spent = '{'",
    "other limits": "UPDATE roles SET max_running = 9 WHERE name = 'builder'",
    "other limits of a resource": "UPDATE resources SET max_held = 9",
    "no limits of a resource": "DELETE FROM resources",
    "made-up limits of a resource": (
        "INSERT INTO resources (name, max_held, rate, level, level_at, next_at)"
        " VALUES ('new', 4, '', 0, 0, 0)"
    ),
    "another circuit": "UPDATE circuits SET open_until = 1",
    "a circuit of another": "UPDATE circuits SET provider = 'other'",
    "wider scopes": "UPDATE tokens SET scopes = 'admin'",
    "the token of another": "UPDATE tokens SET id = 'tok-other'",
    "other lanes": "UPDATE head SET lanes = 'results reply'",
}


@pytest.mark.parametrize("lie", REPAIRABLE)
def test_what_the_log_implies_is_written_again(repaired: Damageable, lie: str) -> None:
    place = repaired
    notes = len(place.notes())
    before, limits = place.rows(), place.service.limits(ANN)
    place.sql(REPAIRABLE[lie])
    damaged = place.rows()
    assert place.problems() != []
    expected = place.repair(dry_run=True)
    assert expected and place.rows() == damaged and len(place.notes()) == notes
    done = place.repair()
    assert place.problems() == [] and set(expected) <= set(done)
    assert place.rows() == before and place.service.limits(ANN) == limits
    assert len(place.notes()) == notes + len(done)
    audit = place.parts.store.read(lambda reader: reader.records(AuditFilter(who="ann")))
    assert sum(row.detail.startswith("repaired") for row in audit) >= min(len(done), 100)


BEYOND_REPAIR = {
    "another event": "UPDATE events SET at = at + 1 WHERE key = 1 AND version = 2",
    "no event": "DELETE FROM events WHERE key = 1 AND version = 2",
    "no last event": "DELETE FROM events WHERE key = 3",
    "no event in between": "DELETE FROM events WHERE key = 1 AND version = 2",
    "the last event forgotten": (
        "UPDATE tasks SET last_event = (SELECT position FROM events WHERE key = 4 AND version = 1)"
        " WHERE key = 4"
    ),
    "an unreadable event": "UPDATE events SET data = '{' WHERE key = 1 AND version = 2",
    "another trigger": "UPDATE events SET trigger = 'Claim' WHERE key = 1 AND version = 1",
    "another spec": "UPDATE specs SET body = replace(body, 'helper', 'hacker')",
    "another id": "UPDATE specs SET id = 'other' WHERE key = 1",
    "no spec": "DELETE FROM specs WHERE key = 1",
    "no task": "DELETE FROM tasks WHERE key = 1",
    "another word in the stream": "UPDATE system_events SET at = at + 1 WHERE number = 3",
    "no row of the ledger": "DELETE FROM head",
    "no role": "DELETE FROM roles WHERE name = 'builder'",
}


@pytest.mark.parametrize("lie", BEYOND_REPAIR)
def test_what_nothing_but_a_backup_has_stays_found(place: Damageable, lie: str) -> None:
    place.sql(BEYOND_REPAIR[lie])
    damaged = place.rows()
    assert place.problems() != []
    assert place.repair(dry_run=True) == place.repair() == []
    assert place.problems() != [] and place.rows() == damaged


def test_where_events_are_missing_a_row_must_know_its_last_event(place: Damageable) -> None:
    place.sql("DELETE FROM events WHERE key = 3")
    place.sql("UPDATE tasks SET priority = priority + 1 WHERE key = 4")
    place.sql("UPDATE tasks SET digest = 'ab' WHERE key = 2")
    assert place.repair() == ["tasks.priority"]


def test_where_stream_and_row_are_wrong_limits_stay(place: Damageable) -> None:
    place.sql("UPDATE system_events SET at = at + 1 WHERE number = 3")
    place.sql("UPDATE roles SET max_running = 9")
    place.sql("UPDATE trees SET extra = '{\"usd\":9}'")
    assert place.repair() == []


def test_rows_beside_a_damaged_record_are_left_alone(place: Damageable) -> None:
    place.sql("DELETE FROM edges WHERE child = 1")
    place.sql("UPDATE specs SET body = replace(body, 'helper', 'hacker')")
    assert place.repair() == []


@pytest.mark.parametrize("how", ["altered", "missing"])
def test_a_result_is_published_again_from_its_evidence(place: Damageable, how: str) -> None:
    (result,) = place.files.glob("results/*.md")
    result.unlink()
    if how == "altered":
        result.write_text("forged")
    assert place.repair(dry_run=True) == ["results/first.md"]
    assert result.exists() is (how == "altered") and place.notes() == []
    assert place.repair() == ["results/first.md"]
    assert result.read_text() == "built" and place.problems() == []
    assert place.notes() == ["first"]


def test_a_result_whose_evidence_is_gone_stays_missing(place: Damageable) -> None:
    (result,) = place.files.glob("results/*.md")
    (evidence,) = place.files.glob("artifacts/first/1/result.md")
    result.unlink()
    evidence.unlink()
    assert place.repair() == [] and len(place.problems()) == 2


def test_a_result_of_nobody_stays(place: Damageable) -> None:
    for name in ("second", "unknown"):
        (place.files / "results" / f"{name}.md").write_text("forged")
    assert place.repair() == [] and len(place.problems()) == 2


def test_budgets_that_it_shared_with_a_task_that_was_deleted_stay(victim: LedgerEnv) -> None:
    victim.submit("root", tree_budget=Usage(usd=5.0))
    victim.submit("old", parent="root")
    key = victim.submit("young", parent="old")
    victim.complete("old")
    victim.clock.forward(60)
    before = victim.clock.now
    victim.complete("young", "root")
    assert victim.ledger.prune(before, lambda _: None) == 1
    rows = victim.snapshot()
    victim.sql("UPDATE tasks SET priority = 9 WHERE key = ?", key)
    noted = AuditRow(0, "ann", "person", "", "", "operate", "", "done", "", 1, "")
    done = repair_rows(victim.store, victim.problems(), lambda *_: noted, dry_run=False)
    assert [each.where for each in done] == ["tasks.priority"]
    assert victim.snapshot() == rows and victim.problems() == []
    assert victim.sql("SELECT root FROM tree_members WHERE key = ?", key) == [(1,)]


def test_secrets_are_left_out_of_what_was_there(place: Damageable) -> None:
    key = "sk-ant-api03-" + "a1B2" * 24
    place.sql(f"UPDATE tasks SET holder = '{key}' WHERE key = 1")  # noqa: S608
    (repair,) = place.service.repair(ANN, dry_run=False)
    assert key not in repair.was and repair.now == '{"tasks.holder":""}'

    def said(reader: Reader) -> str:
        return "".join(event.data for event in stream(reader))

    assert key not in place.parts.store.read(said)
