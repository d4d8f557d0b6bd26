"""A ledger copied whole, from every database to every database."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentq.contracts.copying import Fence, LedgerCopy
from agentq.contracts.store import (
    COMPLETE,
    IN_PROGRESS,
    ArtifactRow,
    CircuitRow,
    DedupRow,
    EffectRow,
    SpendingRow,
    Store,
    TreeRow,
    Tx,
)
from agentq.core.errors import Conflict, Unavailable
from agentq.stores.copying import open_copy
from tests.contracts.conftest import open_store
from tests.contracts.rows import Clock, add, event_of, hot, log, move, moved, role_id
from tests.servers.postgres import PostgresServer

FILLING, MOVING = Fence("filling", "the old one"), Fence("moving", "the new one")


class End:
    """One database, open as a store and as an end of a move."""

    def __init__(self, address: str) -> None:
        self.store: Store = open_store(address, Clock())
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
            server: PostgresServer = request.getfixturevalue("postgres_server")
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
    keys = add(store, "a", "b", "c", "gone")
    a, b = keys["a"], keys["b"]
    role = role_id(store)
    move(store, [a, keys["gone"]], COMPLETE)

    def change(tx: Tx) -> None:
        tx.set_role(tx.lock_role(role)._replace(max_running=3, provider="acme", daily='{"usd":1}'))
        tx.set_lanes(tx.lanes() | {"delivery"})
        tx.link([(a, b)])
        tx.want(b, ["gpu", "it's"])
        tx.hold(b, ["gpu"])
        tx.remember([DedupRow("key", "a", "digest", -1, 2**50)])
        tx.add_artifacts([ArtifactRow(a, 1, "deep/ü.md", 2**40, "ab" * 32, "text/plain", 5)])
        tx.extend_circuit(CircuitRow("acme", 2**50, "quota \\ \n\t", 1, "kim"))
        tx.add_spending([SpendingRow("role", "worker", 20_000, 0.1, 1e15, 3.0, 1 / 3)])
        tx.set_trees([TreeRow(a, "a", '{"usd":5}', "", "", 0)])
        tx.join_trees([(a, a), (b, a)])

    store.write(change)
    store.write(
        lambda tx: tx.save(
            [row := moved(tx.lock([b])[0], COMPLETE)],
            [event_of(row)],
            [EffectRow(b, row.version, 0, "delivery", "{}")],
        )
    )
    store.write(lambda tx: tx.delete([keys["gone"]]))


def fill(source: End, target: End) -> None:
    with source.copy.snapshot() as snapshot:
        written = target.copy.fill(snapshot, FILLING)
    assert written == source.copy.fingerprints() == target.copy.fingerprints()


class TestFilling:
    def test_everything_arrives(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        target.copy.lift_fence()
        assert log(target.store) == log(source.store)
        with source.copy.snapshot() as here, target.copy.snapshot() as there:
            assert here.head() == there.head()
        counts = {table: each.rows for table, each in target.copy.fingerprints().items()}
        assert [table for table, count in counts.items() if not count] == []

    def test_numbers_go_on_where_they_ended(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        target.copy.lift_fence()
        for store in (source.store, target.store):
            store.role_ids(["another"])
            assert add(store, "next") == {"next": 5}, "the key of what was pruned is not used again"
            move(store, [5], COMPLETE)
        assert log(target.store) == log(source.store)
        roles = [end.store.read(lambda reader: reader.roles()) for end in (source, target)]
        assert roles[0] == roles[1]

    def test_an_unfinished_one_is_replaced(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        add(source.store, "since")
        fill(source, target)
        target.copy.lift_fence()
        assert log(target.store) == log(source.store)

    def test_never_over_something_else(self, source: End, target: End) -> None:
        add(target.store, "theirs")
        with source.copy.snapshot() as snapshot, pytest.raises(Conflict, match="1 in tasks"):
            target.copy.fill(snapshot, FILLING)
        with pytest.raises(Conflict, match="in use"):
            target.copy.clear()
        assert [entry.task_id for entry in log(target.store)] == ["theirs"]

    def test_nor_over_one_that_was_emptied(self, source: End, target: End) -> None:
        keys = add(target.store, "theirs")
        target.store.write(lambda tx: tx.delete(list(keys.values())))
        with pytest.raises(Conflict, match="not empty"):
            target.copy.check_fillable(FILLING)

    def test_it_can_be_taken_back(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        target.copy.clear()
        target.copy.check_fillable(FILLING)
        assert target.copy.fence() is None and log(target.store) == []
        add(target.store, "mine")


class TestTheFence:
    def test_no_write_gets_through(self, source: End) -> None:
        store = source.store
        work(store)
        key = add(store, "x")["x"]
        assert source.copy.set_fence(MOVING) == []
        assert source.copy.fence() == MOVING
        before = source.copy.fingerprints()
        writes: list[Callable[[], object]] = [
            lambda: add(store, "late"),
            lambda: move(store, [key], COMPLETE),
            lambda: store.role_ids(["late"]),
            lambda: store.write(lambda tx: tx.set_lanes(frozenset())),
            lambda: store.write(lambda tx: tx.take_effects("delivery", 2**50, 9, 2**51)),
            lambda: store.write(lambda tx: tx.forget_dedup(2**60)),
            lambda: store.write(lambda tx: tx.delete([key])),
        ]
        for write in writes:
            with pytest.raises(Unavailable, match="being moved to the new one"):
                write()
        assert source.copy.fingerprints() == before
        # Looking is fine; and it can be changed and lifted.
        assert hot(store, key).version == 1
        assert source.copy.set_fence(Fence("moved", "it's there")) == []
        with pytest.raises(Unavailable, match="moved to it's there"):
            add(store, "late")
        source.copy.lift_fence()
        assert add(store, "late")

    def test_is_not_raised_while_somebody_works(self, source: End) -> None:
        keys = add(source.store, "a", "b")

        def claim(tx: Tx) -> None:
            row = moved(tx.lock([keys["b"]])[0], IN_PROGRESS, holder="ada")
            tx.save([row], [event_of(row)], [])

        source.store.write(claim)
        (held,) = source.copy.set_fence(MOVING)
        assert (held.task_id, held.holder, held.state) == ("b", "ada", IN_PROGRESS)
        assert source.copy.fence() is None
        assert add(source.store, "goes on")
