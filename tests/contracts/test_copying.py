"""A ledger copied whole, from every database to every database."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentq.contracts.copying import Fence, Fingerprint, LedgerCopy
from agentq.contracts.store import (
    COMPLETE,
    IN_PROGRESS,
    ArtifactRow,
    Changes,
    CircuitRow,
    DedupRow,
    EffectRow,
    SpendingRow,
    Store,
    TreeRow,
    Tx,
)
from agentq.core.errors import Conflict, Unavailable
from agentq.ledger.leader_leases import LeaderLeases
from agentq.stores.transfer.base import open_copy
from agentq.stores.transfer.postgres import PostgresCopy
from tests.contracts.conftest import open_store
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

FILLED, BEGUN = Fence("filled", "the old one", "m.1"), Fence("begun", "it's there", "m.1")
MOVED = BEGUN._replace(state="moved")


class End:
    """One database, open as a store and as an end of a move."""

    def __init__(self, address: str) -> None:
        self.store: Store = open_store(address, Clock())
        self.address = address
        path = "" if address.startswith("postgresql:") else address
        self.copy: LedgerCopy = open_copy(address, path)

    def close(self) -> None:
        self.copy.close()
        self.store.close()


MakeEnd = Callable[[str], End]


@pytest.fixture
def make_end(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakeEnd]:
    """Makes a new, empty ledger of a kind."""
    made: list[End] = []
    databases = []
    numbers = itertools.count()

    def make(kind: str) -> End:
        if kind == "postgres":
            server: PostgresServer = request.getfixturevalue("shared_postgres")
            database = server.fresh_database()
            databases.append(database)
            address = database.__enter__()
        else:
            address = str(tmp_path / f"{next(numbers)}.db")
        made.append(End(address))
        return made[-1]

    yield make
    for end in made:
        end.close()
    for database in databases:
        database.__exit__(None, None, None)


KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, make_end: MakeEnd) -> End:
    return make_end(request.param)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, make_end: MakeEnd) -> End:
    return make_end(request.param)


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
        assert tx.hold_resources(b, ["gpu"])
        tx.save(
            Changes(
                roles=[limited],
                lanes=tx.lanes() | {"delivery"},
                dedup=[DedupRow("key", "a", "digest", -1, 2**50)],
                artifacts=[ArtifactRow(a, 1, "deep/ü.md", 2**40, "ab" * 32, "text/plain", 5)],
                circuits=[CircuitRow("acme", 2**50, "quota \\ \n\t", 1, "kim")],
                spending=[SpendingRow("role", "worker", 20_000, 0.1, 1e15, 3.0, 1 / 3)],
            )
        )

    store.write(change)

    def end(tx: Tx) -> None:
        row = moved(tx.lock([b])[0], COMPLETE)
        tx.save(stepped(row, effects=[EffectRow(b, row.version, 0, "delivery", "{}")]))

    store.write(end)
    store.write(lambda tx: tx.delete([keys["gone"]]))


def fill(source: End, target: End, fence: Fence = FILLED) -> dict[str, Fingerprint]:
    """As a move does: its beginning gives every event its place."""
    source.copy.begin(BEGUN)
    with source.copy.snapshot() as snapshot:
        target.copy.fill(snapshot, fence)
    written = source.copy.fingerprints()
    assert written == target.copy.fingerprints()
    return written


class TestFilling:
    def test_everything_arrives_and_numbers_go_on(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        with pytest.raises(Unavailable, match="was filled from the old one"):
            add(target.store, "early")
        assert target.copy.lift(FILLED)
        assert log(target.store) == log(source.store)
        counts = {table: each.rows for table, each in target.copy.fingerprints().items()}
        assert [table for table, count in counts.items() if not count] == []
        for store in (source.store, target.store):
            store.role_ids(["another"])
            assert add(store, "next") == {"next": 5}, "the key of what was pruned is not used again"
            move(store, [5], COMPLETE)
        assert log(target.store) == log(source.store)
        roles = [end.store.read(lambda reader: reader.roles()) for end in (source, target)]
        assert roles[0] == roles[1]

    def test_a_copy_of_the_same_move_is_replaced(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        add(source.store, "since")
        later = FILLED._replace(token="m.2")
        fill(source, target, later)
        assert not target.copy.lift(FILLED), "only the run that filled it opens it"
        assert target.copy.lift(later)
        assert log(target.store) == log(source.store)

    def test_a_copy_of_another_move_is_not(self, source: End, target: End) -> None:
        work(source.store)
        written = fill(source, target)
        with source.copy.snapshot() as snapshot, pytest.raises(Conflict, match="was filled"):
            target.copy.fill(snapshot, FILLED._replace(token="other.1"))
        assert target.copy.fingerprints() == written

    @pytest.mark.parametrize("emptied", [False, True])
    def test_never_over_something_else(self, source: End, target: End, emptied: bool) -> None:
        keys = add(target.store, "theirs")
        if emptied:
            target.store.write(lambda tx: tx.delete(list(keys.values())))
        with source.copy.snapshot() as snapshot, pytest.raises(Conflict, match="not empty"):
            target.copy.fill(snapshot, FILLED)
        assert not target.copy.clear(FILLED)
        assert [entry.task_id for entry in log(target.store)] == ([] if emptied else ["theirs"])

    def test_it_can_be_taken_back(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        assert target.copy.clear(FILLED)
        target.copy.check_fillable(FILLED)
        assert target.copy.fence() is None and log(target.store) == []
        add(target.store, "mine")


class TestClosing:
    def test_no_write_gets_through(self, source: End) -> None:
        store = source.store
        work(store)
        key = add(store, "x")["x"]
        source.copy.begin(BEGUN)
        before = source.copy.fingerprints()
        assert source.copy.close_as_moved(BEGUN, before) == []
        assert source.copy.fence() == MOVED
        writes: list[Callable[[], object]] = [
            lambda: add(store, "late"),
            lambda: move(store, [key], COMPLETE),
            lambda: store.role_ids(["late"]),
            lambda: store.write(lambda tx: tx.save(Changes(lanes=frozenset()))),
            lambda: store.write(lambda tx: tx.postpone_effects([1], 2**51)),
            lambda: store.write(lambda tx: tx.ack_effects([1])),
            lambda: store.write(lambda tx: tx.forget(2**60, 0)),
            lambda: store.write(lambda tx: tx.delete([key])),
            lambda: LeaderLeases(store).hold(["prune"], "ada", 1000),
        ]
        for write in writes:
            with pytest.raises(Unavailable, match="moved to it's there") as refused:
                write()
            assert refused.value.code == "moved"
        assert source.copy.fingerprints() == before
        assert hot(store, key).version == 1, "looking is fine"
        with pytest.raises(Conflict, match="was moved"):
            source.copy.begin(BEGUN._replace(token="m.2"))
        assert not source.copy.lift(BEGUN)
        assert source.copy.lift(MOVED)
        assert add(store, "late")

    def test_not_if_something_changed_since_the_copy(self, source: End) -> None:
        work(source.store)
        source.copy.begin(BEGUN)
        before = source.copy.fingerprints()
        changes: list[tuple[str, Callable[[], object]]] = [
            ("head", lambda: source.store.write(lambda tx: tx.save(Changes(lanes=frozenset())))),
            ("outbox", lambda: source.store.write(lambda tx: tx.ack_effects([1]))),
            ("tasks", lambda: add(source.store, "late")),
        ]
        for table, change in changes:
            change()
            assert table in source.copy.close_as_moved(BEGUN, before)
        assert source.copy.fence() == BEGUN
        assert add(source.store, "goes on")

    def test_only_the_run_that_began_last_closes_it(self, source: End) -> None:
        source.copy.begin(BEGUN)
        copied = source.copy.fingerprints()
        source.copy.begin(BEGUN._replace(token="m.2"))
        with pytest.raises(Conflict, match="given up"):
            source.copy.close_as_moved(BEGUN, copied)
        assert source.copy.close_as_moved(BEGUN._replace(token="m.2"), copied) == []

    def test_leases_that_are_alive_are_named(self, source: End) -> None:
        keys = add(source.store, "a", "b")
        move(source.store, [keys["b"]], IN_PROGRESS, holder="ada", wake_at=2000)
        assert [(each.task_id, each.holder, each.until) for each in source.copy.held(1999)] == [
            ("b", "ada", 2000)
        ]
        assert source.copy.held(2000) == [], "what has expired may be copied"
        LeaderLeases(source.store).hold(["prune", "due"], "up-1", 1000)
        now = source.store.read(lambda reader: reader.now())
        assert [(each.task_id, each.holder) for each in source.copy.held(now)][-1:] == [
            ("agentq up", "up-1")
        ]


def test_both_kinds_have_the_same_tables(source: End, target: End) -> None:
    """A table or column that only one has would be lost, or must be left out on purpose."""
    with source.copy.snapshot() as here, target.copy.snapshot() as there:
        assert {table: set(columns) for table, columns in here.tables().items()} == {
            table: set(columns) for table, columns in there.tables().items()
        }


def ask_after_stopping(pid: int, copy: PostgresCopy, what: str) -> None:
    if what == "fence":
        os.kill(pid, signal.SIGSTOP)
        copy.fence()
        return
    with copy.snapshot() as snapshot:
        os.kill(pid, signal.SIGSTOP)
        next(snapshot.rows("tasks", ["key"]))


@pytest.mark.parametrize("what", ["fence", "rows"])
def test_a_session_that_falls_silent_is_hung_up_on(
    postgres_server: PostgresServer, what: str
) -> None:
    with postgres_server.fresh_database() as url:
        open_store(url, Clock()).close()
        copy = PostgresCopy(url, step_seconds=0.5)
        pid = copy._connection.info.backend_pid
        try:
            with pytest.raises(Unavailable, match="broke"):
                ask_after_stopping(pid, copy, what)
            # And it goes on with another one.
            assert copy.fence() is None
        finally:
            os.kill(pid, signal.SIGCONT)
            copy.close()
