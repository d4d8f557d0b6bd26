"""What only a server can do to a store: go away, come back, sit behind a pooler, refuse."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agentq.contracts.store import COMPLETE, IN_PROGRESS, Lease, Tx
from agentq.core.errors import Invalid, Unavailable
from agentq.core.task import Spec
from agentq.ledger.ledger import Ledger
from agentq.stores.postgres import pool as postgres_pool
from agentq.stores.postgres.pipeline import Call, PipelineConnection, Statement
from agentq.stores.postgres.pool import Pool
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.postgres.transaction import PostgresTx
from tests.contracts.postgres_only import run_sql, somebody_waits, store
from tests.contracts.rows import add, hot, insert, log, move, new_row, role_id
from tests.eventually import eventually
from tests.servers.postgres import PostgresServer

__all__ = ["store"]


class TestTheServersClock:
    def milliseconds(self, url: str) -> int:
        return int(
            run_sql(url, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")[0][0]
        )

    def test_it_is_the_clock_of_transactions(
        self, store: PostgresStore, postgres_ledger_url: str
    ) -> None:
        key = add(store, "a")["a"]
        asking: list[Callable[[], int]] = [
            lambda: store.write(lambda tx: (tx.lock([key]), tx.now())[1]),
            lambda: store.read(lambda reader: reader.now()),
            lambda: store.read(lambda reader: (reader.next_wake(), reader.now())[1]),
        ]
        for ask in asking:
            before = self.milliseconds(postgres_ledger_url)
            answer = ask()
            assert before - 1 <= answer <= self.milliseconds(postgres_ledger_url) + 1

    def test_between_transactions_it_is_estimated_and_never_ahead(
        self, store: PostgresStore, postgres_ledger_url: str
    ) -> None:
        for _ in range(20):
            estimate = store.now()
            now = self.milliseconds(postgres_ledger_url)
            assert now - 2000 < estimate <= now + 1

    def test_it_measures_leases(self, store: PostgresStore, postgres_ledger_url: str) -> None:
        key = add(store, "a")["a"]
        move(store, [key], IN_PROGRESS, wake_at=1)
        before = self.milliseconds(postgres_ledger_url)
        assert store.write(lambda tx: tx.renew([Lease(key, 1, 60_000)])) == {key}
        after = self.milliseconds(postgres_ledger_url)
        assert before + 59_999 <= hot(store, key).wake_at <= after + 60_001

    def test_it_is_read_after_the_lock_was_had(
        self, store: PostgresStore, postgres_ledger_url: str
    ) -> None:
        """Whoever waited for a lock must not decide with the time at which the wait began."""
        key = add(store, "a")["a"]
        locked, asking = threading.Event(), threading.Event()
        released: list[int] = []

        def holder(tx: Tx) -> None:
            tx.lock([key])
            locked.set()
            asking.wait(30)
            somebody_waits(postgres_ledger_url)
            since = store.now()
            eventually(lambda: store.now() > since + 20)
            tx.next_wake()
            released.append(store.now())

        thread = threading.Thread(target=lambda: store.write(holder))
        thread.start()
        locked.wait(30)
        asking.set()
        decided = store.write(lambda tx: (tx.lock([key]), tx.now())[1])
        thread.join(30)
        assert decided >= released[0] - 1


class TestDurability:
    def setting(self, store: PostgresStore, *, durable: bool) -> str:
        asked = Statement("x", "SELECT current_setting('synchronous_commit')")

        def change(tx: Tx) -> str:
            assert isinstance(tx, PostgresTx)
            tx.next_wake()
            return str(tx._wire.exchange([Call(asked, {})])[0][0][0])

        return store.write(change, durable=durable)

    def test_only_what_need_not_be_durable_does_not_wait_for_the_disk(
        self, store: PostgresStore
    ) -> None:
        assert self.setting(store, durable=False) == "off"
        assert self.setting(store, durable=True) == "on", "and nothing of it is left behind"


class TestRefusals:
    def test_nobody_there(self, tmp_path: Path) -> None:
        with pytest.raises(Unavailable, match="cannot be reached") as refused:
            PostgresStore(f"postgresql://me:hunter2@/ledger?host={tmp_path}", create=True)
        assert "Start the server" in refused.value.remedy
        assert "hunter2" not in str(refused.value)

    def test_no_such_database(self, shared_postgres: PostgresServer) -> None:
        with pytest.raises(Unavailable, match="nowhere") as refused:
            PostgresStore(shared_postgres.url_of("nowhere"), create=True)
        assert "createdb" in refused.value.remedy

    def test_no_such_user(self, shared_postgres: PostgresServer) -> None:
        url = f"postgresql://stranger:hunter2@/postgres?host={shared_postgres.folder}"
        with pytest.raises(Unavailable, match="stranger") as refused:
            PostgresStore(url, create=True)
        assert "hunter2" not in str(refused.value)

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://u:hunter2@host:port/db",
            "postgresql://u:hunter2@host/db?nonsense=1",
            "postgresql://u:hunter2%zz@host/db",
        ],
    )
    def test_an_address_that_cannot_be_read(self, url: str) -> None:
        with pytest.raises((Invalid, Unavailable)) as refused:
            PostgresStore(url, create=True)
        assert "hunter2" not in str(refused.value)

    def test_a_server_that_acknowledges_too_early(self, fresh_postgres_url: str) -> None:
        PostgresStore(fresh_postgres_url, create=True).close()
        name = fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0]
        run_sql(fresh_postgres_url, f"ALTER DATABASE {name} SET synchronous_commit = off")
        with pytest.raises(Unavailable, match="synchronous_commit=off") as refused:
            PostgresStore(fresh_postgres_url, create=True)
        assert refused.value.code == "not_durable"

    def test_a_read_only_server(self, fresh_postgres_url: str) -> None:
        PostgresStore(fresh_postgres_url, create=True).close()
        name = fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0]
        run_sql(fresh_postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        store = PostgresStore(fresh_postgres_url, create=True)
        assert store.read(lambda reader: reader.next_wake()) == 0
        assert store.number_events() == 0
        with pytest.raises(Unavailable, match="read-only"):
            store.role_ids(["new"])
        store.close()

    def test_tables_of_somebody_else_stand_beside_it(self, fresh_postgres_url: str) -> None:
        run_sql(fresh_postgres_url, "CREATE TABLE tasks AS SELECT 7 AS mine")
        store = PostgresStore(fresh_postgres_url, create=True)
        assert add(store, "a")
        store.close()
        assert run_sql(fresh_postgres_url, "SELECT mine FROM public.tasks") == [(7,)]
        assert run_sql(fresh_postgres_url, "SELECT id FROM agentq.specs") == [("a",)]

    def test_a_schema_of_somebody_else(self, fresh_postgres_url: str) -> None:
        run_sql(fresh_postgres_url, "CREATE SCHEMA agentq CREATE TABLE tasks (mine integer)")
        with pytest.raises(Unavailable, match="something else") as refused:
            PostgresStore(fresh_postgres_url, create=True)
        assert "database of its own" in refused.value.remedy
        assert run_sql(fresh_postgres_url, "SELECT count(*) FROM agentq.tasks") == [(0,)]

    def test_a_time_limit_of_the_server(self, fresh_postgres_url: str) -> None:
        PostgresStore(fresh_postgres_url, create=True).close()
        url = f"{fresh_postgres_url}&options=-c%20lock_timeout%3D50"
        hasty, slow = (
            PostgresStore(url, create=True),
            PostgresStore(fresh_postgres_url, create=True),
        )
        key = add(slow, "a")["a"]

        def change(tx: Tx) -> None:
            tx.lock([key])
            with pytest.raises(Unavailable, match="time limit"):
                move(hasty, [key], COMPLETE)

        slow.write(change)
        hasty.close()
        slow.close()

    @pytest.mark.parametrize("text", ["nul \x00 inside", "half a pair \ud800"])
    def test_text_that_cannot_be_kept(self, store: PostgresStore, text: str) -> None:
        role = role_id(store)
        for rows in ([new_row("a", role, memo=text)], [new_row("a", role), new_row(text, role)]):
            with pytest.raises(Invalid):
                insert(store, *rows)
        with pytest.raises(Invalid):
            store.write(lambda tx: tx.hold_resources(1, [(text, 0)]))
        assert log(store) == []

    def test_a_database_in_another_encoding(self, shared_postgres: PostgresServer) -> None:
        run_sql(shared_postgres.url, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
        try:
            store = PostgresStore(shared_postgres.url_of("latin"), create=True)
            role = role_id(store)
            insert(store, new_row("a", role, memo="café"))
            assert hot(store, 1).memo == "café"
            with pytest.raises(Invalid, match="cannot keep"):
                insert(store, new_row("b", role, memo="🦊"))
            store.close()
        finally:
            run_sql(shared_postgres.url, "DROP DATABASE latin WITH (FORCE)")

    def test_a_number_that_does_not_fit(self, store: PostgresStore) -> None:
        role = role_id(store)
        for number in (2**40, 2**70):
            row = new_row("a", role)._replace(priority=number)
            with pytest.raises(Invalid):
                insert(store, row)
            with pytest.raises(Invalid):
                insert(store, new_row("b", role), row)
        assert log(store) == []

    def test_after_closing(self, store: PostgresStore) -> None:
        store.close()
        with pytest.raises(Unavailable, match="closed"):
            store.read(lambda reader: reader.next_wake())


class TestBehindAPooler:
    def test_sessions_that_change_between_transactions(
        self, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every transaction finds a session that knows nothing of the one before."""
        give = Pool.give

        def forgetful(pool: Pool, wire: PipelineConnection) -> None:
            if wire.usable:
                wire._read_unread()
                wire._pq.exit_pipeline_mode()
                wire._connection.execute("DISCARD ALL", prepare=False)
                wire._pq.enter_pipeline_mode()
            give(pool, wire)

        monkeypatch.setattr(Pool, "give", forgetful)
        store = PostgresStore(fresh_postgres_url, create=True)
        ledger = Ledger(store, lambda: 0.5)
        ids = [f"task-{n}" for n in range(5)]
        for each in ids:
            ledger.submit([Spec(each, "worker")], {each})
        held = ledger.claim("worker", 5, "me")
        assert sorted(each.task.id for each in held) == ids
        assert not store._pool._prepares
        assert [entry.position for entry in log(store)] == list(range(1, 11))
        store.close()

    def test_a_session_on_which_another_has_prepared(self, store: PostgresStore) -> None:
        add(store, "a")
        store._pool._idle[-1]._prepared.clear()
        assert sorted(add(store, "b")) == ["b"]
        assert not store._pool._prepares


class TestPlans:
    def test_are_made_anew_as_tables_grow(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A plan made for an empty table reads all of it; a minute later that may be a million."""
        monkeypatch.setattr(postgres_pool, "REPLAN_SECONDS", -1)
        for number in range(8):
            add(store, f"t{number}")
        plans = Statement(
            "x", "SELECT count(*) FROM pg_prepared_statements WHERE generic_plans > 3"
        )
        assert len(log(store)) == 8
        wire = store._pool.take()
        assert wire.exchange([Call(plans, {})])[0][0][0] > 0, "statements stay prepared"
        store._pool.give(wire)


class TestBackup:
    def test_a_dump_can_be_restored(
        self,
        store: PostgresStore,
        shared_postgres: PostgresServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        program = shared_postgres.program("pg_dump")
        monkeypatch.setattr(shutil, "which", lambda name: str(program))
        add(store, "a")
        target = tmp_path / "ledger.dump"
        store.backup(str(target))
        assert target.read_bytes().startswith(b"PGDMP")

    def test_without_the_tool(
        self, store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(Unavailable, match="pg_dump is not installed") as refused:
            store.backup(str(tmp_path / "ledger.dump"))
        assert "pg_dump --format=custom" in refused.value.remedy

    def test_a_tool_that_fails(
        self, store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = tmp_path / "pg_dump"
        broken.write_text("#!/bin/sh\necho 'server version mismatch' >&2\nexit 1\n")
        broken.chmod(0o755)
        monkeypatch.setattr(shutil, "which", lambda name: str(broken))
        with pytest.raises(Unavailable, match="version mismatch"):
            store.backup(str(tmp_path / "ledger.dump"))
        assert not (tmp_path / "ledger.dump").exists()


def test_facts(store: PostgresStore) -> None:
    facts = store.facts()
    assert facts["engine"].startswith("PostgreSQL ")
    assert facts["fsync"] == "on"
    assert "tasks 0" in facts["dead_rows"]
    assert int(facts["size_bytes"]) > 0
    assert abs(int(facts["clock_skew_ms"])) < 60_000
