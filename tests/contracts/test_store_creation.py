"""A ledger is made on purpose only, and then it is there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import apsw
import psycopg
import pytest

from agentq.core.errors import Damaged, Unavailable
from agentq.stores.migrate import newest
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.sqlite import store as sqlite
from agentq.stores.sqlite.store import SqliteStore
from tests.contracts.conftest import Backend
from tests.contracts.rows import add, log


@pytest.fixture
def database_url(fresh_postgres_url: str) -> str:
    """Nothing is in it yet."""
    return fresh_postgres_url


def tables(backend: Backend) -> set[str]:
    if backend.name == "postgres":
        with psycopg.connect(backend.address) as connection:
            found = connection.execute(
                "SELECT table_name FROM information_schema.tables"
                " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
            ).fetchall()
        return {name for (name,) in found}
    opened = apsw.Connection(backend.address)
    names = {str(name) for (name,) in opened.execute("SELECT name FROM sqlite_schema")}
    opened.close()
    return names


def make_foreign(backend: Backend) -> None:
    """A database that belongs to somebody else."""
    if backend.name == "postgres":
        with psycopg.connect(backend.address) as connection:
            connection.execute("CREATE TABLE customers (name text)")
        return
    foreign = apsw.Connection(backend.address)
    foreign.execute("CREATE TABLE customers (name text)")
    foreign.close()


def strict(backend: Backend) -> SqliteStore | PostgresStore:
    """Open it as everybody does who was not asked to make a ledger."""
    if backend.name == "postgres":
        return PostgresStore(backend.address)
    return SqliteStore(backend.address)


def test_opening_creates_nothing(shared: Backend) -> None:
    # Given no ledger at all, then there is none afterwards.
    with pytest.raises(Unavailable, match="no ledger") as refused:
        strict(shared)
    assert refused.value.code == "no_ledger" and "Queue.create" in refused.value.remedy
    if shared.name != "postgres":
        assert not Path(shared.address).exists()
    # Given a database of somebody else, then it stays as it is.
    make_foreign(shared)
    before = Path(shared.address).read_bytes() if shared.name != "postgres" else b""
    with pytest.raises(Unavailable, match="no ledger"):
        strict(shared)
    assert tables(shared) == {"customers"}
    assert shared.name == "postgres" or Path(shared.address).read_bytes() == before


def test_a_ledger_in_memory_is_made_and_not_opened() -> None:
    with pytest.raises(Unavailable, match="in memory") as refused:
        SqliteStore(":memory:")
    assert refused.value.code == "no_ledger" and "Queue.create" in refused.value.remedy


def test_a_file_of_no_bytes_is_what_is_left_of_a_ledger(tmp_path: Path) -> None:
    cut = tmp_path / "ledger.db"
    cut.touch()
    for create in (False, True):
        with pytest.raises(Damaged, match="0 bytes"):
            SqliteStore(str(cut), create=create)
        assert cut.read_bytes() == b""


def test_no_table_is_made_in_an_sqlite_file_of_somebody_else(tmp_path: Path) -> None:
    backend = Backend("sqlite-file", str(tmp_path / "theirs.db"))
    make_foreign(backend)
    with pytest.raises(Unavailable, match="something else"):
        SqliteStore(backend.address, create=True)
    assert tables(backend) == {"customers"}


def test_two_that_create_the_same_file_get_one_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, blank = str(tmp_path / "ledger.db"), sqlite._blank

    def slow() -> bytes:
        # Meanwhile somebody else creates it, and uses it.
        monkeypatch.setattr(sqlite, "_blank", blank)
        other = SqliteStore(path, create=True)
        add(other, "a")
        other.close()
        return blank()

    monkeypatch.setattr(sqlite, "_blank", slow)
    store = SqliteStore(path, create=True)
    assert [entry.task_id for entry in log(store)] == ["a"]
    store.close()
    assert [each.name for each in tmp_path.iterdir()] == ["ledger.db"]


def test_a_ledger_is_made_where_files_cannot_be_linked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(source: object, target: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    store = SqliteStore(str(tmp_path / "new" / "ledger.db"), create=True)
    assert store.schema_version() == newest("sqlite")
    store.close()
