"""The store contract: tasks are picked, locked, saved, renewed and forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.limit_rows import ResourceRow
from agentq.contracts.store import (
    CANCELLED,
    COMPLETE,
    FAILED,
    HAS_DEPENDENTS,
    HAS_RESOURCES,
    IN_PROGRESS,
    PENDING,
    READY,
    REVIEW,
    ArtifactRow,
    Changes,
    DedupRow,
    EffectRow,
    HotRow,
    Lease,
    SpecRow,
    Store,
    Tx,
)
from tests.contracts.conftest import Backend
from tests.contracts.rows import (
    ALL_STATES,
    Clock,
    add,
    event_of,
    holders,
    hot,
    ids_of,
    insert,
    log,
    move,
    moved,
    new_row,
    role_id,
    stepped,
    waiting_effects,
)


class TestPick:
    def pick(self, store: Store, role: int, count: int) -> list[str]:
        return ids_of(store.write(lambda tx: tx.pick(role, count)).tasks)

    def test_the_most_urgent_first_then_the_oldest(self, store: Store) -> None:
        role = role_id(store)
        ranks = {"low1": 3, "norm1": 2, "urgent": 0, "norm2": 2, "high": 1, "low2": 3}
        rows = [new_row(name, role, priority=rank) for name, rank in ranks.items()]
        insert(store, *rows)
        assert self.pick(store, role, 10) == ["urgent", "high", "norm1", "norm2", "low1", "low2"]
        assert self.pick(store, role, 2) == ["urgent", "high"]

    @pytest.mark.parametrize("state", [state for state in ALL_STATES if state != READY])
    def test_only_what_is_ready(self, store: Store, state: int) -> None:
        add(store, "a", state=state)
        assert self.pick(store, role_id(store), 5) == []

    def test_only_of_that_role(self, store: Store) -> None:
        add(store, "a")
        assert self.pick(store, role_id(store, "other"), 5) == []

    def test_passes_over_tasks_whose_resources_are_held(self, store: Store) -> None:
        role = role_id(store)
        wants = {"first": ("gpu",), "second": ("db", "gpu"), "third": ("db",), "free": ()}
        keys = insert(
            store,
            *(
                new_row(name, role, flags=HAS_RESOURCES if each else 0, resources=each)
                for name, each in wants.items()
            ),
        )
        assert store.write(lambda tx: tx.hold_resources(keys["first"], [("gpu", 0)]))
        assert self.pick(store, role, 10) == ["third", "free"]
        named = store.write(lambda tx: tx.pick(role, 9, ids=["free", "second", "third"])).tasks
        assert ids_of(named) == ["free", "third"]
        after = store.write(lambda tx: tx.pick(role, 9, after=(2, keys["first"]))).tasks
        assert ids_of(after) == ["third", "free"]
        store.write(lambda tx: tx.save(Changes(released=[keys["first"]])))
        assert self.pick(store, role, 10) == ["first", "second", "third", "free"]

    def test_passes_over_resources_without_a_place_or_a_token(self, backend: Backend) -> None:
        store, now = backend.open(), backend.clock.now
        role = role_id(store)
        names = ("wide", "slow", "later")
        rows = [new_row(each, role, flags=HAS_RESOURCES, resources=(each,)) for each in names]
        keys = insert(store, *rows)
        limits = [
            ResourceRow("wide", 2),
            ResourceRow("slow", 1, "{}", 0, now, now + 5),
            # The clock was set back by more than a minute: the ledger looks at it itself.
            ResourceRow("later", 1, "{}", 0, now + 60_001, now + 60_006),
        ]
        store.write(lambda tx: tx.save(Changes(resources=limits)))
        assert store.read(lambda reader: reader.resources()) == sorted(limits)
        assert store.write(lambda tx: tx.hold_resources(keys["slow"], [("wide", 0)]))
        assert self.pick(store, role, 10) == ["wide", "later"]
        assert store.write(lambda tx: tx.hold_resources(keys["later"], [("wide", 1)]))
        assert self.pick(store, role, 10) == ["later"]
        assert not store.write(lambda tx: tx.hold_resources(keys["wide"], [("wide", 1)]))
        backend.clock.now += 5
        assert self.pick(store, role, 10) == ["slow"]

    def test_the_next_token_is_waited_for_until_it_is_there(self, backend: Backend) -> None:
        store, now = backend.open(), backend.clock.now
        number = role_id(store)
        role = store.write(lambda tx: tx.lock_role(number))
        slow = ResourceRow("slow", 1, "{}", 0, now, now + 9)
        store.write(lambda tx: tx.save(Changes(resources=[slow])))
        assert store.read(lambda reader: reader.next_wake()) == now + 9
        limited = role._replace(rate="{}", level_at=now, next_at=now + 7)
        store.write(lambda tx: tx.save(Changes(roles=[limited])))
        assert store.write(lambda tx: tx.lock_role(role.id)) == limited
        assert store.write(lambda tx: tx.pick(role.id, 9, unless_limited=True)).tasks == []
        assert store.read(lambda reader: reader.next_wake()) == now + 7
        backend.clock.now += 7
        assert store.read(lambda reader: reader.next_wake()) == now + 9
        backend.clock.now += 2
        assert store.read(lambda reader: reader.next_wake()) == 0

    def test_a_held_resource_does_not_use_up_the_count(self, store: Store) -> None:
        role = role_id(store)
        rows = [
            new_row(f"held{n}", role, flags=HAS_RESOURCES, resources=("gpu",)) for n in range(5)
        ]
        keys = insert(store, *rows, new_row("free", role))
        assert store.write(lambda tx: tx.hold_resources(keys["held0"], [("gpu", 0)]))
        assert self.pick(store, role, 1) == ["free"]

    def test_these_very_tasks_in_this_order(self, store: Store) -> None:
        role, other = role_id(store), role_id(store, "other")
        keys = add(store, *"abcd")
        insert(store, new_row("elsewhere", other))
        move(store, [keys["d"]], IN_PROGRESS, holder="w", wake_at=9)
        asked = ["c", "elsewhere", "unknown", "d", "a"]
        row, until, tasks = store.write(lambda tx: tx.pick(role, 9, ids=asked))
        assert (row.id, row.name, until, ids_of(tasks)) == (role, "worker", 0, ["c", "a"])
        assert store.write(lambda tx: tx.pick(role, 9, ids=[])).tasks == []

    def test_after_a_task(self, store: Store) -> None:
        role = role_id(store)
        ranks = {"c": 2, "a": 0, "b": 1, "d": 2}
        keys = insert(store, *(new_row(name, role, priority=rank) for name, rank in ranks.items()))

        def after(name: str, count: int = 10) -> list[str]:
            place = ranks[name], keys[name]
            return ids_of(store.write(lambda tx: tx.pick(role, count, after=place)).tasks)

        assert after("a") == ["b", "c", "d"]
        assert after("b", 1) == ["c"]
        assert after("d") == []

    @pytest.mark.parametrize(
        "limit", [{"paused": 1}, {"max_running": 9}, {"max_review": 9}, {"daily": '{"usd":5.0}'}]
    )
    def test_none_of_a_limited_role_unless_asked_for(
        self, store: Store, limit: dict[str, Any]
    ) -> None:
        add(store, "a")
        role = role_id(store)
        row = store.write(lambda tx: tx.lock_role(role))
        free = store.write(lambda tx: tx.pick(role, 9, unless_limited=True))
        assert (free.role, ids_of(free.tasks)) == (row, ["a"])
        limited = row._replace(**limit)
        store.write(lambda tx: tx.save(Changes(roles=[limited])))
        assert store.write(lambda tx: tx.pick(role, 9, unless_limited=True)) == (limited, 0, [])
        assert ids_of(store.write(lambda tx: tx.pick(role, 9)).tasks) == ["a"]


class TestDue:
    def test_those_whose_moment_has_come_earliest_first(self, store: Store) -> None:
        role = role_id(store)
        wakes = {"late": 30, "none": 0, "early": 10, "next": 20, "edge": 25, "also": 10}
        rows = [new_row(name, role, wake_at=at) for name, at in wakes.items()]
        insert(store, *rows)
        assert ids_of(store.write(lambda tx: tx.due(25, 10))) == ["early", "also", "next", "edge"]
        assert ids_of(store.write(lambda tx: tx.due(25, 2))) == ["early", "also"]
        assert store.write(lambda tx: tx.due(9, 10)) == []

    @pytest.mark.parametrize("state", ALL_STATES)
    def test_in_whatever_state(self, store: Store, state: int) -> None:
        add(store, "a", state=state, wake_at=5)
        assert ids_of(store.write(lambda tx: tx.due(5, 1))) == ["a"]
        assert store.read(lambda reader: reader.next_wake()) == 5

    def test_the_next_moment(self, store: Store) -> None:
        assert store.read(lambda reader: reader.next_wake()) == 0
        add(store, "a", wake_at=50)
        add(store, "b", wake_at=40)
        add(store, "c")
        assert store.read(lambda reader: reader.next_wake()) == 40


class TestLockAndSave:
    def test_locking_gives_the_rows_by_ascending_key(self, store: Store) -> None:
        keys = add(store, "a", "b", "c")
        wanted = [keys["c"], 10**9, keys["a"]]
        locked = store.write(lambda tx: tx.lock(wanted))
        assert [row.key for row in locked] == [keys["a"], keys["c"]]
        assert store.write(lambda tx: tx.lock([keys["b"]]))[0].key == keys["b"]
        assert store.write(lambda tx: tx.lock([])) == []

    def test_locking_gives_what_never_changes_as_well_if_asked(self, store: Store) -> None:
        keys = add(store, "a", "b", "c")
        wanted = [keys["c"], 10**9, keys["a"]]
        specs: dict[int, SpecRow] = {}
        locked = store.write(lambda tx: tx.lock(wanted, specs))
        both = {row.hot.key: row for row in store.read(lambda reader: reader.tasks(wanted))}
        assert locked == [both[keys["a"]].hot, both[keys["c"]].hot]
        assert specs == {key: row.spec for key, row in both.items()}
        assert store.write(lambda tx: tx.lock([], specs)) == []

    def test_tasks_are_found_by_key_and_by_id(self, store: Store) -> None:
        keys = add(store, "a", "b")
        by_key = store.read(lambda reader: reader.tasks([keys["b"], 10**9]))
        assert [row.hot.key for row in by_key] == [keys["b"]]
        assert store.read(lambda reader: reader.tasks(ids=["b", "nobody"])) == by_key
        assert store.read(lambda reader: reader.tasks(ids=["nobody"])) == []

    def test_every_field_is_saved(self, store: Store) -> None:
        key = add(store, "a")["a"]
        after = HotRow(key, REVIEW, 2, 3, 44, 55, "bob", '{"x":1}', HAS_DEPENDENTS, "ab")

        def change(tx: Tx) -> None:
            tx.lock([key])
            tx.save(Changes(tasks=[after], events=[event_of(after, data="d")]))

        store.write(change)
        assert hot(store, key) == after
        assert log(store)[-1].event == event_of(after, data="d")

    def test_events_follow_in_the_order_given(self, store: Store) -> None:
        keys = add(store, "a", "b")

        def change(tx: Tx) -> None:
            a, b = tx.lock(list(keys.values()))
            a2, b2 = moved(a, IN_PROGRESS), moved(b, IN_PROGRESS)
            a3 = moved(a2, COMPLETE)
            events = [event_of(a2), event_of(b2), event_of(a3)]
            tx.save(Changes(tasks=[a3, b2], events=events))

        store.write(change)
        order = [(e.position, e.task_id, e.event.version) for e in log(store)[2:]]
        assert order == [(3, "a", 2), (4, "b", 2), (5, "a", 3)]
        of_a = store.read(lambda reader: reader.history(keys["a"]))
        assert [(e.position, e.event.version) for e in of_a] == [(1, 1), (3, 2), (5, 3)]

    def test_insert_and_save_in_one_transaction(self, store: Store) -> None:
        old = add(store, "old")["old"]
        role = role_id(store)

        def change(tx: Tx) -> None:
            row = moved(tx.lock([old])[0], COMPLETE)
            new = new_row("new", role, after=("old",), effects=((0, "results", "x"),))
            tx.save(Changes(new=[new], tasks=[row], events=[event_of(row)]))

        store.write(change)
        assert [(e.position, e.task_id, e.event.version) for e in log(store)] == [
            (1, "old", 1),
            (2, "new", 1),
            (3, "old", 2),
        ]
        new = store.read(lambda reader: reader.keys(["new"]))["new"]
        assert store.read(lambda reader: reader.edges_of([old])) == [(old, new)]
        (effect,) = store.read(lambda reader: reader.effects("results", 9))
        assert effect.effect_id == f"{new}.1.0"

    def test_a_transaction_sees_what_it_wrote(self, store: Store) -> None:
        role = role_id(store)

        def change(tx: Tx) -> tuple[int, list[int]]:
            tx.save(Changes(new=[new_row("a", role)]))
            key = tx.keys(["a"])["a"]
            row = moved(tx.lock([key])[0], IN_PROGRESS, holder="me", wake_at=9)
            tx.save(stepped(row))
            versions = [entry.event.version for entry in tx.history(key)]
            return tx.tasks([key])[0].hot.state, versions

        assert store.write(change) == (IN_PROGRESS, [1, 2])
        assert store.number_events() == 2

    def test_a_step_is_saved_over_the_version_it_was_decided_on(self, store: Store) -> None:
        """Twice in one transaction: the second step follows the first."""
        key = add(store, "a")["a"]

        def change(tx: Tx) -> None:
            first = moved(tx.lock([key])[0], IN_PROGRESS, holder="me", wake_at=9)
            tx.save(stepped(first))
            tx.save(stepped(moved(first, COMPLETE)))

        store.write(change)
        assert hot(store, key)[:4] == (key, COMPLETE, 3, 1)
        assert [entry.event.version for entry in log(store)] == [1, 2, 3]

    def test_a_history_is_complete_before_anybody_numbers_it(self, store: Store) -> None:
        keys = add(store, "a", "b")
        move(store, keys.values(), IN_PROGRESS, wake_at=9)
        before = store.read(lambda reader: reader.history(keys["a"]))
        assert [(entry.task_id, entry.event.version) for entry in before] == [("a", 1), ("a", 2)]
        assert store.number_events() == 4
        after = store.read(lambda reader: reader.history(keys["a"]))
        assert [entry.position for entry in after] == [1, 3]
        assert [entry.event for entry in after] == [entry.event for entry in before]
        assert store.read(lambda reader: reader.history(10**9)) == []

    def test_histories_of_many_tasks_at_once(self, store: Store) -> None:
        keys = add(store, "a", "b", "c")
        move(store, [keys["b"], keys["a"]], IN_PROGRESS, wake_at=9)
        both = store.read(lambda reader: reader.history(keys["b"], 10**9, keys["a"]))
        order = [(entry.task_id, entry.event.version) for entry in both]
        assert order == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
        assert store.read(lambda reader: reader.history()) == []

    def test_reading_the_log_in_pages(self, store: Store) -> None:
        add(store, *"abcde")
        assert store.number_events() == 5
        assert [e.task_id for e in store.read(lambda r: r.events_after(1, 2))] == ["b", "c"]
        assert store.read(lambda r: r.events_after(5, 2)) == []

    def test_occupancy_counts_running_and_stopping_and_review(self, store: Store) -> None:
        keys = add(store, *"abcdef")
        role = role_id(store)
        assert store.read(lambda reader: reader.occupancy(role)) == (0, 0, 0)
        move(store, [keys["a"], keys["b"]], IN_PROGRESS, holder="w", wake_at=10)
        move(store, [keys["c"]], REVIEW)
        move(store, [keys["d"]], CANCELLED, holder="w", wake_at=10)
        move(store, [keys["e"]], CANCELLED)
        assert store.read(lambda reader: reader.occupancy(role)) == (3, 1, 0)


class TestRenew:
    def test_extends_the_lease_by_the_stores_clock(self, store: Store, clock: Clock) -> None:
        keys = add(store, "a", "b")
        move(store, keys.values(), IN_PROGRESS, holder="w", wake_at=5)
        before = hot(store, keys["a"])
        clock.now = 2_000_000
        leases = [Lease(keys["a"], 1, 500), Lease(keys["b"], 1, 900)]
        assert store.write(lambda tx: tx.renew(leases)) == set(keys.values())
        assert hot(store, keys["a"]) == before._replace(wake_at=2_000_500)
        assert hot(store, keys["b"]).wake_at == 2_000_900

    def test_only_for_the_epoch_that_holds_it(self, store: Store) -> None:
        keys = add(store, "held", "stale", "ready", "done", "stopping")
        move(store, [keys["held"], keys["stale"], keys["stopping"]], IN_PROGRESS, wake_at=5)
        move(store, [keys["done"]], COMPLETE)
        move(store, [keys["stopping"]], CANCELLED, holder="w", wake_at=5)
        before = [hot(store, keys[name]) for name in ("stale", "ready", "done", "stopping")]
        leases = [
            Lease(keys["held"], 1, 100),
            Lease(keys["stale"], 2, 100),
            Lease(keys["ready"], 0, 100),
            Lease(keys["done"], 0, 100),
            Lease(keys["stopping"], 1, 100),
            Lease(10**9, 1, 100),
        ]
        assert store.write(lambda tx: tx.renew(leases)) == {keys["held"]}
        assert [hot(store, keys[name]) for name in ("stale", "ready", "done", "stopping")] == before
        assert store.write(lambda tx: tx.renew([])) == set()

    def test_writes_no_event(self, store: Store) -> None:
        key = add(store, "a")["a"]
        move(store, [key], IN_PROGRESS, wake_at=5)
        before = store.number_events()
        store.write(lambda tx: tx.renew([Lease(key, 1, 100)]))
        assert store.number_events() == before
        assert hot(store, key).version == 2


class TestDelete:
    def test_what_may_be_pruned(self, store: Store) -> None:
        keys = add(store, "live", "old", "held", "owed", "new")
        move(store, [keys["old"], keys["owed"], keys["new"]], COMPLETE)
        move(store, [keys["held"]], CANCELLED, holder="w", wake_at=3)
        effect = EffectRow(keys["owed"], 2, 0, "results", "x")
        store.write(lambda tx: tx.save(Changes(effects=[effect])))

        def touch(tx: Tx) -> None:
            fresh = tx.lock([keys["new"]])[0]._replace(updated_at=2_000_000, version=3)
            tx.save(stepped(fresh))

        store.write(touch)

        def prunable(before: int, after_key: int = 0, limit: int = 10) -> list[int]:
            return store.read(lambda reader: reader.prunable(before, limit, after_key=after_key))

        assert prunable(1_500_000) == [keys["old"]]
        assert prunable(3_000_000) == [keys["old"], keys["new"]]
        assert prunable(3_000_000, limit=1) == [keys["old"]]
        assert prunable(3_000_000, after_key=keys["old"]) == [keys["new"]]
        assert prunable(1_000_000) == []

    def test_everything_about_it_goes_but_dedup(self, store: Store) -> None:
        role = role_id(store)
        keys = insert(
            store,
            new_row("a", role, flags=HAS_RESOURCES, resources=("gpu",)),
            new_row("b", role, after=("a",)),
        )
        a, b = keys["a"], keys["b"]
        remembered = DedupRow("key:x", "a", "digest", PENDING, 10**15)
        other = DedupRow("key:y", "b", "other", PENDING, 10**15)

        def fill(tx: Tx) -> None:
            assert tx.hold_resources(a, [("gpu", 0)])
            row = moved(tx.lock([a])[0], FAILED)
            tx.save(
                Changes(
                    tasks=[row],
                    events=[event_of(row)],
                    effects=[EffectRow(a, 2, 0, "results", "x")],
                    artifacts=[ArtifactRow(a, 1, "n", 1, "s", "m", 1)],
                    dedup=[remembered, other],
                )
            )

        store.write(fill)
        store.write(lambda tx: tx.delete([a]))
        with_b = store.read(lambda reader: reader.tasks([a, b]))
        assert ids_of(with_b) == ["b"]
        assert [entry.task_id for entry in log(store)] == ["b"]
        assert store.read(lambda reader: reader.history(a)) == []
        assert store.read(waiting_effects) == {}
        assert holders(store, "gpu") == {"gpu": []}
        assert store.read(lambda reader: reader.artifacts_of(a)) == []
        assert store.read(lambda reader: reader.edges_of([a, b])) == []
        assert store.read(lambda reader: reader.orphan_rows(10)) == []
        assert store.write(lambda tx: tx.dedup_records(["key:x", "key:y"])) == {
            "key:x": remembered._replace(state=FAILED),  # how it ended is kept beside its name
            "key:y": other,
        }

    def test_neither_keys_nor_positions_are_used_again(self, store: Store) -> None:
        keys = add(store, "a", "b")
        assert store.number_events() == 2
        store.write(lambda tx: tx.delete(list(keys.values())))
        assert store.number_events() == 2
        assert add(store, "c")["c"] > max(keys.values())
        assert [entry.position for entry in log(store)] == [3]
