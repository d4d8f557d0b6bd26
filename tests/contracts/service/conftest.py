"""The service interface under one suite. A test that takes `service` runs on every way to reach it.

That is the embedded service on each database, and each over HTTP, by TCP or by a Unix socket:
nothing in the suite looks behind the interface. What only the loops beside a ledger ask is tried
there (`beside`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from agentq.contracts.service import Service
from agentq.core.access import SYSTEM
from agentq.settings import Settings
from agentq.wiring import WiredInstallation, open_installation
from tests.contracts.service.over_http import by_token, over_http

BESIDE = [pytest.param("sqlite"), pytest.param("postgres", marks=pytest.mark.postgres)]
WAYS = [
    *BESIDE,
    pytest.param("http to sqlite"),
    pytest.param("socket to sqlite", marks=pytest.mark.long),
    pytest.param("http to postgres", marks=[pytest.mark.postgres, pytest.mark.long]),
]


def open_way(
    request: pytest.FixtureRequest, way: str, folder: Path, *, four_eyes: bool | None = False
) -> WiredInstallation:
    if way.endswith("postgres"):
        url = str(request.getfixturevalue("postgres_ledger_url"))
    else:
        url = f"sqlite:///{folder / 'ledger.db'}"
    settings = Settings(url, str(folder / "files"), "the test", four_eyes=four_eyes)
    return open_installation(settings, create=True)


@contextmanager
def reached(way: str, installation: WiredInstallation) -> Iterator[Service]:
    """The service of an installation, by this way."""
    if not way.startswith(("http", "socket")):
        yield installation.service
        return
    by_socket = way.startswith("socket")
    with over_http(installation.service, installation.doorbell, by_socket=by_socket) as remote:
        yield remote


@pytest.fixture(params=WAYS)
def service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """An empty ledger; at the end its log still tells what its rows and files are."""
    yield from _service(request, tmp_path)


@pytest.fixture(params=BESIDE)
def beside(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """The same for what only loops beside the ledger ask."""
    yield from _service(request, tmp_path)


def _service(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    way = str(request.param)
    opened = open_way(request, way, tmp_path)
    with reached(way, opened) as service:
        yield service
        assert [found for _, found in service.verify(SYSTEM) if found] == []
    opened.close()


class Ways(NamedTuple):
    """One ledger: asked by some way, asked beside it, and asked over HTTP with its own tokens."""

    service: Service
    beside: Service
    by_token: Callable[[str], Service]


#: Two servers each: those over PostgreSQL cost seconds.
_WAYS = [
    pytest.param(*each.values, marks=[*each.marks, pytest.mark.long]) if each.marks else each
    for each in WAYS
]


@pytest.fixture(params=_WAYS)
def ways(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ways]:
    """A ledger for whose tokens there is a server."""
    way = str(request.param)
    opened = open_way(request, way, tmp_path, four_eyes=None)
    with (
        reached(way, opened) as service,
        by_token(opened.service, opened.doorbell) as shown,
    ):
        yield Ways(service, opened.service, shown)
    opened.close()


@pytest.fixture(params=WAYS)
def four_eyes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Service]:
    """The same where nobody may approve what they submitted."""
    way = str(request.param)
    opened = open_way(request, way, tmp_path, four_eyes=True)
    with reached(way, opened) as service:
        yield service
    opened.close()
