"""What only a server can do to a store: go away, come back, sit behind a pooler, refuse."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agentq.contracts.store import COMPLETE, IN_PROGRESS, Lease, Tx
from agentq.core.errors import Invalid, Unavailable
from agentq.core.task import Spec
from agentq.ledger.ledger import Ledger
from agentq.stores import postgres_pool
from agentq.stores.postgres import PostgresStore
from agentq.stores.postgres_pool import Pool
from agentq.stores.postgres_rows import PostgresTx
from agentq.stores.postgres_wire import Call, Lost, Statement, Wire
from tests.contracts.rows import LANES, add, event_of, hot, log, move, moved, new_row, role_id
from tests.servers.postgres import PostgresServer

Exchange = Callable[[Wire, Sequence[Call]], list[list[Any]]]


@pytest.fixture
def store(fresh_postgres_url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(fresh_postgres_url)
    yield store
    store.close()


def run_sql(url: str, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def cut_everybody_off(url: str) -> None:
    run_sql(
        url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


class TestTheServersClock:
    def milliseconds(self, url: str) -> int:
        return int(
            run_sql(url, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")[0][0]
        )

    def test_it_is_the_clock_of_transactions(
        self, store: PostgresStore, fresh_postgres_url: str
    ) -> None:
        key = add(store, "a")["a"]
        asking: list[Callable[[], int]] = [
            lambda: store.write(lambda tx: tx.now()),
            lambda: store.write(lambda tx: (tx.lock([key]), tx.now())[1]),
            lambda: store.read(lambda reader: reader.now()),
            lambda: store.read(lambda reader: (reader.last_position(), reader.now())[1]),
        ]
        for ask in asking:
            before = self.milliseconds(fresh_postgres_url)
            answer = ask()
            assert before - 1 <= answer <= self.milliseconds(fresh_postgres_url) + 1

    def test_between_transactions_it_is_estimated_and_never_ahead(
        self, store: PostgresStore, fresh_postgres_url: str
    ) -> None:
        for _ in range(20):
            estimate = store.now()
            now = self.milliseconds(fresh_postgres_url)
            assert now - 2000 < estimate <= now + 1

    def test_it_measures_leases(self, store: PostgresStore, fresh_postgres_url: str) -> None:
        key = add(store, "a")["a"]
        move(store, [key], IN_PROGRESS, wake_at=1)
        before = self.milliseconds(fresh_postgres_url)
        assert store.write(lambda tx: tx.renew([Lease(key, 1, 60_000)])) == {key}
        after = self.milliseconds(fresh_postgres_url)
        assert before + 59_999 <= hot(store, key).wake_at <= after + 60_001

    def test_it_is_read_after_the_lock_was_had(self, store: PostgresStore) -> None:
        """Whoever waited for a lock must not decide with the time at which the wait began."""
        key = add(store, "a")["a"]
        locked, asking = threading.Event(), threading.Event()
        released: list[int] = []

        def holder(tx: Tx) -> None:
            tx.lock([key])
            locked.set()
            asking.wait(30)
            threading.Event().wait(0.2)
            released.append(tx.last_position())
            released.append(store.now())

        thread = threading.Thread(target=lambda: store.write(holder))
        thread.start()
        locked.wait(30)
        asking.set()
        decided = store.write(lambda tx: (tx.lock([key]), tx.now())[1])
        thread.join(30)
        assert decided >= released[1] - 1


class TestRefusals:
    def test_nobody_there(self, tmp_path: Path) -> None:
        with pytest.raises(Unavailable, match="cannot be reached") as refused:
            PostgresStore(f"postgresql://me:hunter2@/ledger?host={tmp_path}")
        assert "Start the server" in refused.value.remedy
        assert "hunter2" not in str(refused.value)

    def test_no_such_database(self, postgres_server: PostgresServer) -> None:
        with pytest.raises(Unavailable, match="nowhere") as refused:
            PostgresStore(postgres_server.url_of("nowhere"))
        assert "createdb" in refused.value.remedy

    def test_no_such_user(self, postgres_server: PostgresServer) -> None:
        url = f"postgresql://stranger:hunter2@/postgres?host={postgres_server.folder}"
        with pytest.raises(Unavailable, match="stranger") as refused:
            PostgresStore(url)
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
            PostgresStore(url)
        assert "hunter2" not in str(refused.value)

    def test_a_server_that_acknowledges_too_early(self, fresh_postgres_url: str) -> None:
        PostgresStore(fresh_postgres_url).close()
        name = fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0]
        run_sql(fresh_postgres_url, f"ALTER DATABASE {name} SET synchronous_commit = off")
        with pytest.raises(Unavailable, match="synchronous_commit=off") as refused:
            PostgresStore(fresh_postgres_url)
        assert refused.value.code == "not_durable"

    def test_a_read_only_server(self, fresh_postgres_url: str) -> None:
        PostgresStore(fresh_postgres_url).close()
        name = fresh_postgres_url.split("@/")[1].split("?", maxsplit=1)[0]
        run_sql(fresh_postgres_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        store = PostgresStore(fresh_postgres_url)
        assert store.read(lambda reader: reader.last_position()) == 0
        with pytest.raises(Unavailable, match="read-only"):
            store.role_ids(["new"])
        store.close()

    def test_a_database_of_somebody_else(self, fresh_postgres_url: str) -> None:
        run_sql(fresh_postgres_url, "CREATE TABLE tasks (mine integer)")
        with pytest.raises(Unavailable, match="something else") as refused:
            PostgresStore(fresh_postgres_url)
        assert "database of its own" in refused.value.remedy
        assert run_sql(fresh_postgres_url, "SELECT count(*) FROM tasks") == [(0,)]

    def test_a_time_limit_of_the_server(self, fresh_postgres_url: str) -> None:
        PostgresStore(fresh_postgres_url).close()
        url = f"{fresh_postgres_url}&options=-c%20lock_timeout%3D50"
        hasty, slow = PostgresStore(url), PostgresStore(fresh_postgres_url)
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
        with pytest.raises(Invalid):
            store.submit([new_row("a", role, memo=text)], {}, LANES, [])
        with pytest.raises(Invalid):
            store.write(lambda tx: tx.insert([new_row("a", role, memo=text)]))
        with pytest.raises(Invalid):
            store.write(lambda tx: tx.hold(1, [text]))
        assert log(store) == []

    def test_a_database_in_another_encoding(self, postgres_server: PostgresServer) -> None:
        run_sql(postgres_server.url, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
        try:
            store = PostgresStore(postgres_server.url_of("latin"))
            role = role_id(store)
            store.submit([new_row("a", role, memo="café")], {}, LANES, [])
            assert hot(store, 1).memo == "café"
            with pytest.raises(Invalid, match="cannot keep"):
                store.submit([new_row("b", role, memo="🦊")], {}, LANES, [])
            store.close()
        finally:
            run_sql(postgres_server.url, "DROP DATABASE latin WITH (FORCE)")

    def test_a_number_that_does_not_fit(self, store: PostgresStore) -> None:
        role = role_id(store)
        for number in (2**40, 2**70):
            row = new_row("a", role)._replace(priority=number)
            with pytest.raises(Invalid):
                store.submit([row], {}, LANES, [])
            with pytest.raises(Invalid):
                store.submit([row, row], {}, LANES, [])
        assert log(store) == []

    def test_after_closing(self, store: PostgresStore) -> None:
        store.close()
        with pytest.raises(Unavailable, match="closed"):
            store.read(lambda reader: reader.last_position())


class TestGoingAway:
    def test_a_restart_between_changes(
        self, store: PostgresStore, postgres_server: PostgresServer
    ) -> None:
        add(store, "before")
        postgres_server.restart("immediate")
        add(store, "after")
        assert [entry.task_id for entry in log(store)] == ["before", "after"]

    def test_a_restart_under_a_change(
        self, store: PostgresStore, postgres_server: PostgresServer
    ) -> None:
        key = add(store, "a")["a"]
        runs = []

        def change(tx: Tx) -> None:
            row = moved(tx.lock([key])[0], COMPLETE)
            runs.append(row.version)
            if len(runs) == 1:
                postgres_server.restart()
            tx.save([row], [event_of(row)], [])

        store.write(change)
        assert runs == [2, 2]
        assert hot(store, key).version == 2

    def test_a_server_that_takes_its_time(
        self, store: PostgresStore, postgres_server: PostgresServer
    ) -> None:
        add(store, "a")
        postgres_server.halt()
        waiting = threading.Event()

        def look() -> int:
            waiting.set()
            return store.read(lambda reader: reader.last_position())

        answers: list[int] = []
        thread = threading.Thread(target=lambda: answers.append(look()))
        thread.start()
        waiting.wait(10)
        postgres_server.start()
        thread.join(40)
        assert answers == [1]

    def test_patience_ends(self, fresh_postgres_url: str, postgres_server: PostgresServer) -> None:
        store = PostgresStore(fresh_postgres_url, patience_seconds=0.3)
        add(store, "a")
        postgres_server.halt()
        try:
            with pytest.raises(Unavailable, match="cannot be reached"):
                move(store, [1], COMPLETE)
            with pytest.raises(Unavailable):
                store.read(lambda reader: reader.last_position())
        finally:
            postgres_server.start()
        assert store.read(lambda reader: reader.last_position()) == 1
        store.close()

    def test_a_connection_cut_in_the_middle(
        self, store: PostgresStore, fresh_postgres_url: str
    ) -> None:
        key = add(store, "a")["a"]
        runs = []

        def change(tx: Tx) -> str:
            row = moved(tx.lock([key])[0], COMPLETE)
            runs.append(row.version)
            if len(runs) < 3:
                cut_everybody_off(fresh_postgres_url)
            tx.artifacts_of(key)
            tx.save([row], [event_of(row)], [])
            return "done"

        assert store.write(change) == "done"
        assert runs == [2, 2, 2]
        assert [entry.event.version for entry in log(store)] == [1, 2]

    def test_idle_connections_that_were_cut(
        self, store: PostgresStore, fresh_postgres_url: str
    ) -> None:
        for name in ("a", "b", "c"):
            cut_everybody_off(fresh_postgres_url)
            assert store.submit([new_row(name, role_id(store))], {}, LANES, []) == {name}
        assert [entry.task_id for entry in log(store)] == ["a", "b", "c"]

    def test_a_silent_client_does_not_keep_its_locks(self, store: PostgresStore) -> None:
        """The server is told to wait 20 s, once per transaction, and nothing is left behind."""
        key = add(store, "a")["a"]
        setting = Statement("x", "SELECT current_setting('idle_in_transaction_session_timeout')")

        def change(tx: Tx) -> str:
            assert isinstance(tx, PostgresTx)
            tx.lock([key])
            return str(tx._wire.exchange([Call(setting, {})])[0][0][0])

        assert store.write(change) == "20s"
        wire = store._pool.take()
        assert wire.exchange([Call(setting, {})]) == [[("0",)]]
        store._pool.give(wire)

    def test_an_interrupted_wait_leaves_a_working_store(self, store: PostgresStore) -> None:
        key = add(store, "a")["a"]
        locked, leave = threading.Event(), threading.Event()

        def holder(tx: Tx) -> None:
            tx.lock([key])
            locked.set()
            leave.wait(30)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        thread = threading.Thread(target=lambda: store.write(holder))
        thread.start()
        locked.wait(30)
        previous = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                move(store, [key], COMPLETE)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
            leave.set()
        thread.join(30)
        assert [row.version for row in move(store, [key], COMPLETE)] == [2]

    def test_a_forked_child_has_connections_of_its_own(self, store: PostgresStore) -> None:
        add(store, "parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if add(store, "child") else 1
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        add(store, "again")
        assert [entry.task_id for entry in log(store)] == ["parent", "child", "again"]


class TestAnUnansweredCommit:
    """The connection breaks while COMMIT is on its way: it may have been carried out or not."""

    def break_commits(
        self, monkeypatch: pytest.MonkeyPatch, *, applied: bool, times: int = 1
    ) -> list[int]:
        broken: list[int] = []
        exchange: Exchange = Wire.exchange

        def breaking(wire: Wire, calls: Sequence[Call]) -> list[list[Any]]:
            ends = calls[-1].statement.sql == b"COMMIT" and len(calls) > 1
            if not ends or len(broken) >= times:
                return exchange(wire, calls)
            broken.append(len(calls))
            if applied:
                exchange(wire, calls)
            wire.close()
            raise Lost("the line went dead")

        monkeypatch.setattr(Wire, "exchange", breaking)
        return broken

    @pytest.mark.parametrize("applied", [True, False])
    def test_is_looked_up_in_the_log(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, applied: bool
    ) -> None:
        key = add(store, "a")["a"]
        broken = self.break_commits(monkeypatch, applied=applied)
        runs = []

        def change(tx: Tx) -> str:
            row = moved(tx.lock([key])[0], COMPLETE)
            runs.append(row.version)
            tx.save([row], [event_of(row)], [])
            return "done"

        assert store.write(change) == "done"
        assert broken and len(runs) == (1 if applied else 2)
        assert hot(store, key).version == 2
        assert [entry.event.version for entry in log(store)] == [1, 2]

    @pytest.mark.parametrize("applied", [True, False])
    def test_of_a_submission_gives_the_same_task(
        self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch, applied: bool
    ) -> None:
        ledger = Ledger(store, lambda: 0.5)
        broken = self.break_commits(monkeypatch, applied=applied)
        (done,) = ledger.submit([Spec("mine", "worker", resources=("gpu",))])
        assert broken and done.task.id == "mine"
        assert [entry.task_id for entry in log(store)] == ["mine"]

    def test_is_called_unknown_if_the_server_stays_away(
        self,
        fresh_postgres_url: str,
        postgres_server: PostgresServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store = PostgresStore(fresh_postgres_url, patience_seconds=0.3)
        key = add(store, "a")["a"]
        self.break_commits(monkeypatch, applied=True)
        exchange = Wire.exchange

        def then_gone(wire: Wire, calls: Sequence[Call]) -> list[list[Any]]:
            try:
                return exchange(wire, calls)
            except Lost:
                if postgres_server.running:
                    postgres_server.halt()
                raise

        monkeypatch.setattr(Wire, "exchange", then_gone)
        try:
            with pytest.raises(Unavailable, match="unknown") as unsure:
                move(store, [key], COMPLETE)
        finally:
            monkeypatch.undo()
            postgres_server.start()
        assert unsure.value.code == "unknown_outcome"
        assert hot(store, key).version == 2
        store.close()


class TestBehindAPooler:
    def test_sessions_that_change_between_transactions(
        self, fresh_postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every transaction finds a session that knows nothing of the one before."""
        give = Pool.give

        def forgetful(pool: Pool, wire: Wire) -> None:
            if wire.usable:
                wire._pq.exit_pipeline_mode()
                wire._connection.execute("DISCARD ALL", prepare=False)
                wire._pq.enter_pipeline_mode()
            give(pool, wire)

        monkeypatch.setattr(Pool, "give", forgetful)
        store = PostgresStore(fresh_postgres_url)
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
    def wheel_program(self, postgres_server: PostgresServer, name: str) -> Path:
        return postgres_server._binaries / name

    def test_a_dump_can_be_restored(
        self,
        store: PostgresStore,
        postgres_server: PostgresServer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        program = self.wheel_program(postgres_server, "pg_dump")
        if not program.exists():
            pytest.skip("the wheel carries no pg_dump")
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
