"""Backups are whole or not there, and whoever makes one is never kept waiting for ever."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from agentq.core.errors import Conflict, Unavailable
from agentq.stores import backups, postgres_backup
from agentq.stores.postgres import PostgresStore
from agentq.stores.sqlite import SqliteStore
from tests.contracts.rows import add
from tests.servers.postgres import PostgresServer


@pytest.fixture
def dumping(
    fresh_postgres_url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresStore]:
    """A store on a server, whose own pg_dump is the one that is found."""
    programs = postgres_server._binaries
    if not (programs / "pg_dump").exists():
        pytest.skip("the wheel carries no pg_dump")
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    store = PostgresStore(fresh_postgres_url)
    yield store
    store.close()


class TestPostgres:
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
            other.execute("LOCK TABLE tasks IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(Unavailable, match="could not back up") as refused:
                dumping.backup(str(target))
        assert "locked" in refused.value.remedy
        assert list(tmp_path.iterdir()) == []
        # Nothing of it stands in the way of the next one.
        dumping.backup(str(target))
        assert target.read_bytes().startswith(b"PGDMP")
        assert list(tmp_path.iterdir()) == [target]

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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "agentq-test", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs more rights")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


class TestSqlite:
    def test_a_full_disk(self, tmp_path: Path, small_disk: Path) -> None:
        store = SqliteStore(str(tmp_path / "ledger.db"))
        add(store, *(f"task-{n}" for n in range(2000)))
        target = small_disk / "copy.db"
        with pytest.raises(Unavailable) as refused:
            store.backup(str(target))
        # It is the backup's disk that is full, not the ledger's; and nothing is left there.
        assert str(target) in refused.value.cause and "full" in refused.value.cause
        assert "ledger.db" not in refused.value.cause
        assert list(small_disk.iterdir()) == []
        store.backup(str(tmp_path / "copy.db"))
        store.close()

    def test_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "ledger.db"))
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

    def test_an_interrupted_one_leaves_nothing(self, tmp_path: Path) -> None:
        def write() -> None:
            with backups.new_file(str(tmp_path / "copy")) as new:
                new.write_text("half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write()
        assert list(tmp_path.iterdir()) == []
