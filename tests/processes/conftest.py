"""Both ledgers that processes can share: a SQLite file, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.warm_parent import WarmParent


@pytest.fixture(scope="module")
def parent() -> Iterator[WarmParent]:
    """For tests that start `agentq` as a process many times."""
    with WarmParent() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AGENTQ_ARTIFACTS_ROOT", str(tmp_path / "artifacts"))
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    return str(request.getfixturevalue("fresh_postgres_url"))
