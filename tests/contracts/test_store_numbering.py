"""PostgreSQL: events get their places in the log after their commit, from whoever follows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentq.contracts.store import COMPLETE, IN_PROGRESS, Changes, LogRow, Store, Tx
from agentq.core.task import Spec
from agentq.core.triggers import Release
from agentq.ledger.ledger import Ledger
from agentq.stores.postgres import store as postgres
from agentq.stores.postgres.pipeline import Call, Lost, PipelineConnection
from agentq.stores.postgres.store import PostgresStore
from agentq.stores.postgres.timeouts import Limits
from agentq.stores.postgres.transaction import PostgresTx
from tests.contracts.busy import Race, work
from tests.contracts.conftest import Backend
from tests.contracts.postgres_only import run_sql, somebody_waits
from tests.contracts.rows import add, log, move, moved, new_row, role_id, stepped
from tests.eventually import eventually


class Stop(Exception):
    """What ends a transaction before its commit."""


@pytest.fixture
def backend(postgres_ledger_url: str) -> Iterator[Backend]:
    backend = Backend("postgres", postgres_ledger_url)
    yield backend
    backend.close()


class Follower:
    """Reads what is new, over and over, and never looks back."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.seen: list[LogRow] = []

    def look(self, limit: int = 50) -> int:
        last = self.seen[-1].position if self.seen else 0
        numbered = self.store.number_events()
        news = self.store.read(lambda reader: reader.events_after(last, limit))
        assert not news or news[-1].position >= min(numbered, last + limit)
        self.seen += news
        return len(news)

    def follow(self, is_over: Callable[[], bool]) -> None:
        while True:
            over = is_over()  # asked before looking: what has committed by now must be seen
            if not self.look() and over:
                return

    def check(self) -> None:
        """Without gaps, nothing twice, each task in the order of its versions."""
        assert [entry.position for entry in self.seen] == list(range(1, len(self.seen) + 1))
        versions: dict[str, int] = {}
        for entry in self.seen:
            assert entry.event.version == versions.get(entry.task_id, 0) + 1
            versions[entry.task_id] = entry.event.version


def tables(url: str) -> tuple[int, int, int, int]:
    """The last position; how many events there are, how many have a place, how many have none."""
    (row,) = run_sql(
        url,
        "SELECT (SELECT position FROM agentq.head), (SELECT count(*) FROM agentq.events),"
        " (SELECT count(*) FROM agentq.log), (SELECT count(*) FROM agentq.unnumbered)",
    )
    return row[0], row[1], row[2], row[3]


class TestManyHands:
    @pytest.mark.long
    def test_every_follower_sees_every_event_once(
        self, backend: Backend, session_seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Processes write while four followers give places, a few at a time."""
        monkeypatch.setattr(postgres, "_NUMBERED_AT_ONCE", 7)
        role_id(backend.open())
        followers = [Follower(backend.open()) for _ in range(4)]
        arguments = [(backend.address, f"w{n}", 8, session_seed + n) for n in range(3)]
        with Race(work, arguments) as writers, ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(each.follow, lambda: writers.over) for each in followers]:
                done.result(120)
            submitted = sum(writers.results())
        for each in followers:
            each.check()
            assert each.seen == followers[0].seen
        assert len({entry.task_id for entry in followers[0].seen}) == submitted
        position, events, placed, waiting = tables(backend.address)
        assert (position, placed, waiting) == (events, events, 0)
        assert followers[0].seen == log(backend.open())
        proof = Ledger(backend.open(), lambda: 0.5).queries.verify()
        assert [problem for _, page in proof for problem in page] == []

    def test_what_others_could_see_comes_before_what_they_write_next(
        self, backend: Backend
    ) -> None:
        """A baton goes around: each writes once it has seen the event of the one before."""
        laps, runners = 12, [backend.open() for _ in range(4)]
        role = role_id(runners[0])
        follower, over = Follower(backend.open()), threading.Event()

        def noise(store: Store, number: int) -> None:
            count = 0
            while not over.is_set():
                count += 1
                add(store, *(f"noise-{number}-{count}-{n}" for n in range(5)))

        with ThreadPoolExecutor(3) as pool:
            others = [pool.submit(noise, backend.open(), n) for n in range(2)]
            following = pool.submit(follower.follow, over.is_set)
            try:
                for lap in range(laps * len(runners)):
                    store = runners[lap % len(runners)]
                    before = f"baton-{lap - 1}"
                    seen = store.read(lambda reader, before=before: reader.keys([before]))  # type: ignore[misc]
                    assert seen or not lap
                    row = new_row(f"baton-{lap}", role)
                    store.write(lambda tx, row=row: tx.save(Changes(new=[row])))  # type: ignore[misc]
            finally:
                over.set()
            for done in (*others, following):
                done.result(60)
        follower.check()
        batons = [each.task_id for each in follower.seen if each.task_id.startswith("baton")]
        assert batons == [f"baton-{lap}" for lap in range(laps * len(runners))]


class TestTransactionsThatOverlap:
    def test_one_that_began_first_and_commits_last_comes_last(self, backend: Backend) -> None:
        """Its numbers were drawn first; nobody has seen it, so nobody's order is broken."""
        ours, theirs, follower = backend.open(), backend.open(), Follower(backend.open())
        role = role_id(ours)

        def change(tx: Tx) -> None:
            tx.save(Changes(new=[new_row("slow", role)]))
            assert tx.keys(["slow"])  # sent, and not committed
            add(theirs, "fast")
            assert follower.look() == 1

        ours.write(change)
        assert follower.look() == 1
        follower.check()
        assert [entry.task_id for entry in follower.seen] == ["fast", "slow"]

    def test_one_that_is_rolled_back_leaves_no_gap(self, backend: Backend) -> None:
        store, follower = backend.open(), Follower(backend.open())
        role = role_id(store)
        key = add(store, "first")["first"]

        def change(tx: Tx) -> None:
            row = moved(tx.lock([key])[0], COMPLETE)
            lost = Changes(new=[new_row("lost", role)], tasks=[row], events=stepped(row).events)
            tx.save(lost)
            assert tx.keys(["lost"])
            assert follower.look() in (0, 1)
            raise Stop

        for _ in range(3):
            with pytest.raises(Stop):
                store.write(change)
        add(store, "last")
        follower.follow(lambda: True)
        follower.check()
        assert [entry.task_id for entry in follower.seen] == ["first", "last"]

    def test_commits_do_not_wait_for_each_other(self, backend: Backend) -> None:
        """One is held open with all that it wrote; another process submits, steps and follows."""
        ours = backend.open()
        hasty = PostgresStore(backend.address, clock=backend.clock, limits=Limits(5.0, 0.3, 1.0))
        theirs = Ledger(hasty, lambda: 0.5)
        keys = add(ours, "mine", "other")
        role = role_id(ours)
        spec = Spec("child", "worker", after=("other",), idempotency_key="k", resources=("gpu",))

        def change(tx: Tx) -> list[str]:
            row = moved(tx.lock([keys["mine"]])[0], IN_PROGRESS, holder="w", wake_at=9)
            tx.save(Changes(new=[new_row("open", role)], tasks=[row], events=stepped(row).events))
            assert tx.keys(["open"])
            # Whatever waited for a lock would fail by now.
            theirs.submit([Spec("theirs", "worker")], {"theirs"})
            theirs.submit([spec])
            held = theirs.claim("worker", 9, "bob")
            theirs.apply(held[0].key, Release(1))
            hasty.number_events()
            return [entry.task_id for entry in log(hasty)]

        seen = ours.write(change)
        assert seen[:4] == ["mine", "other", "theirs", "child"] and "open" not in seen
        assert [entry.task_id for entry in log(ours)][len(seen) :] == ["open", "mine"]
        hasty.close()


class TestAFollowerThatIsKilled:
    """Between BEGIN, the lock, the numbering and COMMIT: all of it is done, or nothing."""

    @pytest.mark.parametrize("steps", [0, 1, 2, 3, 4])
    def test_by_its_connection_at_each_step(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch, steps: int
    ) -> None:
        store = backend.open()
        keys = add(store, *"abc")
        move(store, keys.values(), COMPLETE)
        exchange = PipelineConnection.exchange
        left: list[tuple[int, int, int, int]] = []

        def breaking(
            wire: PipelineConnection, calls: Sequence[Call], ahead: Sequence[Call] = ()
        ) -> list[list[Any]]:
            if left or not any(b"number_events" in call.statement.title for call in calls):
                return exchange(wire, calls, ahead)
            if steps:
                exchange(wire, calls[:steps])
            wire.close()
            done = 6 if steps == 4 else 0
            left.append(tables(backend.address))
            assert left[-1] == (done, 6, done, 6 - done)
            raise Lost("the line went dead")

        monkeypatch.setattr(PipelineConnection, "exchange", breaking)
        other = backend.open()
        assert other.number_events() == 6, "it is tried again"
        assert left
        assert tables(backend.address) == (6, 6, 6, 0)
        follower = Follower(store)
        follower.follow(lambda: True)
        follower.check()

    def test_its_lock_keeps_nobody_from_writing(self, backend: Backend) -> None:
        """A follower that stands still in the middle holds up other followers only."""
        import psycopg

        store = backend.open()
        key = add(store, "a")["a"]
        with psycopg.connect(backend.address) as stopped:
            stopped.execute("SET search_path = agentq")
            stopped.execute("SELECT position FROM head FOR UPDATE")
            add(store, "b")
            move(store, [key], COMPLETE)
            assert store.write(lambda tx: tx.lanes())
        assert [entry.task_id for entry in log(store)] == ["a", "b", "a"]


class TestMeanwhile:
    @pytest.fixture
    def taken(self, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
        """Set once a numberer has taken events and not committed; it goes on when somebody waits
        for it."""
        taken, exchange = threading.Event(), PipelineConnection.exchange

        def slowly(
            wire: PipelineConnection, calls: Sequence[Call], ahead: Sequence[Call] = ()
        ) -> list[list[Any]]:
            ours = any(b"number_events" in call.statement.title for call in calls)
            if taken.is_set() or not ours:
                return exchange(wire, calls, ahead)
            rows = exchange(wire, calls[:-1])
            taken.set()
            somebody_waits(backend.address)
            return [*rows, *exchange(wire, calls[-1:])]

        monkeypatch.setattr(PipelineConnection, "exchange", slowly)
        return taken

    def test_a_task_is_deleted(self, backend: Backend, taken: threading.Event) -> None:
        ours, theirs = backend.open(), backend.open()
        keys = add(ours, "gone", "stays")
        move(ours, [keys["gone"]], COMPLETE)
        with ThreadPoolExecutor(1) as pool:
            numbering = pool.submit(ours.number_events)
            assert taken.wait(30)
            theirs.write(lambda tx: tx.delete([keys["gone"]]))
            numbering.result(30)
        assert ours.read(lambda reader: reader.orphan_rows(10)) == []
        assert [entry.task_id for entry in log(ours)] == ["stays"]

    def test_what_is_numbered_while_it_is_being_deleted(self, backend: Backend) -> None:
        ours, theirs = backend.open(), backend.open()
        keys = add(ours, "gone", "stays")
        with ThreadPoolExecutor(1) as pool:

            def change(tx: Tx) -> Any:
                tx.delete([keys["gone"]])
                return pool.submit(theirs.number_events)

            ours.write(change).result(30)
        assert ours.read(lambda reader: reader.orphan_rows(10)) == []
        assert [(entry.position, entry.task_id) for entry in log(ours)] == [(1, "stays")]


class TestOpeningALane:
    def test_after_it_returned_no_commit_lacks_its_effect(self, backend: Backend) -> None:
        """Writers never stop; whatever is not there when it returns commits after it."""
        opener = Ledger(backend.open(), lambda: 0.5)
        writers = [Ledger(backend.open(), lambda: 0.5) for _ in range(4)]
        role_id(backend.open())
        over = threading.Event()

        def write(ledger: Ledger, name: str) -> int:
            count = 0
            while not over.is_set():
                count += 1
                ledger.submit([Spec(f"{name}-{count}", "worker")], {f"{name}-{count}"})
            return count

        with ThreadPoolExecutor(4) as pool:
            done = [pool.submit(write, each, f"w{n}") for n, each in enumerate(writers)]
            between: set[str] = set()
            try:
                for _ in range(4):
                    opener.open_lanes("delivery")
                    before = {entry.task_id for entry in log(opener.store)}
                    grow(opener.store, 20)
                    between |= {entry.task_id for entry in log(opener.store)} - before
                    opener.close_lanes("delivery")
                    grow(opener.store, 20)
            finally:
                over.set()
            total = sum(each.result(60) for each in done)
        announced = opener.store.read(lambda reader: reader.effects("delivery", 10**6))
        names = {entry.event.key: entry.task_id for entry in log(opener.store)}
        assert len(names) == total
        assert len(between) >= 80
        assert between - {names[row.key] for row in announced} == set()
        assert len(announced) < total, "and it was closed now and then"

    def test_it_waits_for_a_writer_that_has_not_committed(self, backend: Backend) -> None:
        ours, theirs = backend.open(), Ledger(backend.open(), lambda: 0.5)
        role, opened = role_id(ours), threading.Event()

        def open_lane() -> None:
            theirs.open_lanes("delivery")
            opened.set()

        with ThreadPoolExecutor(1) as pool:

            def change(tx: Tx) -> Any:
                assert tx.lanes() == {"results"}
                tx.save(Changes(new=[new_row("a", role)]))
                assert tx.keys(["a"])
                opening = pool.submit(open_lane)
                assert not opened.wait(0.3), "what is committed after it must have its effect"
                return opening

            ours.write(change).result(30)
        assert theirs.store.read(lambda reader: reader.lanes()) == {"delivery", "results"}

    def test_a_writer_that_waits_for_it_sees_the_new_lane(
        self, backend: Backend, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its statement has begun, with the old lanes, and waits until the new ones are there."""
        ours, theirs = Ledger(backend.open(), lambda: 0.5), Ledger(backend.open(), lambda: 0.5)
        ours.submit([Spec("before", "worker")], {"before"})
        commit = PostgresTx.commit
        locked = threading.Event()

        def slowly(tx: PostgresTx) -> None:
            if threading.current_thread() is opener:
                tx.next_wake()  # the tables are locked, the lanes are set, nothing is committed
                locked.set()
                somebody_waits(backend.address)
            commit(tx)

        opener = threading.Thread(target=lambda: theirs.open_lanes("delivery"))
        monkeypatch.setattr(PostgresTx, "commit", slowly)
        opener.start()
        assert locked.wait(30)
        ours.submit([Spec("after", "worker")], {"after"})
        opener.join(30)
        key = ours.store.read(lambda reader: reader.keys(["after"]))["after"]
        effects = ours.store.read(lambda reader: reader.effects("delivery", 9))
        assert [row.key for row in effects] == [key]


def grow(store: Store, count: int) -> None:
    """Wait until so many events more have committed."""
    last = store.number_events() + count
    eventually(lambda: store.number_events() >= last, what=f"event {last}")
