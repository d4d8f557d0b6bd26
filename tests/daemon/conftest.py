"""A ledger on each database, and a broker of its own virtual host."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.settings import Settings


@pytest.fixture
def broker_url(rabbitmq_url: str) -> str:
    return rabbitmq_url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty ledger, on each database."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_ledger_url"))
    return f"sqlite:///{tmp_path}/ledger.db"


@pytest.fixture
def settings(ledger_url: str, tmp_path: Path) -> Settings:
    return Settings(ledger_url, str(tmp_path / "files"), "the test")
