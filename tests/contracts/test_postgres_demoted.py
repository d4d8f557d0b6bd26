"""The address of a ledger leads to a server that cannot be written, and later to one that can."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from agentq.core.errors import Unavailable
from agentq.core.task import Spec
from agentq.ledger.ledger import Ledger
from agentq.stores.postgres.store import PostgresStore
from tests.contracts.postgres_only import run_sql
from tests.eventually import eventually
from tests.servers.postgres import DISCONNECT_OTHERS, PostgresServer
from tests.servers.postgres_standby import PostgresStandby

pytestmark = pytest.mark.long


def database_of(url: str) -> str:
    return url.split("@/")[1].split("?", maxsplit=1)[0]


@dataclass
class Name:
    """A name in a name service: new connections go where it leads, those that are there stay."""

    link: Path
    primary: PostgresServer
    standby: PostgresServer
    database: str

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/{self.database}?host={self.link}"

    def leads_to(self, server: PostgresServer) -> None:
        new = self.link.with_suffix(".new")
        new.symlink_to(server.folder)
        new.rename(self.link)

    def fails_over(self) -> None:
        """To a server that is not the primary yet; connections to the old one are cut."""
        self.leads_to(self.standby)
        run_sql(self.primary.url_of(self.database), DISCONNECT_OTHERS)


@pytest.fixture(scope="module")
def pair(shared_postgres: PostgresServer) -> Iterator[tuple[PostgresServer, PostgresStandby]]:
    """A primary that no other test restarts, and what follows it. (The fixture that is asked for
    skips where no server can run.)"""
    with PostgresServer() as primary, PostgresStandby(primary) as standby:
        yield primary, standby


@pytest.fixture
def name(tmp_path: Path, pair: tuple[PostgresServer, PostgresStandby]) -> Iterator[Name]:
    """Leads to the primary; both servers have the tables of a ledger."""
    primary, standby = pair
    with primary.fresh_database() as url:
        yield named(tmp_path, primary, standby, url)


def named(folder: Path, primary: PostgresServer, standby: PostgresStandby, url: str) -> Name:
    PostgresStore(url, create=True).close()
    name = Name(folder / "s", primary, standby, database_of(url))
    if len(os.fspath(name.link)) > 80:  # the path of a socket is short
        name.link = Path("/tmp") / f"agentq-{os.getpid()}"
    name.leads_to(primary)

    def followed() -> bool:
        try:
            with psycopg.connect(standby.url_of(name.database)) as connection:
                return connection.execute("SELECT to_regclass('agentq.unnumbered')").fetchone() != (
                    None,
                )
        except psycopg.OperationalError:  # not even the database is there
            return False

    eventually(followed)
    return name


def submit(ledger: Ledger, name: str) -> None:
    ledger.submit([Spec(name, "worker")], {name})


class TestAfterAFailover:
    def test_connections_to_the_wrong_server_are_not_kept(self, name: Name) -> None:
        store = PostgresStore(name.url, create=True)
        ledger = Ledger(store, lambda: 0.5)
        submit(ledger, "before")
        # Given connections that were made while the address led to a standby,
        name.fails_over()
        assert store.read(lambda reader: reader.keys(["before"]))
        # when it leads to the primary again,
        name.leads_to(name.primary)
        # then the same process can write again, by submits and by transactions.
        submit(ledger, "after")
        name.fails_over()
        assert store.number_events() == 0, "a standby gives no places"
        assert store.read(lambda reader: reader.counts())
        name.leads_to(name.primary)
        assert [each.task.id for each in ledger.claim("worker", 2, "me")] == ["before", "after"]
        store.close()

    @pytest.mark.parametrize("writes", ["a submit", "a transaction"])
    def test_whoever_writes_meanwhile_waits(self, name: Name, writes: str) -> None:
        store = PostgresStore(name.url, create=True)
        ledger = Ledger(store, lambda: 0.5)
        submit(ledger, "before")
        name.fails_over()
        refused = name.standby.log.count("ERROR")
        done: list[object] = []

        def write() -> None:
            if writes == "a submit":
                submit(ledger, "meanwhile")
            else:
                assert ledger.claim("worker", 1, "me")
            done.append(True)

        thread = threading.Thread(target=write)
        thread.start()
        eventually(lambda: name.standby.log.count("ERROR") > refused)
        name.leads_to(name.primary)
        thread.join(20)
        assert done == [True]
        store.close()

    def test_patience_ends(self, name: Name) -> None:
        store = PostgresStore(name.url, patience_seconds=0.2, create=True)
        ledger = Ledger(store, lambda: 0.5)
        submit(ledger, "before")
        name.fails_over()
        for write in (lambda: submit(ledger, "after"), lambda: ledger.claim("worker", 1, "me")):
            with pytest.raises(Unavailable, match="read-only") as refused:
                write()
            assert "primary" in refused.value.remedy
        store.close()

    def test_an_address_that_never_led_to_a_primary(self, name: Name) -> None:
        """Whoever has just typed it wants to know at once."""
        name.leads_to(name.standby)
        store = PostgresStore(name.url, patience_seconds=60, create=True)
        started = time.monotonic()
        with pytest.raises(Unavailable, match="read-only"):
            store.role_ids(["worker"])
        assert time.monotonic() - started < 10
        store.close()


def test_a_server_that_is_made_read_only_for_a_while(fresh_postgres_url: str) -> None:
    """As managed servers do whose disk is nearly full: it holds for sessions that begin then."""
    store = PostgresStore(fresh_postgres_url, create=True)
    ledger = Ledger(store, lambda: 0.5)
    submit(ledger, "before")
    mode = f"ALTER DATABASE {database_of(fresh_postgres_url)}"
    run_sql(fresh_postgres_url, f"{mode} SET default_transaction_read_only = on")
    run_sql(fresh_postgres_url, DISCONNECT_OTHERS)
    assert store.read(lambda reader: reader.keys(["before"]))
    allowed = "&options=-cdefault_transaction_read_only%3Doff"
    run_sql(fresh_postgres_url + allowed, f"{mode} RESET default_transaction_read_only")
    submit(ledger, "after")
    store.close()
