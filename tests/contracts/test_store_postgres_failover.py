"""The primary is gone for good and another server takes over: agentq goes on there by itself."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import psycopg
import pytest

from agentq.core.task import Spec
from agentq.ledger.ledger import Ledger
from agentq.stores.postgres.store import PostgresStore
from tests.eventually import eventually
from tests.servers.postgres import PostgresServer
from tests.servers.postgres_standby import PostgresStandby

pytestmark = pytest.mark.long


@pytest.fixture
def pair(shared_postgres: PostgresServer) -> Iterator[tuple[PostgresServer, PostgresStandby]]:
    """A primary that acknowledges what its standby has too. (The fixture that is asked for skips
    where no server can run.)"""
    with PostgresServer() as primary, PostgresStandby(primary) as standby:
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")
            waits = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            eventually(lambda: connection.execute(waits).fetchone(), what="a standby in step")
        yield primary, standby


def both(primary: PostgresServer, standby: PostgresServer) -> str:
    return f"postgresql://postgres@/postgres?host={standby.folder},{primary.folder}"


def test_nothing_acknowledged_is_lost(pair: tuple[PostgresServer, PostgresStandby]) -> None:
    primary, standby = pair
    # Given work that goes on, with an address that names both servers, the standby first
    store = PostgresStore(both(primary, standby), patience_seconds=60, create=True)
    ledger = Ledger(store, lambda: 0.5)
    accepted: list[str] = []
    enough, stop = threading.Event(), threading.Event()

    def submit() -> None:
        while not stop.is_set():
            name = f"task-{len(accepted)}"
            ledger.submit([Spec(name, "worker")], {name})
            accepted.append(name)
            if len(accepted) == 50:
                enough.set()

    thread = threading.Thread(target=submit)
    thread.start()
    assert enough.wait(30)
    # when the primary dies in the middle of it, and the other one is promoted
    before_it_died = len(accepted)
    kill_all(primary)
    standby.promote()
    # then the same store goes on there, by itself,
    try:
        eventually(lambda: len(accepted) >= before_it_died + 20, what="work on the other server")
    finally:
        stop.set()
        thread.join(60)
    # and everything that was ever acknowledged is there, and proved.
    found = store.read(lambda reader: reader.keys(accepted))
    assert set(found) == set(accepted)
    assert [problems for _, problems in ledger.queries.verify() if problems] == []
    store.close()


def kill_all(server: PostgresServer) -> None:
    """No goodbye: the first process, and with it all that hang on it. It does not come back."""
    os.kill(server.pid, signal.SIGKILL)
    (server.folder / "data" / "postmaster.pid").unlink()
