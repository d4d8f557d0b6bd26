"""PostgreSQL that goes away: what is waited for, what is asked again, what is never guessed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agentq.contracts.store import COMPLETE, Tx
from agentq.core.errors import Unavailable
from agentq.core.task import Spec
from agentq.core.triggers import Report
from agentq.ledger.ledger import Ledger
from agentq.stores.postgres.pipeline import Call, Lost, PipelineConnection, Statement
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.postgres.transaction import PostgresTx
from tests.contracts.postgres_only import run_sql, store
from tests.contracts.rows import (
    add,
    hot,
    log,
    move,
    moved,
    stepped,
)
from tests.servers.postgres import PostgresServer

__all__ = ["store"]

Exchange = Callable[..., list[list[Any]]]


def cut_everybody_off(url: str) -> None:
    run_sql(
        url,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )


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
            tx.save(stepped(row))

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
            return store.number_events()

        answers: list[int] = []
        thread = threading.Thread(target=lambda: answers.append(look()))
        thread.start()
        waiting.wait(10)
        postgres_server.start()
        thread.join(40)
        assert answers == [1]

    def test_patience_ends(self, postgres_ledger_url: str, postgres_server: PostgresServer) -> None:
        store = PostgresStore(postgres_ledger_url, patience_seconds=0.3, create=True)
        add(store, "a")
        postgres_server.halt()
        try:
            with pytest.raises(Unavailable, match="cannot be reached"):
                move(store, [1], COMPLETE)
            with pytest.raises(Unavailable):
                store.read(lambda reader: reader.next_wake())
            with pytest.raises(Unavailable):
                store.number_events()
        finally:
            postgres_server.start()
        assert store.number_events() == 1
        store.close()

    def test_a_connection_cut_in_the_middle(
        self, store: PostgresStore, postgres_ledger_url: str
    ) -> None:
        key = add(store, "a")["a"]
        runs = []

        def change(tx: Tx) -> str:
            row = moved(tx.lock([key])[0], COMPLETE)
            runs.append(row.version)
            if len(runs) < 3:
                cut_everybody_off(postgres_ledger_url)
            tx.artifacts_of(key)
            tx.save(stepped(row))
            return "done"

        assert store.write(change) == "done"
        assert runs == [2, 2, 2]
        assert [entry.event.version for entry in log(store)] == [1, 2]

    def test_idle_connections_that_were_cut(
        self, store: PostgresStore, postgres_ledger_url: str
    ) -> None:
        for name in ("a", "b", "c"):
            cut_everybody_off(postgres_ledger_url)
            assert list(add(store, name)) == [name]
        assert [entry.task_id for entry in log(store)] == ["a", "b", "c"]

    def test_a_connection_cut_before_its_wake_up_was_read(
        self, store: PostgresStore, postgres_ledger_url: str
    ) -> None:
        """Nobody waits for what a wake-up answers; whoever speaks next finds the line dead."""
        ledger = Ledger(store, lambda: 0.5)
        for name in ("a", "b", "c"):
            ledger.submit([Spec(name, "worker")], {name})
            cut_everybody_off(postgres_ledger_url)
        held = ledger.claim("worker", 9, "ann")
        cut_everybody_off(postgres_ledger_url)
        for each in held:
            ledger.apply(each.key, Report(1, "done"))
            cut_everybody_off(postgres_ledger_url)
        assert [(entry.task_id, entry.event.version) for entry in log(store)] == [
            (name, version) for versions in ((1,), (2,), (3,)) for name in "abc"
            for version in versions
        ]  # fmt: skip

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
        exchange: Exchange = PipelineConnection.exchange

        def breaking(
            wire: PipelineConnection, calls: Sequence[Call], ahead: Sequence[Call] = ()
        ) -> list[list[Any]]:
            ends = len(calls) > 1 and calls[-1].statement.sql == b"COMMIT"
            if not ends or len(broken) >= times:
                return exchange(wire, calls, ahead)
            broken.append(len(calls))
            if applied:
                exchange(wire, calls)
            wire.close()
            raise Lost("the line went dead")

        monkeypatch.setattr(PipelineConnection, "exchange", breaking)
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
            tx.save(stepped(row))
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
        postgres_ledger_url: str,
        postgres_server: PostgresServer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store = PostgresStore(postgres_ledger_url, patience_seconds=0.3, create=True)
        key = add(store, "a")["a"]
        self.break_commits(monkeypatch, applied=True)
        exchange = PipelineConnection.exchange

        def then_gone(
            wire: PipelineConnection, calls: Sequence[Call], ahead: Sequence[Call] = ()
        ) -> list[list[Any]]:
            try:
                return exchange(wire, calls, ahead)
            except Lost:
                if postgres_server.running:
                    postgres_server.halt()
                raise

        monkeypatch.setattr(PipelineConnection, "exchange", then_gone)
        try:
            with pytest.raises(Unavailable, match="unknown") as unsure:
                move(store, [key], COMPLETE)
        finally:
            monkeypatch.undo()
            postgres_server.start()
        assert unsure.value.code == "unknown_outcome"
        assert hot(store, key).version == 2
        store.close()
