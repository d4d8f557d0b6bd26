"""Every store, under one suite. A test that takes `store` runs on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agentq.contracts.store import Store
from agentq.settings import Settings, load_settings
from agentq.stores.sqlite.store import SqliteStore
from tests.contracts.rows import Clock


@dataclass
class Backend:
    """One database. Each `open` is a store of its own, as another process would have it."""

    name: str
    address: str
    clock: Clock = field(default_factory=Clock)
    _opened: list[Store] = field(default_factory=list)

    @property
    def shared(self) -> bool:
        """Whether a second store sees the same data."""
        return self.address != ":memory:"

    def open(self, clock: Callable[[], int] | None = None) -> Store:
        store = open_store(self.address, clock or self.clock)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


def open_store(address: str, clock: Callable[[], int] | None = None) -> Store:
    """Also used by processes that a test starts; without a clock it is the real one."""
    if address.startswith("postgresql:"):
        from agentq.stores.postgres.store import PostgresStore

        return PostgresStore(address, clock=clock, create=True)
    if clock is None:
        return SqliteStore(address, create=True)
    return SqliteStore(address, clock=clock, create=True)


SQLITE_FILE = pytest.param("sqlite-file")
SQLITE_MEMORY = pytest.param("sqlite-memory")
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


@pytest.fixture
def database_url(postgres_ledger_url: str) -> str:
    """Where the stores in PostgreSQL are: a ledger already. Who tests creation says otherwise."""
    return postgres_ledger_url


def _backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    name = str(request.param)
    if name == "postgres":
        return Backend(name, request.getfixturevalue("database_url"))
    return Backend(name, ":memory:" if name == "sqlite-memory" else str(tmp_path / "ledger.db"))


@pytest.fixture(params=[SQLITE_FILE, SQLITE_MEMORY, POSTGRES])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Every database."""
    backend = _backend(request, tmp_path)
    yield backend
    backend.close()


@pytest.fixture(params=[SQLITE_FILE, POSTGRES])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """Every database that several processes can use."""
    backend = _backend(request, tmp_path)
    yield backend
    backend.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.open()


@pytest.fixture
def clock(backend: Backend) -> Clock:
    return backend.clock


@pytest.fixture
def settings(shared: Backend) -> Settings:
    """Of every such database."""
    name = shared.address if shared.name == "postgres" else f"sqlite:///{shared.address}"
    return load_settings(name)
