"""Lies are found whatever has become of a ledger: pruned, moved, requeued, an earlier version's."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from agentq import Queue
from agentq.client.moving import move
from agentq.ledger.system_log import adopt
from agentq.settings import load_settings
from agentq.stores.sqlite.store import SqliteStore
from agentq.wiring import open_installation
from tests.contracts.test_earlier_version import CLOSED_AT, FILES
from tests.proofs.judging import judge, some
from tests.proofs.lies import lies_about
from tests.proofs.sqlite_ledgers import PAGE_BYTES, SqliteLedger

#: What follows from the log of a task alone, whoever else was deleted.
TABLES = (
    "specs", "tasks", "events", "edges", "wants", "holds", "artifacts", "outbox", "trees",
    "tree_members",
)  # fmt: skip
#: What cannot be told once tasks were deleted: who has waited for one, and what they have spent.
#: And once its names have expired, what it was submitted with, until it is bound by a digest.
SINCE = {"tasks.flags", "trees.spent", "trees.extra", "specs.body"}


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder}/.agentq/ledger.db"


def pruned(folder: Path) -> Path:
    with Queue(url_of(folder)) as queue:
        assert queue.admin.prune("0s")
    return folder


def requeued(folder: Path) -> Path:
    with Queue(url_of(folder)) as queue:
        queue.requeue("task-failed", "ann", "once more")
        claim = queue.claim("docs")
        assert claim is not None
        claim.spend(usd=1)
        claim.complete("mended")
    return folder


def moved(folder: Path) -> Path:
    target = folder.parent / "moved"
    target.mkdir()
    with Queue(url_of(folder)) as queue:
        queue.release("task-trained")  # a ledger with a lease that is alive is not moved
    with closing(open_installation(load_settings(url_of(folder)))) as source:
        move(source, load_settings(url_of(target)))
    return target


@pytest.mark.long
@pytest.mark.parametrize("change", [pruned, requeued, moved], ids=lambda each: each.__name__)
def test_lies_are_found_in_a_ledger_that_was(
    change: Callable[[Path], Path], told_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(told_folder, tmp_path / "told")
    folder = change(tmp_path / "told")
    check(SqliteLedger(folder / ".agentq/ledger.db"))
    with Queue(url_of(folder)) as queue:
        assert [found for _, found in queue.admin.verify() if found] == []


@pytest.mark.long
def test_lies_are_found_in_a_ledger_of_an_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.executescript((FILES / "ledger.sql").read_text("utf-8"))
    connection.close()
    store = SqliteStore(str(path), clock=lambda: CLOSED_AT, check_schema=False)
    store.migrate()
    adopt(store)
    store.close()
    check(SqliteLedger(path, now=CLOSED_AT))


def check(ledger: SqliteLedger) -> None:
    assert ledger.problems() == []
    told = 0
    for table in ledger.tables():
        if table.name in TABLES:
            judged = judge(ledger, lies_about(table, some(ledger.rows(table), 1)))
            told += judged.told
            assert [each for each in judged.missed if each.split(" ")[0] not in SINCE] == []
            assert judged.noticed == []
    assert told > 50
    ledger.close()
