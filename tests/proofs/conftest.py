"""Ledgers in which something has happened, to lie about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq import Queue
from tests.proofs.sqlite_ledgers import SqliteLedger
from tests.proofs.told_ledger import tell


@pytest.fixture(scope="session")
def told_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ledger in a file that has something in every table."""
    folder = tmp_path_factory.mktemp("told")
    with Queue.create(f"sqlite:///{folder}/.agentq/ledger.db") as queue:
        tell(queue)
    return folder


@pytest.fixture(scope="session")
def told(told_folder: Path) -> Iterator[SqliteLedger]:
    """The same in memory, where a lie is quickly told and undone."""
    ledger = SqliteLedger(told_folder / ".agentq/ledger.db")
    yield ledger
    ledger.close()
