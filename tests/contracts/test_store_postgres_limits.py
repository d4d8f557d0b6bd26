"""Every call to PostgreSQL ends, by an answer or in words and in time; through a pooler too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psycopg
import pytest

from agentq.contracts.store import COMPLETE, Tx
from agentq.core.errors import Unavailable
from agentq.core.task import Spec
from agentq.core.triggers import Release
from agentq.ledger.ledger import Ledger
from agentq.stores.postgres.pipeline import Call, Statement
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.postgres.timeouts import Limits, hung_up_after
from agentq.stores.postgres.transaction import PostgresTx
from tests.contracts.rows import add, hot, log, move, moved, stepped
from tests.servers.pgbouncer import pooler_or_skip
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.long

TIGHT = Limits(statement=0.4, lock=0.2, grace=0.4)
IN_FORCE = Statement(
    "in_force", "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')"
)
SLOW = Statement("slow", "SELECT 1 FROM pg_sleep(20)")


def in_force(store: PostgresStore) -> tuple[str, str]:
    """Inside a transaction that writes."""

    def change(tx: Tx) -> tuple[str, str]:
        assert isinstance(tx, PostgresTx)
        tx.lanes()
        tx.lock([1])
        found: tuple[str, str] = tx._wire.exchange([Call(IN_FORCE, {})])[0][0]
        return found

    return store.write(change)


def ask_slowly(store: PostgresStore) -> float:
    """Ask what takes too long; how long it took until somebody said so."""
    store._sql = {**store._sql, "slow": SLOW}
    started = time.monotonic()
    with pytest.raises(Unavailable, match="time limit"):
        store._ask("slow")
    with pytest.raises(Unavailable, match="time limit"):
        store.write(lambda tx: tx._ask("slow"))  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="time limit"):
        store.read(lambda reader: reader._ask("slow"))  # type: ignore[attr-defined]
    return time.monotonic() - started


class TestInASessionOfItsOwn:
    def test_limits_are_told_once_when_it_is_opened(self, fresh_postgres_url: str) -> None:
        store = PostgresStore(fresh_postgres_url, create=True)
        assert in_force(store) == ("30s", "25s")
        wire = store._pool.take()
        assert wire.preface is None, "and never again"
        assert wire.silence == 40
        store._pool.give(wire)
        store.close()

    def test_a_statement_that_takes_too_long(self, fresh_postgres_url: str) -> None:
        store = PostgresStore(fresh_postgres_url, limits=TIGHT, create=True)
        assert ask_slowly(store) < 5
        assert add(store, "a"), "the store goes on"
        store.close()

    def test_a_lock_that_somebody_keeps(self, fresh_postgres_url: str) -> None:
        store = PostgresStore(fresh_postgres_url, limits=TIGHT, create=True)
        key = add(store, "a")["a"]

        def keep(tx: Tx) -> None:
            tx.lock([key])
            with pytest.raises(Unavailable, match="lock timeout"):
                move(store, [key], COMPLETE)

        patient = PostgresStore(fresh_postgres_url, create=True)
        patient.write(keep)
        patient.close()
        assert move(store, [key], COMPLETE)
        store.close()

    def test_the_address_may_say_otherwise(self, fresh_postgres_url: str) -> None:
        url = f"{fresh_postgres_url}&options=-c%20statement_timeout%3D5min"
        store = PostgresStore(url, create=True)
        assert in_force(store) == ("5min", "25s")
        wire = store._pool.take()
        assert wire.silence == 310
        store._pool.give(wire)
        store.close()

    def test_options_of_the_environment_stay(
        self, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with psycopg.connect(fresh_postgres_url) as connection:
            connection.execute("CREATE SCHEMA elsewhere")
        monkeypatch.setenv("PGOPTIONS", "-c search_path=elsewhere")
        store = PostgresStore(fresh_postgres_url, create=True)
        assert in_force(store) == ("30s", "25s")
        store.close()
        monkeypatch.undo()
        with psycopg.connect(fresh_postgres_url) as connection:
            assert connection.execute("SELECT count(*) FROM elsewhere.tasks").fetchone() == (0,)

    def test_a_service_file_is_not_hidden(
        self, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        """It may hold options of its own; then each transaction is told instead."""
        PostgresStore(fresh_postgres_url, create=True).close()
        (tmp_path / "services").write_text("[mine]\noptions=-c work_mem=77kB\n")
        monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
        store = PostgresStore(f"{fresh_postgres_url}&service=mine", create=True)
        assert in_force(store) == ("30s", "25s")
        wire = store._pool.take()
        asked = Statement("memory", "SELECT current_setting('work_mem')")
        assert wire.preface is not None
        assert wire.exchange([Call(asked, {})]) == [[("77kB",)]]
        store._pool.give(wire)
        store.close()


def backend_of(store: PostgresStore) -> int:
    """The server's process that serves the connection that is used next."""
    wire = store._pool.take()
    backend = Statement("backend", "SELECT pg_backend_pid()::bigint")
    pid = int(wire.exchange([Call(backend, {})])[0][0][0])
    store._pool.give(wire)
    return pid


@contextmanager
def frozen(server: PostgresServer, backend: int) -> Iterator[None]:
    """The server accepts connections (its kernel does) and answers nothing."""
    pids = [backend, server.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


class TestAServerThatSaysNothing:
    def test_is_given_up(self, fresh_postgres_url: str, postgres_server: PostgresServer) -> None:
        store = PostgresStore(fresh_postgres_url, limits=TIGHT, patience_seconds=0.1, create=True)
        key = add(store, "a")["a"]
        started = time.monotonic()
        with (
            frozen(postgres_server, backend_of(store)),
            pytest.raises(Unavailable, match=r"said nothing for 0\.8 s"),
        ):
            store.read(lambda reader: reader.next_wake())
        assert time.monotonic() - started < 5
        assert hot(store, key).version == 1, "and found again"
        store.close()

    def test_while_it_commits(
        self, fresh_postgres_url: str, postgres_server: PostgresServer
    ) -> None:
        """Nobody can know what became of it; that is what is said."""
        url = f"{fresh_postgres_url}&connect_timeout=2"
        store = PostgresStore(url, limits=TIGHT, patience_seconds=0.1, create=True)
        key = add(store, "a")["a"]
        backend = backend_of(store)
        with ExitStack() as ice:

            def change(tx: Tx) -> None:
                row = moved(tx.lock([key])[0], COMPLETE)
                tx.save(stepped(row))
                ice.enter_context(frozen(postgres_server, backend))

            with pytest.raises(Unavailable, match="is unknown") as unsure:
                store.write(change)
        assert unsure.value.code == "unknown_outcome"
        store.close()

    def test_when_it_is_first_asked(
        self, fresh_postgres_url: str, postgres_server: PostgresServer
    ) -> None:
        known = PostgresStore(fresh_postgres_url, create=True)
        url = f"{fresh_postgres_url}&connect_timeout=2"
        ice = frozen(postgres_server, backend_of(known))
        with ice, pytest.raises(Unavailable, match="cannot be reached"):
            PostgresStore(url, create=True)
        known.close()

    def test_what_is_not_spoken_on_a_wire(self, fresh_postgres_url: str) -> None:
        connection = psycopg.connect(fresh_postgres_url, autocommit=True)
        started = time.monotonic()
        with hung_up_after(connection, 0.2), pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT pg_sleep(20)")
        assert time.monotonic() - started < 5
        connection.close()


@pytest.fixture(params=["refuses options", "ignores options"])
def pooled_url(
    request: pytest.FixtureRequest, shared_postgres: PostgresServer, fresh_postgres_url: str
) -> Iterator[str]:
    """The address of an empty database behind a transaction pooler."""
    ignores = request.param == "ignores options"
    with pooler_or_skip(shared_postgres, ignores_options=ignores) as pooler:
        yield pooler.url_of(fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0])


class TestBehindAPooler:
    def test_a_life_of_tasks(self, pooled_url: str) -> None:
        store = PostgresStore(pooled_url, create=True)
        ledger = Ledger(store, lambda: 0.5)
        ids = [f"task-{n}" for n in range(20)]
        for each in ids:
            ledger.submit([Spec(each, "worker")], {each})
        held = ledger.claim("worker", 20, "me")
        assert [each.task.id for each in held] == ids
        for claimed in held:
            ledger.apply(claimed.key, Release(1))
        assert [entry.position for entry in log(store)] == list(range(1, 61))
        assert [problems for _, problems in ledger.queries.verify()] == [[]]
        store.close()

    def test_each_transaction_has_its_limits_and_leaves_none_behind(
        self, pooled_url: str, fresh_postgres_url: str
    ) -> None:
        store = PostgresStore(pooled_url, create=True)
        add(store, "a")
        assert in_force(store) == ("30s", "25s")
        store.close()
        with psycopg.connect(pooled_url, autocommit=True) as other:
            for _ in range(10):
                found = other.execute(IN_FORCE.sql, prepare=False).fetchone()
                assert found == ("0", "0")

    def test_what_takes_too_long_is_stopped(self, pooled_url: str) -> None:
        store = PostgresStore(pooled_url, limits=TIGHT, create=True)
        assert ask_slowly(store) < 5
        assert add(store, "a")
        store.close()
