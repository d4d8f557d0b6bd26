"""The store contract: tasks come in, are found, picked, locked, saved and forgotten."""

from __future__ import annotations

import pytest

from agentq.contracts.store import (
    BLOCKED,
    CANCELLED,
    COMPLETE,
    FAILED,
    HAS_DEPENDENTS,
    HAS_RESOURCES,
    IN_PROGRESS,
    PENDING,
    READY,
    REVIEW,
    DedupRow,
    EffectRow,
    Filter,
    HotRow,
    Lease,
    Store,
    Tx,
)
from tests.contracts.rows import (
    ALL_STATES,
    Clock,
    add,
    event_of,
    hot,
    ids_of,
    log,
    move,
    moved,
    new_row,
    role_id,
)


class TestFinding:
    def test_by_the_start_of_an_id(self, store: Store) -> None:
        add(store, "task-b1", "task-a", "task-b2", "task-B", "task-b10", "other")
        starting = store.read(lambda reader: reader.ids_starting("task-b", 10))
        assert starting == ["task-b1", "task-b10", "task-b2"]
        assert store.read(lambda reader: reader.ids_starting("task-", 2)) == ["task-B", "task-a"]
        assert store.read(lambda reader: reader.ids_starting("none", 2)) == []

    def test_in_the_order_asked_for_without_the_unknown(self, store: Store) -> None:
        keys = add(store, "a", "b", "c")
        wanted = [keys["c"], 10**9, keys["a"]]
        assert ids_of(store.read(lambda reader: reader.tasks(wanted))) == ["c", "a"]
        assert store.read(lambda reader: reader.tasks([])) == []

    def test_walking_all_keys(self, store: Store) -> None:
        keys = sorted(add(store, "a", "b", "c").values())
        assert store.read(lambda reader: reader.keys_after(0, 2)) == keys[:2]
        assert store.read(lambda reader: reader.keys_after(keys[1], 2)) == keys[2:]

    def test_counts_by_role_and_state(self, store: Store) -> None:
        keys = add(store, "a", "b", "c")
        other = role_id(store, "a-role")
        store.write(lambda tx: tx.insert([new_row("d", other, at=77)]))
        move(store, [keys["a"]], COMPLETE)
        assert store.read(lambda reader: reader.counts()) == [
            ("a-role", READY, 1),
            ("worker", READY, 2),
            ("worker", COMPLETE, 1),
        ]
        assert store.read(lambda reader: reader.oldest_ready()) == [
            ("a-role", 77),
            ("worker", 1_000_000),
        ]

    def test_how_many_would_be_picked_before(self, store: Store) -> None:
        role = role_id(store)
        ranks = {"low": 3, "urgent": 0, "first": 2, "second": 2}
        rows = [new_row(name, role, priority=rank) for name, rank in ranks.items()]
        keys = store.write(lambda tx: tx.insert(rows))
        move(store, add(store, "running").values(), IN_PROGRESS)
        other = role_id(store, "other")
        store.write(lambda tx: tx.insert([new_row("elsewhere", other, priority=0)]))

        def ahead(name: str) -> int:
            return store.read(lambda reader: reader.ahead(role, ranks[name], keys[name]))

        assert {name: ahead(name) for name in ranks} == {
            "urgent": 0,
            "first": 1,
            "second": 2,
            "low": 3,
        }

    def test_nothing_is_only_half_there(self, store: Store) -> None:
        add(store, "a", "b")
        assert store.read(lambda reader: reader.halves(10)) == []


class TestListing:
    def test_newest_first_in_pages(self, store: Store) -> None:
        keys = add(store, *"abcde")
        first = store.read(lambda reader: reader.list_tasks(Filter(limit=2)))
        assert ids_of(first) == ["e", "d"]
        rest = Filter(before_key=keys["d"], limit=9)
        assert ids_of(store.read(lambda reader: reader.list_tasks(rest))) == ["c", "b", "a"]

    def test_by_state_and_role(self, store: Store) -> None:
        keys = add(store, *"abc")
        other = role_id(store, "other")
        store.write(lambda tx: tx.insert([new_row("d", other)]))
        move(store, [keys["b"]], FAILED)

        def listed(wanted: Filter) -> list[str]:
            return ids_of(store.read(lambda reader: reader.list_tasks(wanted)))

        assert listed(Filter(states=(READY,))) == ["d", "c", "a"]
        assert listed(Filter(states=(FAILED, BLOCKED))) == ["b"]
        assert listed(Filter(states=(READY,), role=role_id(store))) == ["c", "a"]
        assert listed(Filter(role=-1)) == []

    def test_by_what_the_spec_says(self, store: Store) -> None:
        role = role_id(store)
        bodies: list[dict[str, object]] = [
            {},
            {"sender": "lead", "labels": {"area": "db", "size": "s"}},
            {"type": "review", "labels": {"area": "web"}, "extra": {"raw": "\x00"}},
        ]
        rows = [new_row(f"t{n}", role, body=body) for n, body in enumerate(bodies)]
        store.write(lambda tx: tx.insert(rows))

        def listed(wanted: Filter) -> list[str]:
            return ids_of(store.read(lambda reader: reader.list_tasks(wanted)))

        assert listed(Filter(sender="lead")) == ["t1"]
        assert listed(Filter(sender="coordinator")) == [
            "t2",
            "t0",
        ]  # the default of the sparse spec
        assert listed(Filter(type="review")) == ["t2"]
        assert listed(Filter(type="task")) == ["t1", "t0"]
        assert listed(Filter(labels=(("area", "db"),))) == ["t1"]
        assert listed(Filter(labels=(("area", "db"), ("size", "s")))) == ["t1"]
        assert listed(Filter(labels=(("area", "db"), ("size", "l")))) == []
        assert listed(Filter(labels=(("area", "db"), ("area", "web")))) == []
        assert listed(Filter(labels=(("nope", ""),))) == []


class TestPick:
    def pick(self, store: Store, role: int, count: int) -> list[str]:
        return ids_of(store.write(lambda tx: tx.pick(role, count)))

    def test_the_most_urgent_first_then_the_oldest(self, store: Store) -> None:
        role = role_id(store)
        ranks = {"low1": 3, "norm1": 2, "urgent": 0, "norm2": 2, "high": 1, "low2": 3}
        rows = [new_row(name, role, priority=rank) for name, rank in ranks.items()]
        store.write(lambda tx: tx.insert(rows))
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
        rows = [new_row(name, role, flags=HAS_RESOURCES if name != "free" else 0)
                for name in ("first", "second", "third", "free")]  # fmt: skip

        def prepare(tx: Tx) -> dict[str, int]:
            keys = tx.insert(rows)
            tx.want(keys["first"], ["gpu"])
            tx.want(keys["second"], ["db", "gpu"])
            tx.want(keys["third"], ["db"])
            assert tx.hold(keys["first"], ["gpu"])
            return keys

        keys = store.write(prepare)
        assert self.pick(store, role, 10) == ["third", "free"]
        store.write(lambda tx: tx.unhold([keys["first"]]))
        assert self.pick(store, role, 10) == ["first", "second", "third", "free"]

    def test_a_held_resource_does_not_use_up_the_count(self, store: Store) -> None:
        role = role_id(store)

        def prepare(tx: Tx) -> None:
            keys = tx.insert([new_row(f"held{n}", role, flags=HAS_RESOURCES) for n in range(5)])
            tx.insert([new_row("free", role)])
            for key in keys.values():
                tx.want(key, ["gpu"])
            tx.hold(keys["held0"], ["gpu"])

        store.write(prepare)
        assert self.pick(store, role, 1) == ["free"]


class TestDue:
    def test_those_whose_moment_has_come_earliest_first(self, store: Store) -> None:
        role = role_id(store)
        wakes = {"late": 30, "none": 0, "early": 10, "next": 20, "edge": 25, "also": 10}
        rows = [new_row(name, role, wake_at=at) for name, at in wakes.items()]
        store.write(lambda tx: tx.insert(rows))
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

    def test_every_field_is_saved(self, store: Store) -> None:
        key = add(store, "a")["a"]
        after = HotRow(key, REVIEW, 2, 3, 44, 55, "bob", '{"x":1}', HAS_DEPENDENTS)

        def change(tx: Tx) -> None:
            tx.lock([key])
            tx.save([after], [event_of(after, data="d")], [])

        store.write(change)
        assert hot(store, key) == after
        assert log(store)[-1].event == event_of(after, data="d")

    def test_events_follow_in_the_order_given(self, store: Store) -> None:
        keys = add(store, "a", "b")

        def change(tx: Tx) -> None:
            a, b = tx.lock(list(keys.values()))
            a2, b2 = moved(a, IN_PROGRESS), moved(b, IN_PROGRESS)
            a3 = moved(a2, COMPLETE)
            tx.save([a3, b2], [event_of(a2), event_of(b2), event_of(a3)], [])

        store.write(change)
        order = [(e.position, e.task_id, e.event.version) for e in log(store)[2:]]
        assert order == [(3, "a", 2), (4, "b", 2), (5, "a", 3)]
        of_a = store.read(lambda reader: reader.events_of(keys["a"]))
        assert [(e.position, e.event.version) for e in of_a] == [(1, 1), (3, 2), (5, 3)]

    def test_insert_and_save_in_one_transaction(self, store: Store) -> None:
        old = add(store, "old")["old"]
        role = role_id(store)

        def change(tx: Tx) -> None:
            row = moved(tx.lock([old])[0], COMPLETE)
            new = tx.insert([new_row("new", role)])["new"]
            tx.save([row], [event_of(row)], [EffectRow(new, 1, 0, "results", "x")])

        store.write(change)
        assert [(e.position, e.task_id, e.event.version) for e in log(store)] == [
            (1, "old", 1),
            (2, "new", 1),
            (3, "old", 2),
        ]

    def test_a_transaction_sees_what_it_wrote(self, store: Store) -> None:
        role = role_id(store)

        def change(tx: Tx) -> tuple[int, list[int], int]:
            key = tx.insert([new_row("a", role)])["a"]
            row = moved(tx.lock([key])[0], IN_PROGRESS, holder="me", wake_at=9)
            tx.save([row], [event_of(row)], [])
            versions = [entry.event.version for entry in tx.events_of(key)]
            return tx.tasks([key])[0].hot.state, versions, tx.last_position()

        assert store.write(change) == (IN_PROGRESS, [1, 2], 2)

    def test_reading_the_log_in_pages(self, store: Store) -> None:
        add(store, *"abcde")
        assert [e.task_id for e in store.read(lambda r: r.events_after(1, 2))] == ["b", "c"]
        assert store.read(lambda r: r.events_after(5, 2)) == []

    def test_occupancy_counts_running_and_stopping_and_review(self, store: Store) -> None:
        keys = add(store, *"abcdef")
        role = role_id(store)
        assert store.read(lambda reader: reader.occupancy(role)) == (0, 0)
        move(store, [keys["a"], keys["b"]], IN_PROGRESS, holder="w", wake_at=10)
        move(store, [keys["c"]], REVIEW)
        move(store, [keys["d"]], CANCELLED, holder="w", wake_at=10)
        move(store, [keys["e"]], CANCELLED)
        assert store.read(lambda reader: reader.occupancy(role)) == (3, 1)


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
        before = store.read(lambda reader: reader.last_position())
        store.write(lambda tx: tx.renew([Lease(key, 1, 100)]))
        assert store.read(lambda reader: reader.last_position()) == before


class TestDelete:
    def test_what_may_be_pruned(self, store: Store) -> None:
        keys = add(store, "live", "old", "held", "owed", "new")
        move(store, [keys["old"], keys["owed"], keys["new"]], COMPLETE)
        move(store, [keys["held"]], CANCELLED, holder="w", wake_at=3)
        effect = EffectRow(keys["owed"], 2, 0, "results", "x")
        store.write(lambda tx: tx.save([], [], [effect]))

        def touch(tx: Tx) -> None:
            fresh = tx.lock([keys["new"]])[0]._replace(updated_at=2_000_000, version=3)
            tx.save([fresh], [event_of(fresh)], [])

        store.write(touch)

        def prunable(before: int, after_key: int = 0, limit: int = 10) -> list[int]:
            return store.read(lambda reader: reader.prunable(before, after_key, limit))

        assert prunable(1_500_000) == [keys["old"]]
        assert prunable(3_000_000) == [keys["old"], keys["new"]]
        assert prunable(3_000_000, limit=1) == [keys["old"]]
        assert prunable(3_000_000, after_key=keys["old"]) == [keys["new"]]
        assert prunable(1_000_000) == []

    def test_everything_about_it_goes_but_dedup(self, store: Store) -> None:
        keys = add(store, "a", "b")
        a, b = keys["a"], keys["b"]
        remembered = DedupRow("key:x", "a", "digest", PENDING, 10**15)

        def fill(tx: Tx) -> None:
            tx.remember([remembered, DedupRow("key:y", "b", "other", PENDING, 10**15)])
            tx.link([(a, b)])
            tx.want(a, ["gpu"])
            tx.hold(a, ["gpu"])
            row = moved(tx.lock([a])[0], FAILED)
            tx.save([row], [event_of(row)], [EffectRow(a, 2, 0, "results", "x")])

        store.write(fill)
        store.write(lambda tx: tx.delete([a]))
        with_b = store.read(lambda reader: reader.tasks([a, b]))
        assert ids_of(with_b) == ["b"]
        assert [entry.task_id for entry in log(store)] == ["b"]
        assert store.read(lambda reader: reader.outbox_counts()) == {}
        assert store.read(lambda reader: reader.holders_of(["gpu"])) == {}
        assert store.read(lambda reader: reader.parents_of(b)) == []
        assert store.write(lambda tx: tx.recall(["key:x", "key:y"])) == {
            "key:x": remembered._replace(state=FAILED),  # how it ended is kept beside its name
            "key:y": DedupRow("key:y", "b", "other", PENDING, 10**15),
        }

    def test_neither_keys_nor_positions_are_used_again(self, store: Store) -> None:
        keys = add(store, "a", "b")
        store.write(lambda tx: tx.delete(list(keys.values())))
        assert store.read(lambda reader: reader.last_position()) == 2
        assert add(store, "c")["c"] > max(keys.values())
        assert log(store)[0].position == 3
