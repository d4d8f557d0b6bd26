"""A ledger copied whole, from every database to every database."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentq.contracts.copying import Fence, LedgerCopy
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

FILLING, MOVING = Fence("filling", "the old one", "1"), Fence("moving", "the new one", "1")
MOVED = Fence("moved", "it's there", "1")


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


def fill(source: End, target: End) -> None:
    """As a move does after the fence, which has given every event its place."""
    source.store.number_events()
    with source.copy.snapshot() as snapshot:
        written = target.copy.fill(snapshot, FILLING)
    assert written == source.copy.fingerprints() == target.copy.fingerprints()


class TestFilling:
    def test_everything_arrives(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        assert target.copy.lift_fence(FILLING)
        assert log(target.store) == log(source.store)
        with source.copy.snapshot() as here, target.copy.snapshot() as there:
            assert here.head() == there.head()
        counts = {table: each.rows for table, each in target.copy.fingerprints().items()}
        assert [table for table, count in counts.items() if not count] == []

    def test_numbers_go_on_where_they_ended(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        assert target.copy.lift_fence(FILLING)
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
        assert target.copy.lift_fence(FILLING)
        assert log(target.store) == log(source.store)

    def test_never_over_something_else(self, source: End, target: End) -> None:
        add(target.store, "theirs")
        with source.copy.snapshot() as snapshot, pytest.raises(Conflict, match="1 in tasks"):
            target.copy.fill(snapshot, FILLING)
        assert not target.copy.clear(FILLING)
        assert [entry.task_id for entry in log(target.store)] == ["theirs"]

    def test_nor_over_one_that_was_emptied(self, source: End, target: End) -> None:
        keys = add(target.store, "theirs")
        target.store.write(lambda tx: tx.delete(list(keys.values())))
        with pytest.raises(Conflict, match="not empty"):
            target.copy.check_fillable(FILLING)

    def test_it_can_be_taken_back(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        assert target.copy.clear(FILLING)
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
            lambda: store.write(lambda tx: tx.save(Changes(lanes=frozenset()))),
            lambda: store.write(lambda tx: tx.postpone_effects([1], 2**51)),
            lambda: store.write(lambda tx: tx.ack_effects([1])),
            lambda: store.write(lambda tx: tx.forget(2**60, 0)),
            lambda: store.write(lambda tx: tx.delete([key])),
            lambda: LeaderLeases(store).hold(["prune"], "ada", 1000),
        ]
        for write in writes:
            with pytest.raises(Unavailable, match="being moved to the new one"):
                write()
        assert source.copy.fingerprints() == before
        # Looking is fine; and it can be changed and lifted.
        assert hot(store, key).version == 1
        assert source.copy.change_fence(MOVING, MOVED)
        with pytest.raises(Unavailable, match="moved to it's there"):
            add(store, "late")
        assert source.copy.lift_fence(MOVED)
        assert add(store, "late")
        assert LeaderLeases(store).hold(["prune"], "ada", 1000)["prune"].holder == "ada"

    def test_leaves_no_event_without_its_place(self, source: End, target: End) -> None:
        """Nobody has followed the log: what is moved is whole all the same."""
        work(source.store)
        assert source.copy.set_fence(MOVING) == []
        with source.copy.snapshot() as snapshot:
            target.copy.fill(snapshot, FILLING)
        assert target.copy.lift_fence(FILLING)
        moved_log = log(target.store)
        assert [(entry.task_id, entry.event.version) for entry in moved_log] == [
            ("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2),
        ]  # fmt: skip
        assert source.copy.lift_fence(MOVING)
        assert moved_log == log(source.store)

    def test_is_not_raised_while_somebody_works(self, source: End) -> None:
        keys = add(source.store, "a", "b")

        def claim(tx: Tx) -> None:
            row = moved(tx.lock([keys["b"]])[0], IN_PROGRESS, holder="ada")
            tx.save(stepped(row))

        source.store.write(claim)
        (held,) = source.copy.set_fence(MOVING)
        assert (held.task_id, held.holder, held.state) == ("b", "ada", IN_PROGRESS)
        assert source.copy.fence() is None
        assert add(source.store, "goes on")


class TestWhoseFence:
    def test_only_a_run_s_own_is_changed_or_lifted(self, source: End) -> None:
        other = MOVING._replace(token="2")
        assert not source.copy.change_fence(MOVING, MOVED), "there is none"
        assert source.copy.set_fence(MOVING) == []
        assert not source.copy.change_fence(other, MOVED)
        assert not source.copy.lift_fence(other)
        assert not source.copy.clear(MOVING), "this one counts"
        assert source.copy.fence() == MOVING
        # A run that may be dead is replaced, and then has nothing to say any more,
        assert source.copy.set_fence(other) == []
        assert not source.copy.lift_fence(MOVING) and not source.copy.change_fence(MOVING, MOVED)
        assert source.copy.fence() == other
        # unless it went elsewhere,
        with pytest.raises(Conflict, match="being moved to the new one"):
            source.copy.set_fence(Fence("moving", "elsewhere", "3"))
        # or got to its end.
        assert source.copy.change_fence(other, MOVED)
        with pytest.raises(Conflict, match="was moved to it's there"):
            source.copy.set_fence(MOVED._replace(state="moving", token="3"))
        assert source.copy.fence() == MOVED

    def test_a_whole_copy_is_not_filled_again(self, source: End, target: End) -> None:
        work(source.store)
        fill(source, target)
        filled = FILLING._replace(state="filled")
        assert target.copy.change_fence(FILLING, filled)
        with pytest.raises(Unavailable, match="was filled from the old one"):
            add(target.store, "early")
        with source.copy.snapshot() as snapshot, pytest.raises(Conflict, match="was filled"):
            target.copy.fill(snapshot, FILLING._replace(token="2"))
        assert not target.copy.clear(FILLING) and not target.copy.lift_fence(FILLING)
        assert target.copy.lift_fence(filled)
        assert log(target.store) == log(source.store)

    def test_runs_at_once_take_turns(self, source: End) -> None:
        """Each of many raises its own; one stands at the end, whole, and it is the one it says."""
        ends = [End(source.address) for _ in range(4)]
        fences = [MOVING._replace(token=str(number)) for number in range(4)]

        def close_and_go_on(end: End, fence: Fence) -> bool:
            assert end.copy.set_fence(fence) == []
            return end.copy.change_fence(fence, fence._replace(state="moved"))

        def run(end: End, fence: Fence) -> bool:
            try:
                return close_and_go_on(end, fence)
            except Conflict:
                return False  # another got to its end

        try:
            with ThreadPoolExecutor(4) as pool:
                won = list(pool.map(run, ends, fences))
        finally:
            for end in ends:
                end.close()
        assert won.count(True) == 1
        assert source.copy.fence() == fences[won.index(True)]._replace(state="moved")
        with pytest.raises(Unavailable, match="was moved to"):
            add(source.store, "late")


def ask(copy: PostgresCopy, freeze: Callable[[], None], what: str) -> None:
    """Ask for something after the server's side of it was stopped."""
    if what == "fence":
        freeze()
        copy.fence()
        return
    with copy.snapshot() as snapshot:
        freeze()
        if what == "rows":
            next(snapshot.rows("tasks", ["key"]))
        else:
            getattr(snapshot, what)()


@pytest.mark.parametrize("what", ["fence", "tables", "head", "rows"])
def test_a_session_that_falls_silent_is_hung_up_on(
    postgres_server: PostgresServer, what: str
) -> None:
    with postgres_server.fresh_database() as url:
        open_store(url, Clock()).close()
        copy = PostgresCopy(url, step_seconds=0.5)
        pid = copy._connection.info.backend_pid

        def freeze() -> None:
            os.kill(pid, signal.SIGSTOP)

        try:
            with pytest.raises(Unavailable, match="broke"):
                ask(copy, freeze, what)
            # And it goes on with another one.
            assert copy.fence() is None
        finally:
            os.kill(pid, signal.SIGCONT)
            copy.close()
