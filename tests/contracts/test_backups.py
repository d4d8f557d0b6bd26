"""Backups are whole or not there, and whoever makes one is never kept waiting for ever."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import apsw
import psycopg
import pytest

from agentq.core.errors import Conflict, Unavailable
from agentq.stores import backups
from agentq.stores.postgres import backup as postgres_backup
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.sqlite import backup as sqlite_backup
from agentq.stores.sqlite.store import SqliteStore
from tests.contracts.rows import add, log
from tests.servers.machine import small_disk
from tests.servers.postgres import PostgresServer

#: Writes a part of a backup, says so, and goes no further.
WAITS = """
import signal, sys
from agentq.stores.backups import new_file
with new_file(sys.argv[1]) as file:
    file.write_text("half")
    file.with_name(file.name + "-journal").write_text("beside it")
    print("begun", flush=True)
    while True:
        signal.pause()
"""


@pytest.fixture
def dumping(
    fresh_postgres_url: str, shared_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresStore]:
    """A store on a server, whose own pg_dump is the one that is found."""
    monkeypatch.setenv("PATH", str(shared_postgres.program("pg_dump").parent), prepend=os.pathsep)
    store = PostgresStore(fresh_postgres_url, create=True)
    yield store
    store.close()


class TestPostgres:
    def test_only_its_owner_may_read_it_and_no_password_is_lost(
        self, dumping: PostgresStore, fresh_postgres_url: str, tmp_path: Path
    ) -> None:
        """One of the key file's password has no other way into pg_dump than a service file."""
        url = fresh_postgres_url.replace("postgres@", "postgres:secret@") + "&sslpassword=hidden"
        store = PostgresStore(url)
        before = os.umask(0)
        try:
            store.backup(str(tmp_path / "copy"))
        finally:
            os.umask(before)
            store.close()
        assert (tmp_path / "copy").read_bytes().startswith(b"PGDMP")
        assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600

    def test_a_table_that_somebody_keeps_locked(
        self,
        dumping: PostgresStore,
        fresh_postgres_url: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(postgres_backup, "LOCK_SECONDS", 0.3)
        target = tmp_path / "ledger.dump"
        with psycopg.connect(fresh_postgres_url) as other:
            other.execute("LOCK TABLE agentq.tasks IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(Unavailable, match="could not back up") as refused:
                dumping.backup(str(target))
        assert "locked" in refused.value.remedy
        assert list(tmp_path.iterdir()) == []
        # Nothing of it stands in the way of the next one.
        dumping.backup(str(target))
        assert target.read_bytes().startswith(b"PGDMP")
        assert list(tmp_path.iterdir()) == [target]

    def test_a_table_that_may_not_be_read(
        self, dumping: PostgresStore, fresh_postgres_url: str, tmp_path: Path
    ) -> None:
        role = f"reader_{os.getpid()}"
        with psycopg.connect(fresh_postgres_url, autocommit=True) as owner:
            owner.execute("CREATE TABLE other (secret text)")
            owner.execute(f"CREATE ROLE {role} LOGIN".encode())
            owner.execute(f"GRANT SELECT ON agentq.schema_migrations TO {role}".encode())
            reader = PostgresStore(fresh_postgres_url.replace("postgres@", f"{role}@"),
                                   check_schema=False)  # fmt: skip
            try:
                with pytest.raises(Unavailable, match="permission denied") as refused:
                    reader.backup(str(tmp_path / "copy"))
                assert "GRANT pg_read_all_data" in refused.value.remedy
                assert "locked" not in refused.value.remedy
                owner.execute(f"GRANT pg_read_all_data TO {role}".encode())
                reader.backup(str(tmp_path / "copy"))
            finally:
                reader.close()
                owner.execute(f"DROP OWNED BY {role}".encode())
                owner.execute(f"DROP ROLE {role}".encode())

    def test_a_dump_that_gets_nowhere(
        self, dumping: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stuck = tmp_path / "bin" / "pg_dump"
        stuck.parent.mkdir()
        stuck.write_text(
            "#!/bin/sh\n"
            'for word; do case "$word" in --file=*) : > "${word#--file=}";; esac; done\n'
            "exec tail -f /dev/null\n"
        )
        stuck.chmod(0o755)
        monkeypatch.setenv("PATH", str(stuck.parent), prepend=os.pathsep)
        monkeypatch.setattr(postgres_backup, "SILENT_SECONDS", 0.3)
        folder = tmp_path / "copies"
        folder.mkdir()
        with pytest.raises(Unavailable, match="written nothing for"):
            dumping.backup(str(folder / "ledger.dump"))
        assert list(folder.iterdir()) == []


class TestSqlite:
    def test_a_full_disk(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "ledger.db"), create=True)
        add(store, *(f"task-{n}" for n in range(2000)))
        with small_disk(tmp_path / "disk", "64k") as disk:
            target = disk / "copy.db"
            with pytest.raises(Unavailable) as refused:
                store.backup(str(target))
            # It is the backup's disk that is full, not the ledger's; and nothing is left there.
            assert str(target) in refused.value.cause and "full" in refused.value.cause
            assert "ledger.db" not in refused.value.cause
            assert list(disk.iterdir()) == []
        store.backup(str(tmp_path / "copy.db"))
        store.close()

    def test_beside_somebody_who_writes_all_the_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, other = (SqliteStore(str(tmp_path / "ledger.db"), create=True) for _ in range(2))
        before = [f"task-{n}" for n in range(2000)]
        add(store, *before)
        numbers = itertools.count()
        steps = 0

        class Slow(apsw.Connection):
            """Between any two steps of copying, somebody else commits."""

            def backup(self, *names: Any) -> Any:
                return Steps(super().backup(*names))

        class Steps:
            def __init__(self, real: apsw.Backup) -> None:
                self.real = real

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                self.real.finish()

            @property
            def done(self) -> bool:
                return self.real.done

            def step(self, pages: int) -> None:
                nonlocal steps
                steps += 1
                assert steps < 500, "it begins anew each time"
                self.real.step(pages)
                add(other, f"since-{next(numbers)}")

        monkeypatch.setattr(apsw, "Connection", Slow)
        monkeypatch.setattr(sqlite_backup, "_PAGES", 10)
        store.backup(str(tmp_path / "copy.db"))
        monkeypatch.undo()
        # It is whole, and of the moment when it was begun; and the ledger can be written again.
        copy = SqliteStore(str(tmp_path / "copy.db"), create=True)
        assert copy.facts()["integrity"] == "ok"
        assert [entry.task_id for entry in log(copy)] == before
        assert add(store, "after") and len(log(store)) == 2000 + steps + 1
        for each in (store, other, copy):
            each.close()

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "ledger.db"), create=True)
        with pytest.raises(Unavailable, match=r"no folder .*nowhere"):
            store.backup(str(tmp_path / "nowhere" / "copy.db"))
        store.close()


class TestNaming:
    def test_what_appears_meanwhile_is_not_overwritten(self, tmp_path: Path) -> None:
        target = tmp_path / "copy"

        def write() -> None:
            with backups.new_file(str(target)) as new:
                new.write_text("ours")
                target.write_text("theirs")

        with pytest.raises(Conflict, match="never overwrites"):
            write()
        assert target.read_text() == "theirs"
        assert list(tmp_path.iterdir()) == [target]

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_one_that_is_told_to_end_leaves_nothing(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        with subprocess.Popen(
            [sys.executable, "-c", WAITS, str(tmp_path / "copy")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as child:
            assert child.stdout is not None and child.stdout.readline() == "begun\n"
            assert len(list(tmp_path.iterdir())) == 2
            child.send_signal(number)
            assert child.wait(20) != 0
        assert list(tmp_path.iterdir()) == []

    def test_an_interrupted_one_leaves_nothing(self, tmp_path: Path) -> None:
        def write() -> None:
            with backups.new_file(str(tmp_path / "copy")) as new:
                new.write_text("half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write()
        assert list(tmp_path.iterdir()) == []
