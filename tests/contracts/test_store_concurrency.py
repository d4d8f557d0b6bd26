"""The store contract under many hands: nothing twice, nothing lost, one order for everybody."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from agentq.contracts.store import COMPLETE, IN_PROGRESS, LogRow, Store, Tx
from agentq.core.limits import KeyLimits, RoleLimits
from agentq.core.rates import Rate
from agentq.core.task import Spec
from agentq.ledger.ledger import Ledger
from tests.contracts.busy import Race, open_and_close, work
from tests.contracts.conftest import Backend, open_store
from tests.contracts.rows import (
    add,
    hot,
    ids_of,
    log,
    move,
    moved,
    role_id,
    stepped,
)

T = TypeVar("T")


def together(count: int, action: Callable[[int], T]) -> list[T]:
    """Run an action in that many threads, all starting at once."""
    barrier = threading.Barrier(count)

    def run(number: int) -> T:
        barrier.wait(30)
        return action(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class TestOrder:
    def test_a_follower_sees_every_event_once_in_the_order_of_commits(
        self, shared: Backend, session_seed: int
    ) -> None:
        """Four processes write; a fifth reads what is new, over and over, and never looks back."""
        store = shared.open()
        role_id(store)
        seen: list[LogRow] = []
        arguments = [(shared.address, f"w{n}", 12, session_seed + n) for n in range(4)]
        with Race(work, arguments) as writers:
            while True:
                # Asked before reading: what they have committed by now, this read must see.
                over = writers.over
                news = self.after(store, seen[-1].position if seen else 0)
                seen += news
                if over and not news:
                    break
            submitted = sum(writers.results())
        assert [entry.position for entry in seen] == list(range(1, len(seen) + 1))
        assert store.number_events() == len(seen)
        versions: dict[str, int] = {}
        for entry in seen:
            assert entry.event.version == versions.get(entry.task_id, 0) + 1
            versions[entry.task_id] = entry.event.version
        assert len(versions) == submitted
        assert seen == log(store)
        ledger = Ledger(store, lambda: 0.5)
        assert [problems for _, problems in ledger.queries.verify() if problems] == []

    def after(self, store: Store, position: int) -> list[LogRow]:
        store.number_events()
        return store.read(lambda reader: reader.events_after(position, 100))

    def test_threads_of_one_process(self, backend: Backend) -> None:
        store = backend.open()
        role_id(store)
        together(6, lambda n: [add(store, f"{n}-{each}") for each in range(10)])
        entries = log(store)
        assert [entry.position for entry in entries] == list(range(1, 61))
        for n in range(6):
            mine = [e.task_id for e in entries if e.task_id.startswith(f"{n}-")]
            assert mine == [f"{n}-{each}" for each in range(10)]


class TestPicking:
    def test_nothing_is_picked_twice(self, backend: Backend) -> None:
        first = backend.open()
        add(first, *[f"t{n}" for n in range(200)])
        role = role_id(first)
        stores = [backend.open() if backend.shared else first for _ in range(8)]

        def take(store: Store) -> list[str]:
            def change(tx: Tx) -> list[str]:
                rows = tx.pick(role, 7).tasks
                assert len(rows) <= 7
                after = [moved(row.hot, IN_PROGRESS, holder="w", wake_at=9) for row in rows]
                tx.save(stepped(*after))
                return ids_of(rows)

            taken = []
            while batch := store.write(change):
                taken += batch
            return taken

        shares = together(8, lambda n: take(stores[n]))
        counted = Counter(name for share in shares for name in share)
        assert len(counted) == 200 and max(counted.values()) == 1

    @pytest.mark.parametrize("verb", ["pick", "due"])
    def test_what_another_has_locked_is_passed_over(
        self, postgres_ledger_url: str, verb: str
    ) -> None:
        """Only where writers do not take turns: SQLite has nothing to pass over."""
        backend = Backend("postgres", postgres_ledger_url)
        ours, theirs = backend.open(), backend.open()
        add(ours, "a", "b", "c", wake_at=5)
        role = role_id(ours)

        def pick(tx: Tx, count: int) -> list[str]:
            return ids_of(tx.pick(role, count).tasks if verb == "pick" else tx.due(9, count))

        def change(tx: Tx) -> tuple[list[str], list[str]]:
            return pick(tx, 2), theirs.write(lambda other: pick(other, 2))

        assert ours.write(change) == (["a", "b"], ["c"])
        backend.close()


class TestNames:
    def test_one_idempotency_key_is_one_task(self, shared: Backend) -> None:
        ledgers = [Ledger(shared.open(), lambda: 0.5) for _ in range(8)]

        def submit(n: int) -> tuple[str, bool]:
            spec = Spec(f"task-{n}", "worker", idempotency_key="deploy-42")
            (done,) = ledgers[n].submit([spec], {spec.id})
            return done.task.id, done.created

        answers = together(8, submit)
        assert len({task_id for task_id, _ in answers}) == 1
        assert sum(created for _, created in answers) == 1
        assert len(log(ledgers[0].store)) == 1

    def test_one_id_is_one_task(self, shared: Backend) -> None:
        ledgers = [Ledger(shared.open(), lambda: 0.5) for _ in range(8)]

        def submit(n: int) -> bool:
            (done,) = ledgers[n].submit([Spec("mine", "worker")])
            return done.created

        assert sum(together(8, submit)) == 1
        assert len(log(ledgers[0].store)) == 1

    def test_batches_that_overlap_in_opposite_orders(self, shared: Backend) -> None:
        ledgers = [Ledger(shared.open(), lambda: 0.5) for _ in range(6)]
        ids = [f"task-{n}" for n in range(40)]

        def submit(n: int) -> int:
            order = ids if n % 2 else ids[::-1]
            done = ledgers[n].submit([Spec(each, "worker") for each in order])
            return sum(each.created for each in done)

        assert sum(together(6, submit)) == 40
        assert len(log(ledgers[0].store)) == 40

    def test_a_new_role_has_one_id(self, shared: Backend) -> None:
        stores = [shared.open() for _ in range(8)]
        answers = together(8, lambda n: stores[n].role_ids(["fresh", f"own-{n}"]))
        assert len({answer["fresh"] for answer in answers}) == 1
        assert len({answer[f"own-{n}"] for n, answer in enumerate(answers)}) == 8


class TestLimits:
    def test_a_role_never_runs_more_than_it_may(self, shared: Backend) -> None:
        ledgers = [Ledger(shared.open(), lambda: 0.5) for _ in range(6)]
        ledgers[0].submit([Spec(f"task-{n}", "worker") for n in range(60)])
        ledgers[0].set_limits("worker", RoleLimits(max_running=4))
        held = together(6, lambda n: ledgers[n].claim("worker", 3, f"w{n}"))
        assert sum(len(each) for each in held) == 4

    def test_a_resource_has_one_holder(self, shared: Backend) -> None:
        ledgers = [Ledger(shared.open(), lambda: 0.5) for _ in range(6)]
        specs = [
            Spec(f"task-{n}", "worker", resources=("db", "gpu") if n % 2 else ("gpu",))
            for n in range(12)
        ]
        ledgers[0].submit(specs)
        held = together(6, lambda n: ledgers[n].claim("worker", 3, f"w{n}"))
        assert sum(len(each) for each in held) == 1

    def test_a_resource_has_no_more_holders_than_places(self, shared: Backend) -> None:
        ledgers = [Ledger(shared.open(), lambda: 0.5) for _ in range(6)]
        ledgers[0].submit([Spec(f"task-{n}", "worker", resources=("gpu",)) for n in range(30)])
        ledgers[0].set_key_limits("gpu", KeyLimits(max_held=3))
        held = together(6, lambda n: ledgers[n].claim("worker", 2, f"w{n}"))
        assert sum(len(each) for each in held) == 3
        (row,) = ledgers[0].store.read(lambda reader: reader.resources(["gpu"]))
        assert [place for place, _ in row.holders] == [0, 1, 2]

    @pytest.mark.parametrize("whose", ["role", "resource"])
    def test_no_more_start_than_there_are_tokens(self, shared: Backend, whose: str) -> None:
        ledgers = [Ledger(shared.open(), lambda: 0.5) for _ in range(6)]
        ledgers[0].submit(
            [Spec(f"task-{n}", "worker", resources=(f"r{n}", "gpu")) for n in range(30)]
        )
        if whose == "role":
            ledgers[0].set_key_limits("gpu", KeyLimits(max_held=100))
            ledgers[0].set_limits("worker", RoleLimits(rate=Rate(4, 60)))
        else:
            ledgers[0].set_key_limits("gpu", KeyLimits(max_held=100, rate=Rate(4, 60)))
        held = together(6, lambda n: ledgers[n].claim("worker", 3, f"w{n}"))
        assert sum(len(each) for each in held) == 4
        shared.clock.now += 15_000
        held = together(6, lambda n: ledgers[n].claim("worker", 3, f"w{n}"))
        assert sum(len(each) for each in held) == 1, "the fourth part of a minute has passed"

    def test_crossing_locks_are_untangled(self, postgres_ledger_url: str) -> None:
        """Each has what the other wants: PostgreSQL ends one of them, and it is run again."""
        backend = Backend("postgres", postgres_ledger_url)
        stores = [backend.open(), backend.open()]
        keys = sorted(add(stores[0], "a", "b").values())
        meeting = threading.Barrier(2)
        runs: Counter[int] = Counter()

        def cross(n: int) -> None:
            def change(tx: Tx) -> None:
                runs[n] += 1
                first = tx.lock([keys[n]])
                if runs[n] == 1:
                    meeting.wait(30)
                both = [moved(row, IN_PROGRESS) for row in first + tx.lock([keys[1 - n]])]
                tx.save(stepped(*both))

            stores[n].write(change)

        together(2, cross)
        assert sorted(runs.values()) == [1, 2]
        assert [hot(stores[0], key).version for key in keys] == [3, 3]
        assert [entry.position for entry in log(stores[0])] == [1, 2, 3, 4, 5, 6]
        backend.close()


class TestOpening:
    @pytest.fixture
    def database_url(self, fresh_postgres_url: str) -> str:
        """Nothing is in it yet."""
        return fresh_postgres_url

    @pytest.mark.parametrize("processes", [3, pytest.param(8, marks=pytest.mark.long)])
    def test_processes_create_one_ledger(self, shared: Backend, processes: int) -> None:
        with Race(open_and_close, [(shared.address,)] * processes) as openers:
            versions = set(openers.results())
        assert len(versions) == 1 and versions != {0}
        store = open_store(shared.address)
        assert add(store, "first") and move(store, [1], COMPLETE)
        store.close()
