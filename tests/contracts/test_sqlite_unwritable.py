"""An SQLite ledger on a disk that takes nothing, and one that somebody else keeps locked."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from agentq.core.errors import Unavailable
from agentq.stores.sqlite import store as sqlite
from agentq.stores.sqlite.store import SqliteStore
from tests.contracts.rows import add, log
from tests.servers import machine


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with machine.small_disk(tmp_path / "disk", "1m") as disk:
        yield disk


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream:
        try:
            while True:
                stream.write(b"x" * 4096)
        except OSError:
            return filler


def ids(store: SqliteStore) -> list[str]:
    return [entry.task_id for entry in log(store)]


def test_a_full_disk_is_read_and_written_again_once_there_is_room(disk: Path) -> None:
    path = str(disk / "ledger.db")
    first = SqliteStore(path, create=True)
    add(first, "a")
    first.close()
    filler = fill(disk)
    # Given a process that starts on a full disk, then it can read, and says why it cannot write.
    store = SqliteStore(path)
    assert ids(store) == ["a"] == ids(store)
    with pytest.raises(Unavailable, match="is full"):
        add(store, "b")
    # When there is room again, it writes, and sees what others wrote.
    filler.unlink()
    other = SqliteStore(path)
    add(other, "c")
    assert ids(store) == ["a", "c"]
    add(store, "d")
    assert ids(store) == ids(other) == ["a", "c", "d"]
    store.close()
    other.close()


def test_changes_that_stand_beside_the_file_are_not_overlooked(disk: Path) -> None:
    path = disk / "ledger.db"
    store = SqliteStore(str(path), create=True)
    add(store, "a")
    # Given a ledger whose last holder died, on a disk that was made read-only since,
    files = [path, path.with_name("ledger.db-wal")]
    kept = [file.read_bytes() for file in files]
    store.close()
    for file, content in zip(files, kept, strict=True):
        file.write_bytes(content)
    path.with_name("ledger.db-shm").unlink(missing_ok=True)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    # then it is not shown as it was before those changes.
    with pytest.raises(Unavailable, match="is read-only"):
        SqliteStore(str(path))
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    store = SqliteStore(str(path))
    assert ids(store) == ["a"]
    store.close()


def test_whoever_waits_for_a_lock_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert sqlite.SILENT_SECONDS == 2.0
    monkeypatch.setattr(sqlite, "SILENT_SECONDS", 0.05)
    path = str(tmp_path / "ledger.db")
    store = SqliteStore(path, create=True)
    holder = apsw.Connection(path)
    holder.execute("BEGIN IMMEDIATE")
    told = threading.Event()

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    listening = Listening()
    logging.getLogger("agentq.stores").addHandler(listening)

    def let_go() -> None:
        assert told.wait(30)
        holder.execute("ROLLBACK")

    helper = threading.Thread(target=let_go)
    helper.start()
    add(store, "a")
    helper.join()
    logging.getLogger("agentq.stores").removeHandler(listening)
    assert f"keeps the ledger {path} locked" in caplog.text
    assert caplog.text.count("keeps the ledger") == 1
    store.close()
    holder.close()
