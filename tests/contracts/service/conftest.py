"""The service interface under one suite. A test that takes `service` runs on every way to reach it.

Today that is the embedded service on each database. Another way (over HTTP, say) is one more
parameter here: nothing in the suite looks behind the interface.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.contracts.service import Service
from agentq.core.access import SYSTEM
from agentq.settings import Settings
from agentq.wiring import WiredInstallation, open_installation

WAYS = [pytest.param("sqlite"), pytest.param("postgres", marks=pytest.mark.postgres)]


def open_way(
    request: pytest.FixtureRequest, way: str, folder: Path, *, four_eyes: bool = False
) -> WiredInstallation:
    if way == "postgres":
        url = str(request.getfixturevalue("fresh_postgres_url"))
    else:
        url = f"sqlite:///{folder / 'ledger.db'}"
    settings = Settings(url, str(folder / "files"), "the test", four_eyes=four_eyes)
    return open_installation(settings, create=True)


@pytest.fixture(params=WAYS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """An empty ledger; at the end its log still tells what its rows and files are."""
    opened = open_way(request, str(request.param), tmp_path)
    yield opened.service
    assert [found for _, found in opened.service.verify(SYSTEM) if found] == []
    opened.close()


@pytest.fixture(params=WAYS)
def four_eyes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """The same where nobody may approve what they submitted."""
    opened = open_way(request, str(request.param), tmp_path, four_eyes=True)
    yield opened.service
    opened.close()
