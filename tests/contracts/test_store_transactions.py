"""The store contract: a transaction happens wholly or not at all, and rings only when it did."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pytest

from agentq.contracts.limit_rows import CircuitRow
from agentq.contracts.store import (
    COMPLETE,
    HAS_RESOURCES,
    IN_PROGRESS,
    PENDING,
    READY,
    ArtifactRow,
    Changes,
    DedupRow,
    EffectRow,
    Lease,
    LeaseRow,
    Reader,
    RunAgain,
    SpendingRow,
    Store,
    TreeRow,
    Tx,
)
from agentq.core.errors import Refused, Unavailable
from agentq.core.values import replace
from tests.contracts.conftest import Backend
from tests.contracts.rows import (
    LANES,
    add,
    event_of,
    everything,
    hot,
    log,
    move,
    moved,
    new_row,
    role_id,
    stepped,
)


class Stumbled(Exception):
    """What a change raises half-way."""


def test_the_answer_of_the_change_is_returned(store: Store) -> None:
    assert store.write(lambda tx: "done") == "done"
    assert store.read(lambda reader: ("seen", reader.next_wake())) == ("seen", 0)


@pytest.mark.parametrize("error", [Stumbled("x"), Refused("no"), KeyboardInterrupt()])
def test_a_change_that_raises_leaves_nothing(store: Store, error: BaseException) -> None:
    keys = add(store, "a", "b")
    move(store, [keys["b"]], IN_PROGRESS, holder="w", wake_at=9)
    role = role_id(store)
    store.number_events()
    before = store.read(everything)
    new = new_row("c", role, flags=HAS_RESOURCES, effects=((0, "git", "x"),), after=("a",),
                  resources=("gpu",), roots=("c",))  # fmt: skip

    def change(tx: Tx) -> None:
        assert tx.hold_resources(keys["b"], [("gpu", 0)])
        tx.renew([Lease(keys["b"], 1, 5)])
        row = moved(tx.lock([keys["a"]])[0], COMPLETE)
        tx.leader_leases(["due"])
        tx.save(
            Changes(
                new=[new],
                tasks=[row],
                events=[event_of(row)],
                effects=[EffectRow(row.key, 2, 0, "git", "x")],
                artifacts=[ArtifactRow(keys["a"], 1, "n", 1, "s", "m", 1)],
                spending=[SpendingRow("role", "worker", 1, 1.0, 1.0, 1.0, 1.0)],
                trees=[TreeRow(0, "c", "{}", "", "", 0)],
                dedup=[DedupRow("key:x", "c", "d", PENDING, 9)],
                roles=[tx.lock_role(role)._replace(max_running=5)],
                circuits=[CircuitRow("acme", 5, "r", 1, "ann")],
                leases=[LeaseRow("due", "ann", 1, 9)],
                released=[keys["a"]],
                lanes=frozenset({"git"}),
                topics=["events"],
            )
        )
        assert tx.keys(["c"])  # makes a store that saves late save now
        tx.delete([keys["b"]])
        raise error

    with pytest.raises(type(error)):
        store.write(change)
    assert store.number_events() == 3
    assert store.read(everything) == before
    assert store.write(lambda tx: tx.lanes()) == LANES
    assert store.write(lambda tx: tx.dedup_records(["key:x"])) == {}


def test_a_store_goes_on_after_a_failed_change(store: Store) -> None:
    for _ in range(30):
        with pytest.raises(Stumbled):
            store.write(_stumble)
    assert sorted(add(store, "a")) == ["a"]


def _stumble(tx: Tx) -> None:
    tx.next_wake()
    raise Stumbled


def test_a_change_is_run_again_when_it_asks(store: Store) -> None:
    role, runs = role_id(store), []

    def change(tx: Tx) -> int:
        runs.append(len(tx.keys(["a"])))
        tx.save(Changes(new=[new_row("a", role)]))
        assert len(tx.keys(["a"])) == 1
        if len(runs) < 3:
            raise RunAgain
        return len(runs)

    assert store.write(change) == 3
    assert runs == [0, 0, 0], "nothing of an earlier run was left"
    assert [entry.position for entry in log(store)] == [1]


def test_a_change_that_never_settles_ends_in_words(store: Store) -> None:
    def change(tx: Tx) -> None:
        raise RunAgain

    with pytest.raises(Unavailable, match="kept changing"):
        store.write(change)


def test_positions_of_a_failed_change_are_used_again(store: Store) -> None:
    """A follower waits for the next position: one that never comes would stop it for good."""
    role = role_id(store)

    def change(tx: Tx) -> None:
        tx.save(Changes(new=[new_row("lost", role)]))
        assert [entry.event.version for entry in tx.history(tx.keys(["lost"])["lost"])] == [1]
        raise Stumbled

    with pytest.raises(Stumbled):
        store.write(change)
    add(store, "kept")
    assert [(entry.position, entry.task_id) for entry in log(store)] == [(1, "kept")]


def test_a_read_sees_one_committed_state(shared: Backend) -> None:
    reader_store, writer = shared.open(), shared.open()
    keys = add(writer, "a", "b")
    assert writer.number_events() == 2

    def look(reader: Reader) -> list[int]:
        before = reader.tasks(list(keys.values()))
        move(writer, keys.values(), COMPLETE)
        after = reader.tasks(list(keys.values()))
        assert before == after
        # Also what has got its place in the log meanwhile.
        assert writer.number_events() == 4
        assert len(reader.events_after(0, 9)) == 2
        assert [entry.event.version for entry in reader.history(keys["a"])] == [1]
        return [row.hot.state for row in after]

    assert reader_store.read(look) == [READY, READY]
    assert [hot(reader_store, key).state for key in keys.values()] == [COMPLETE, COMPLETE]


def test_a_read_that_raises_harms_nobody(store: Store) -> None:
    def look(reader: Reader) -> None:
        reader.next_wake()
        raise Refused("not this one")

    for _ in range(20):
        with pytest.raises(Refused):
            store.read(look)
    assert store.read(lambda reader: reader.next_wake()) == 0


def test_what_is_locked_stays_so_until_the_end(shared: Backend) -> None:
    ours, theirs = shared.open(), shared.open()
    key = add(ours, "a")["a"]
    seen: list[int] = []
    locked, finished = threading.Event(), threading.Event()

    def theirs_waits() -> None:
        locked.wait(30)
        seen.extend(row.version for row in move(theirs, [key], COMPLETE))
        finished.set()

    def change(tx: Tx) -> None:
        row = moved(tx.lock([key])[0], IN_PROGRESS)
        locked.set()
        assert not finished.wait(0.3), "the other must wait for our lock"
        tx.save(stepped(row))

    thread = threading.Thread(target=theirs_waits)
    thread.start()
    ours.write(change)
    thread.join(30)
    assert seen == [3], "it saw our change, not the state before"
    assert [entry.position for entry in log(ours)] == [1, 2, 3]


@pytest.mark.parametrize("durable", [True, False])
def test_one_that_need_not_be_durable_is_a_transaction(store: Store, durable: bool) -> None:
    keys = add(store, "a", "b")

    def change(tx: Tx) -> str:
        tx.save(stepped(moved(tx.lock([keys["a"]])[0], COMPLETE)))
        return "done"

    assert store.write(change, durable=durable) == "done"
    assert hot(store, keys["a"]).version == 2

    def fail(tx: Tx) -> None:
        tx.save(stepped(moved(tx.lock([keys["b"]])[0], COMPLETE)))
        tx.next_wake()
        raise Stumbled

    with pytest.raises(Stumbled):
        store.write(fail, durable=durable)
    assert hot(store, keys["b"]).version == 1
    assert [entry.position for entry in log(store)] == [1, 2, 3]


def test_the_clock_is_the_one_given(backend: Backend) -> None:
    store = backend.open()
    backend.clock.now = 123_456
    assert store.now() == 123_456
    assert store.read(lambda reader: reader.now()) == 123_456
    assert store.write(lambda tx: tx.now()) == 123_456


class TestRinging:
    """SQLite rings through the callback it was given, PostgreSQL through NOTIFY."""

    def heard(self, backend: Backend, action: Callable[[Store], object]) -> set[str]:
        if backend.name == "postgres":
            return self._heard_by_notify(backend, action)
        from agentq.stores.sqlite.store import SqliteStore

        rung: set[str] = set()

        def ring(topics: Iterable[str]) -> None:
            rung.update(topics)

        store = SqliteStore(backend.address, clock=backend.clock, ring=ring, create=True)
        try:
            role_id(store)
            rung.clear()
            action(store)
        finally:
            store.close()
        return rung

    def _heard_by_notify(self, backend: Backend, action: Callable[[Store], object]) -> set[str]:
        import psycopg

        with psycopg.connect(backend.address, autocommit=True) as ear:
            store = backend.open()
            role_id(store)
            ear.execute("LISTEN agentq")
            action(store)
            # It is sent after the commit, and nobody waits for it but the next who asks there.
            store.schema_version()
            # A transaction's notification is there before the next one's, so this ends the wait.
            ear.execute("NOTIFY agentq, 'end of test'")
            payloads = []
            for note in ear.notifies(timeout=10):
                if note.payload == "end of test":
                    break
                payloads.append(note.payload)
        topics = {topic for payload in payloads for topic in payload.split("\n")}
        assert len(payloads) <= 1, "one notification per transaction"
        return topics

    def test_once_committed(self, backend: Backend) -> None:
        def ring(tx: Tx) -> None:
            tx.save(Changes(topics=["events", "role:a"]))
            tx.save(Changes(topics=iter(["role:b", "events"])))

        assert self.heard(backend, lambda s: s.write(ring)) == {"events", "role:a", "role:b"}

    def test_with_what_was_saved(self, backend: Backend) -> None:
        def action(store: Store) -> None:
            key = add(store, "a")["a"]

            def change(tx: Tx) -> None:
                row = moved(tx.lock([key])[0], COMPLETE)
                tx.save(replace(stepped(row), topics=["events"]))

            store.write(change)

        assert self.heard(backend, action) == {"events"}

    @pytest.mark.parametrize("ids", ["a", "ab"])
    def test_with_a_submission(self, backend: Backend, ids: str) -> None:
        def submit(store: Store) -> None:
            rows = [new_row(each, role_id(store)) for each in ids]
            topics = ["events", "role:worker"]
            store.write(lambda tx: tx.save(Changes(new=rows, topics=topics)))

        assert self.heard(backend, submit) == {"events", "role:worker"}

    def test_not_if_it_failed(self, backend: Backend) -> None:
        def action(store: Store) -> None:
            def change(tx: Tx) -> None:
                tx.save(Changes(topics=["events"]))
                tx.next_wake()
                raise Stumbled

            with pytest.raises(Stumbled):
                store.write(change)

        assert self.heard(backend, action) == set()

    def test_not_if_there_is_nothing_to_say(self, backend: Backend) -> None:
        def action(store: Store) -> None:
            keys = add(store, "b")
            move(store, keys.values(), COMPLETE)
            store.number_events()

        assert self.heard(backend, action) == set()

    def test_more_topics_than_fit(self, backend: Backend) -> None:
        topics = [f"role:{'x' * 100}{n}" for n in range(100)]
        changes = Changes(topics=topics)
        heard = self.heard(backend, lambda store: store.write(lambda tx: tx.save(changes)))
        assert heard in (set(topics), {"*"})
