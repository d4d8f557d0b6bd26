"""The schema is what the numbered migrations make of an empty database, and nothing else."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
import pytest

from agentq.contracts.store import Store
from agentq.core.errors import Conflict, Unavailable
from agentq.stores import migrate
from agentq.stores.migrate import migrations, newest
from agentq.stores.postgres import maintenance
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.sqlite import store as sqlite
from agentq.stores.sqlite.store import SqliteStore
from agentq.stores.statements import statements
from tests.contracts.conftest import Backend
from tests.contracts.rows import add, ids_of, log

DIALECTS = ("sqlite", "postgres")
#: How each database does its own bookkeeping; the ledger's tables are the same. PostgreSQL gives
#: events their places after their commit, in tables of their own; on SQLite the row has it.
BOOKKEEPING = {
    "head": {"one", "only", "position", "floor", "key_floor"},
    "events": {"position", "previous"},
    "tasks": {"last_event"},
}
OF_POSTGRES = {
    "log": {"position", "key", "version"},
    "unnumbered": {"sequence", "key", "version"},
}


@pytest.fixture
def database_url(fresh_postgres_url: str) -> str:
    """Nothing is in it yet."""
    return fresh_postgres_url


def sqlite_columns(path: str) -> dict[str, set[str]]:
    connection = apsw.Connection(path)
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    found = {
        str(name): {str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})")}
        for (name,) in tables
    }
    connection.close()
    return found


def postgres_columns(url: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    with psycopg.connect(url) as connection:
        for table, column in connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns"
            " WHERE table_schema = 'agentq'"
        ):
            found.setdefault(table, set()).add(column)
    found.pop("schema_migrations", None)
    return found


def sqlite_definition(path: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(path)
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()
    connection.close()
    return found


def postgres_definition(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, collation_name, column_default, is_nullable"
            " FROM information_schema.columns WHERE table_schema = 'agentq' ORDER BY 1, 2"
        ).fetchall()
        indexes = connection.execute(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'agentq' ORDER BY 1"
        ).fetchall()
        options = connection.execute(
            "SELECT relname, reloptions FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = 'agentq'::regnamespace ORDER BY 1"
        ).fetchall()
    return [*columns, *indexes, *options]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_migrations_are_numbered_from_one_without_gaps(dialect: str) -> None:
    numbers = [number for number, _, _ in migrations(dialect)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert newest(dialect) == numbers[-1]


def test_opening_an_empty_file_runs_the_migrations(tmp_path: Path) -> None:
    opened, by_hand = str(tmp_path / "opened.db"), str(tmp_path / "by-hand.db")
    SqliteStore(opened, create=True).close()
    connection = apsw.Connection(by_hand)
    for _, _, sql in migrations("sqlite"):
        connection.execute(sql)
    connection.close()
    assert sqlite_definition(opened) == sqlite_definition(by_hand)


def test_opening_an_empty_database_runs_the_migrations(fresh_postgres_url: str) -> None:
    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute("CREATE SCHEMA agentq")
        connection.execute("SET search_path = agentq")
        for _, _, sql in migrations("postgres"):
            connection.execute(sql.encode())
    by_hand = postgres_definition(fresh_postgres_url)
    with psycopg.connect(fresh_postgres_url) as connection:
        connection.execute("DROP SCHEMA agentq CASCADE")
    PostgresStore(fresh_postgres_url, create=True).close()
    opened = postgres_definition(fresh_postgres_url)
    assert [row for row in opened if "schema_migrations" not in str(row)] == by_hand


def test_both_databases_have_the_same_tables(tmp_path: Path, fresh_postgres_url: str) -> None:
    SqliteStore(str(tmp_path / "a.db"), create=True).close()
    PostgresStore(fresh_postgres_url, create=True).close()
    ours, theirs = sqlite_columns(str(tmp_path / "a.db")), postgres_columns(fresh_postgres_url)
    for table, private in BOOKKEEPING.items():
        ours[table] -= private
        theirs[table] -= private
    assert ours | OF_POSTGRES == theirs


def test_opening_twice_changes_nothing(shared: Backend) -> None:
    first = shared.open()
    add(first, "a")
    second = shared.open()
    assert [entry.task_id for entry in log(second)] == ["a"]
    assert second.schema_version() == first.schema_version()


def test_a_ledger_keeps_the_name_that_it_was_given(shared: Backend, tmp_path: Path) -> None:
    def name_of(store: Store) -> str:
        return store.read(lambda reader: reader.ledger_id())

    name = name_of(shared.open())
    assert len(name) == 32 and name.isalnum()
    assert name_of(shared.open()) == name
    assert shared.open().write(lambda tx: tx.ledger_id()) == name
    other = SqliteStore(str(tmp_path / "another.db"), create=True)
    assert name_of(other) != name
    other.close()


def set_version(backend: Backend, version: int) -> None:
    if backend.name == "postgres":
        with psycopg.connect(backend.address) as connection:
            connection.execute(
                "INSERT INTO agentq.schema_migrations (version, name) VALUES (%s, 'later')",
                (version,),
            )
    else:
        connection_ = apsw.Connection(backend.address)
        connection_.execute(f"PRAGMA user_version = {version}")
        connection_.close()


def test_a_newer_schema_is_refused(shared: Backend) -> None:
    shared.open()
    set_version(shared, 999)
    with pytest.raises(Unavailable, match=r"999.*newer agentq") as refused:
        shared.open()
    assert refused.value.code == "newer_schema"
    assert "Upgrade agentq" in refused.value.remedy


def test_an_older_schema_is_refused(shared: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    shared.open()
    later = max(newest(dialect) for dialect in DIALECTS) + 1
    monkeypatch.setattr(migrate, "newest", lambda dialect: later)
    with pytest.raises(Unavailable, match=f"needs {later}") as refused:
        shared.open()
    assert refused.value.code == "older_schema"
    assert "agentq db migrate" in refused.value.remedy


def unchecked(backend: Backend) -> SqliteStore | PostgresStore:
    if backend.name == "postgres":
        return PostgresStore(backend.address, check_schema=False)
    return SqliteStore(backend.address, check_schema=False, create=True)


def with_migration(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    """As if this release had one migration more."""
    number = max(newest(dialect) for dialect in DIALECTS) + 1

    def one_more(dialect: str) -> list[tuple[int, str, str]]:
        return [*migrations(dialect), (number, f"{number:04}_more", sql)]

    for module in (sqlite, maintenance):
        monkeypatch.setattr(module, "migrations", one_more)
    monkeypatch.setattr(migrate, "newest", lambda dialect: number)


def test_migrating_applies_what_is_missing_once(
    shared: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(shared.open(), "a")
    with_migration(monkeypatch, "ALTER TABLE roles ADD COLUMN note text NOT NULL DEFAULT ''")
    store = unchecked(shared)
    before = store.schema_version()
    assert store.migrate() == [f"{before + 1:04}_more"]
    assert store.migrate() == []
    assert store.schema_version() == before + 1
    store.close()
    assert [entry.task_id for entry in log(shared.open())] == ["a"]


def test_a_ledger_of_the_first_release_is_brought_up_to_date(
    shared: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a ledger as the first release left it, with a task in it,
    add_by_hand = "INSERT INTO roles (name, max_running) VALUES ('worker', 3)"
    if shared.name == "postgres":
        with monkeypatch.context() as before:
            before.setattr(maintenance, "migrations", lambda dialect: migrations(dialect)[:1])
            store = unchecked(shared)
            store.migrate()
            store.close()
        with psycopg.connect(shared.address) as connection:
            connection.execute("SET search_path = agentq")
            connection.execute(add_by_hand)
    else:
        ((number, _, sql), *_) = migrations("sqlite")
        connection_ = apsw.Connection(shared.address)
        connection_.execute(f"{sql}; {add_by_hand}; PRAGMA user_version = {number}")
        connection_.close()
    # when it is opened, then it says what to do; and after that everything is still there.
    with pytest.raises(Unavailable, match="agentq db migrate"):
        shared.open()
    store = unchecked(shared)
    assert store.migrate() == [name for _, name, _ in migrations("sqlite")[1:]]
    store.close()
    reopened = shared.open()
    (role,) = reopened.read(lambda reader: reader.roles())
    assert (role.name, role.max_running, role.provider, role.daily) == ("worker", 3, "", "")
    assert add(reopened, "a")


def test_a_migration_that_fails_leaves_nothing(
    shared: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.open()
    with_migration(monkeypatch, "CREATE TABLE halfway (a integer); CREATE TABLE tasks (a integer)")
    store = unchecked(shared)
    before = store.schema_version()
    with pytest.raises(Unavailable, match="tasks"):
        store.migrate()
    assert store.schema_version() == before
    store.close()
    columns = postgres_columns if shared.name == "postgres" else sqlite_columns
    assert "halfway" not in columns(shared.address)


def test_facts_name_the_engine_and_its_durability(store: Store) -> None:
    facts = store.facts()
    assert "engine" in facts and all(isinstance(value, str) for value in facts.values())
    assert facts.get("synchronous", facts.get("synchronous_commit")) in {"FULL", "on"}


class TestBackup:
    def test_a_copy_opens_like_the_original(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "a.db"), create=True)
        add(store, "a", "b")
        target = str(tmp_path / "copy.db")
        store.backup(target)
        add(store, "later")
        copy = SqliteStore(target, create=True)
        assert ids_of(copy.read(lambda reader: reader.tasks([1, 2, 3]))) == ["a", "b"]
        copy.close()
        store.close()

    def test_nothing_is_overwritten(self, shared: Backend, tmp_path: Path) -> None:
        target = tmp_path / "there"
        target.write_text("precious")
        with pytest.raises(Conflict, match="never overwrites"):
            shared.open().backup(str(target))
        assert target.read_text() == "precious"


def test_the_history_of_a_task_costs_no_more_in_a_long_log(tmp_path: Path) -> None:
    """`agentq verify` asks for the history of every task, and must not walk the log for each."""
    path = str(tmp_path / "a.db")
    SqliteStore(path, create=True).close()
    connection = apsw.Connection(path)
    asked = "EXPLAIN QUERY PLAN " + statements("sqlite")["history"]
    plan = [str(row[3]) for row in connection.execute(asked, {"keys": "[1]"})]
    connection.close()
    assert any(step.startswith("SEARCH e ") for step in plan)
    assert [step for step in plan if step.startswith("SCAN e")] == []
