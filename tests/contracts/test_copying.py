"""A ledger copied whole, from every database to every database."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from agentq.contracts.audit_rows import AuditFilter, AuditRow, TokenRow
from agentq.contracts.copying import MovedTo
from agentq.contracts.hook_rows import HookFilter, HookRow, WebhookTargetRow
from agentq.contracts.limit_rows import CircuitRow, ResourceRow
from agentq.contracts.sample_rows import SampleRow
from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.store import (
    COMPLETE,
    IN_PROGRESS,
    ArtifactRow,
    Changes,
    DedupRow,
    EffectRow,
    Expired,
    SpendingRow,
    Store,
    TreeRow,
    Tx,
)
from agentq.core.errors import Conflict, Refused, Unavailable
from agentq.ledger.leader_leases import LeaderLeases
from agentq.stores.transfer.base import LedgerCopy
from agentq.stores.transfer.postgres import PostgresCopy
from agentq.stores.transfer.sqlite import SqliteCopy
from tests.contracts.conftest import POSTGRES, SQLITE_FILE, Backend, open_store
from tests.contracts.rows import (
    Clock,
    add,
    hot,
    log,
    move,
    moved,
    new_row,
    role_id,
    stepped,
)
from tests.servers.postgres import PostgresServer

MOVED = MovedTo("it's there", "/files")
DECISION = AuditRow(
    5, "kim", "person", "token tok-1", "::1", "cancel", "a", "done", "", 1, "it's \x1b[1m"
)
DELIVERY = HookRow("in", "h", "d-1", 1, 0, 0, "", "", "{}", "eA==")
REFUSAL = AuditRow(6, "", "", "", "10.0.0.1", "login", "", "refused", "bad_token", 2**40, "no")


class End(NamedTuple):
    """One database, open as a store and as an end of a move."""

    store: Store
    copy: LedgerCopy


@contextmanager
def open_end(address: str) -> Iterator[End]:
    kind = PostgresCopy if address.startswith("postgresql:") else SqliteCopy
    with closing(open_store(address, Clock())) as store, closing(kind(address)) as copy:
        yield End(store, copy)


@pytest.fixture
def source(shared: Backend) -> Iterator[End]:
    with open_end(shared.address) as end:
        yield end


@pytest.fixture(params=[SQLITE_FILE, POSTGRES])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[End]:
    with ExitStack() as stack:
        address = str(tmp_path / "new.db")
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("shared_postgres")
            address = stack.enter_context(server.fresh_database())
        yield stack.enter_context(open_end(address))


def work(store: Store) -> None:
    """Something in every table."""
    role = role_id(store)
    born = [
        new_row("a", role, roots=("a",)),
        new_row("b", role, after=("a",), resources=("gpu", "it's"), roots=("a",)),
        new_row("c", role),
        new_row("gone", role),
    ]
    tree = TreeRow(0, "a", '{"usd":5}', "", "", 0)
    store.write(lambda tx: tx.save(Changes(new=born, trees=[tree])))
    keys = store.read(lambda reader: reader.keys(row.id for row in born))
    a, b = keys["a"], keys["b"]
    move(store, [a, keys["gone"]], COMPLETE)

    def change(tx: Tx) -> None:
        limited = tx.lock_role(role)._replace(max_running=3, provider="acme", daily='{"usd":1}')
        assert tx.hold_resources(b, [("gpu", 0)])
        tx.save(
            Changes(
                roles=[limited],
                lanes=tx.lanes() | {"delivery"},
                dedup=[DedupRow("key", "a", "digest", -1, 2**50)],
                artifacts=[ArtifactRow(a, 1, "deep/ü.md", 2**40, "ab" * 32, "text/plain", 5)],
                resources=[ResourceRow("gpu", 2, '{"starts":5}', 2**60, 2**50, 2**50 + 1)],
                circuits=[CircuitRow("acme", 2**50, "quota \\ \n\t", 1, "kim")],
                tokens=[TokenRow("tok-1", "kim", "cd" * 32, "read submit:x", 1, "ada", 2**50)],
                audit=[DECISION, REFUSAL],
                hook_deliveries=[DELIVERY._replace(delivery_id="d-0")],
                webhook_targets=[WebhookTargetRow("ops", 7)],
                schedules=[ScheduleRow("nightly", "at 5", "ab", 1, 2**50, 2**50, 3, problem="ü\n")],
                samples=[SampleRow(0, 0, "", '{"position":3}'), SampleRow(60_000, 9, "ü", "{}")],
                spending=[SpendingRow("role", "worker", 20_000, 0.1, 1e15, 3.0, 1 / 3)],
            )
        )

    store.write(change)

    def end(tx: Tx) -> None:
        row = moved(tx.lock([b])[0], COMPLETE)
        tx.save(stepped(row, effects=[EffectRow(b, row.version, 0, "delivery", "{}")]))

    store.write(end)
    store.write(lambda tx: tx.delete([keys["gone"]]))


class TestFilling:
    def test_everything_arrives_and_numbers_go_on(self, source: End, target: End) -> None:
        work(source.store)
        source.store.number_events()
        with target.copy.transaction(exclusive=True), source.copy.transaction():
            target.copy.fill(source.copy)
            assert target.copy.fingerprints() == source.copy.fingerprints()
            assert [table for table in source.copy.tables() if not source.copy.count(table)] == []
        assert log(target.store) == log(source.store)
        for store in (source.store, target.store):
            store.role_ids(["another"])
            assert add(store, "next") == {"next": 5}, "the key of what was pruned is not used again"
            move(store, [5], COMPLETE)
        assert log(target.store) == log(source.store)
        again = AuditRow(9, "", "", "", "", "", "", "done", "", 1, "")
        for store in (source.store, target.store):
            store.write(lambda tx: tx.save(Changes(audit=[again])))
            store.write(lambda tx: tx.save(Changes(hook_deliveries=[DELIVERY])))
        audits = [
            end.store.read(lambda reader: reader.records(AuditFilter())) for end in (source, target)
        ]
        assert len(audits[0]) == 3 and audits[0] == audits[1]
        hooks = [
            end.store.read(lambda reader: reader.records(HookFilter("in")))
            for end in (source, target)
        ]
        assert len(hooks[0]) == 2 and hooks[0] == hooks[1]
        roles = [end.store.read(lambda reader: reader.roles()) for end in (source, target)]
        assert roles[0] == roles[1]

    @pytest.mark.parametrize("emptied", [False, True])
    def test_what_was_used_is_not_empty(self, source: End, emptied: bool) -> None:
        with source.copy.transaction():
            source.copy.check_empty()
        keys = add(source.store, "theirs")
        source.store.number_events()
        if emptied:
            source.store.write(lambda tx: tx.delete(list(keys.values())))
        with source.copy.transaction(), pytest.raises(Conflict, match="not empty"):
            source.copy.check_empty()

    def test_any_change_is_seen(self, source: End) -> None:
        work(source.store)
        changes: list[tuple[str, Callable[[], object]]] = [
            ("head", lambda: source.store.write(lambda tx: tx.save(Changes(lanes=frozenset())))),
            ("outbox", lambda: source.store.write(lambda tx: tx.settle_effects([1]))),
            ("tasks", lambda: add(source.store, "late")),
        ]
        for table, change in changes:
            source.store.number_events()
            with source.copy.transaction():
                before = source.copy.fingerprints()
            change()
            source.store.number_events()
            with source.copy.transaction():
                assert source.copy.fingerprints()[table] != before[table]

    def test_no_event_without_a_position_is_left_behind(self, fresh_postgres_url: str) -> None:
        with open_end(fresh_postgres_url) as source:
            add(source.store, "late")
            with source.copy.transaction(), pytest.raises(Refused, match="Somebody writes to"):
                source.copy.fingerprints()


def test_a_ledger_that_was_moved_takes_no_writes(source: End) -> None:
    store = source.store
    work(store)
    key = add(store, "x")["x"]
    store.number_events()
    with source.copy.transaction(exclusive=True):
        before = source.copy.fingerprints()
        source.copy.mark(MOVED)
    writes: list[Callable[[], object]] = [
        lambda: add(store, "late"),
        lambda: move(store, [key], COMPLETE),
        lambda: store.role_ids(["late"]),
        lambda: store.write(lambda tx: tx.save(Changes(lanes=frozenset()))),
        lambda: store.write(lambda tx: tx.settle_effects([1], 2**51)),
        lambda: store.write(lambda tx: tx.settle_effects([1])),
        lambda: store.write(lambda tx: tx.save(Changes(tokens=tx.tokens()))),
        lambda: store.write(lambda tx: tx.delete((), Expired(2**60))),
        lambda: store.write(lambda tx: tx.delete([key])),
        lambda: LeaderLeases(store).hold(["prune"], "ada", 1000),
    ]
    for write in writes:
        with pytest.raises(Unavailable, match="moved to it's there") as refused:
            write()
        assert refused.value.code == "moved"
    assert hot(store, key).version == 1, "looking is fine"
    with source.copy.transaction(exclusive=True):
        assert source.copy.fingerprints() == before
        assert source.copy.moved_to() == MOVED
        source.copy.unmark()
        assert source.copy.moved_to() is None
    assert add(store, "late")


def test_leases_that_are_alive_are_named(source: End) -> None:
    keys = add(source.store, "a", "b")
    move(source.store, [keys["b"]], IN_PROGRESS, holder="ada", wake_at=2000)
    LeaderLeases(source.store).hold(["prune", "due"], "up-1", 1000)
    now = source.store.read(lambda reader: reader.now())
    with source.copy.transaction():
        leases = source.copy.live_leases(1999)
        assert [lease[:2] for lease in leases] == [("agentq up", "up-1"), ("b", "ada")]
        assert leases[1].until == 2000
        assert [lease.holder for lease in source.copy.live_leases(2000)] == ["up-1"]
        assert source.copy.live_leases(now + 1000) == [], "what has expired may be copied"


def test_both_kinds_have_the_same_tables(source: End, target: End) -> None:
    """A table or column that only one has would be lost, or must be left out on purpose."""
    with source.copy.transaction(), target.copy.transaction():
        assert source.copy.tables() == target.copy.tables()


def test_a_session_that_falls_silent_is_hung_up_on(postgres_server: PostgresServer) -> None:
    with postgres_server.fresh_database() as url:
        open_store(url, Clock()).close()
        copy = PostgresCopy(url, step_seconds=0.5)
        pid = copy._connection.info.backend_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable, match="broke"), copy.transaction():
                pytest.fail("a transaction began")
        finally:
            os.kill(pid, signal.SIGCONT)
            copy.close()
