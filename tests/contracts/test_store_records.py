"""The store contract: what is kept beside tasks. Lanes, effects, dedup, roles, edges, resources."""

from __future__ import annotations

import pytest

from agentq.contracts.store import (
    COMPLETE,
    HAS_DEPENDENTS,
    PENDING,
    ArtifactRow,
    DedupRow,
    EffectRow,
    OutboxRow,
    RoleRow,
    RunAgain,
    Store,
    Tx,
)
from tests.contracts.conftest import Backend
from tests.contracts.rows import LANES, add, event_of, hot, moved, new_row, role_id


class TestOutbox:
    def fill(self, store: Store, lane: str, *payloads: str) -> int:
        key = add(store, f"task-{lane}")[f"task-{lane}"]

        def change(tx: Tx) -> None:
            row = moved(tx.lock([key])[0], COMPLETE)
            effects = [EffectRow(key, 2, n, lane, text) for n, text in enumerate(payloads)]
            tx.save([row], [event_of(row)], effects)

        store.write(change)
        return key

    def take(
        self, store: Store, lane: str, now: int, count: int = 10, until: int = 100
    ) -> list[OutboxRow]:
        return store.write(lambda tx: tx.take_effects(lane, now, count, until))

    def test_effects_come_oldest_first_with_a_stable_id(self, store: Store) -> None:
        key = self.fill(store, "results", "a", "b", "c")
        taken = self.take(store, "results", 0, 2)
        assert [
            (row.effect_id, row.task_id, row.lane, row.payload, row.tries) for row in taken
        ] == [
            (f"{key}.2.0", "task-results", "results", "a", 1),
            (f"{key}.2.1", "task-results", "results", "b", 1),
        ]
        assert [row.payload for row in self.take(store, "results", 0)] == ["c"]

    def test_what_was_taken_is_hidden_and_comes_back(self, store: Store) -> None:
        self.fill(store, "results", "a", "b")
        first = self.take(store, "results", 0, until=100)
        assert self.take(store, "results", 99) == []
        again = self.take(store, "results", 100, until=200)
        assert [(row.sequence, row.effect_id) for row in again] == [
            (row.sequence, row.effect_id) for row in first
        ]
        assert [row.tries for row in again] == [2, 2]

    def test_what_was_acked_is_gone(self, store: Store) -> None:
        self.fill(store, "results", "a", "b")
        first, second = self.take(store, "results", 0)
        store.write(lambda tx: tx.ack_effects([first.sequence]))
        assert [row.sequence for row in self.take(store, "results", 500)] == [second.sequence]
        store.write(lambda tx: tx.ack_effects([first.sequence, second.sequence, 10**9]))
        assert store.read(lambda reader: reader.outbox_counts()) == {}
        store.write(lambda tx: tx.ack_effects([]))

    def test_lanes_do_not_disturb_each_other(self, store: Store) -> None:
        self.fill(store, "results", "a")
        self.fill(store, "notify", "b")
        assert [row.payload for row in self.take(store, "notify", 0)] == ["b"]
        assert store.read(lambda reader: reader.outbox_counts()) == {"notify": 1, "results": 1}
        assert self.take(store, "unheard-of", 0) == []

    def test_a_sequence_is_never_used_again(self, store: Store) -> None:
        self.fill(store, "results", "a")
        (first,) = self.take(store, "results", 0)
        store.write(lambda tx: tx.ack_effects([first.sequence]))
        self.fill(store, "notify", "b")
        (second,) = self.take(store, "notify", 0)
        assert second.sequence > first.sequence


class TestLanes:
    def test_a_new_ledger_publishes_results(self, store: Store) -> None:
        assert store.known_lanes() == LANES
        assert store.write(lambda tx: tx.lanes()) == LANES

    def test_opening_and_closing(self, store: Store) -> None:
        both = frozenset({"notify", "results"})
        store.write(lambda tx: tx.set_lanes(both))
        assert store.write(lambda tx: tx.lanes()) == both
        store.write(lambda tx: tx.set_lanes(frozenset()))
        assert store.write(lambda tx: tx.lanes()) == frozenset()

    def test_a_transaction_sees_the_lanes_it_set(self, store: Store) -> None:
        def change(tx: Tx) -> frozenset[str]:
            tx.set_lanes(frozenset({"git"}))
            return tx.lanes()

        assert store.write(change) == {"git"}

    def test_submit_with_wrong_lanes_is_run_again_and_leaves_nothing(self, store: Store) -> None:
        role = role_id(store)
        for rows in ([new_row("a", role)], [new_row("a", role), new_row("b", role)]):
            with pytest.raises(RunAgain):
                store.submit(rows, {}, frozenset({"results", "git"}), [])
            with pytest.raises(RunAgain):
                store.submit(rows, {"a": [("git", "x")]}, frozenset({"git"}), [])
        assert store.read(lambda reader: reader.keys(["a", "b"])) == {}
        assert store.read(lambda reader: reader.last_position()) == 0
        assert store.submit([new_row("a", role)], {}, LANES, []) == {"a"}

    def test_lanes_opened_elsewhere_are_noticed(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        role = role_id(ours)
        assert ours.known_lanes() == LANES
        both = frozenset({"git", "results"})
        theirs.write(lambda tx: tx.set_lanes(both))
        with pytest.raises(RunAgain):
            ours.submit([new_row("a", role)], {}, LANES, [])
        assert ours.known_lanes() == both
        assert ours.submit([new_row("a", role)], {}, both, []) == {"a"}

    def test_a_change_never_commits_under_lanes_it_did_not_know(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        key = add(ours, "a")["a"]
        assert ours.known_lanes() == LANES
        theirs.write(lambda tx: tx.set_lanes(frozenset({"git", "results"})))
        told = []

        def change(tx: Tx) -> None:
            row = moved(tx.lock([key])[0], COMPLETE)
            told.append(tx.lanes())
            tx.save([row], [event_of(row)], [])

        ours.write(change)
        assert told[-1] == {"git", "results"}
        assert hot(ours, key).version == 2

    def test_asking_alone_gives_the_truth(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        assert ours.write(lambda tx: tx.lanes()) == LANES
        theirs.write(lambda tx: tx.set_lanes(frozenset({"git"})))
        assert ours.write(lambda tx: tx.lanes()) == {"git"}

    def test_two_who_open_lanes_at_once_both_succeed(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        assert ours.known_lanes() == theirs.known_lanes() == LANES
        ours.write(lambda tx: tx.set_lanes(tx.lanes() | {"git"}))
        theirs.write(lambda tx: tx.set_lanes(tx.lanes() | {"notify"}))
        assert ours.write(lambda tx: tx.lanes()) == {"git", "notify", "results"}


class TestDedup:
    def row(self, name: str, task_id: str, expires_at: int = 100) -> DedupRow:
        return DedupRow(name, task_id, "digest", PENDING, expires_at)

    def test_remember_and_recall(self, store: Store) -> None:
        rows = [self.row("key:b", "t1"), self.row("key:a", "t2"), self.row("id:c", "c")]
        store.write(lambda tx: tx.remember(rows))
        recalled = store.write(lambda tx: tx.recall(["key:a", "id:c", "nobody"]))
        assert recalled == {"key:a": rows[1], "id:c": rows[2]}
        assert store.write(lambda tx: tx.recall([])) == {}

    def test_a_later_record_replaces_an_earlier_one(self, store: Store) -> None:
        store.write(lambda tx: tx.remember([self.row("key:a", "old")]))
        new = self.row("key:a", "new", 500)

        def change(tx: Tx) -> None:
            assert tx.recall(["key:a"])["key:a"].task_id == "old"
            tx.remember([new])

        store.write(change)
        assert store.write(lambda tx: tx.recall(["key:a"])) == {"key:a": new}

    def test_forgetting_what_has_expired(self, store: Store) -> None:
        rows = [self.row(f"key:{n}", "t", expires_at=n) for n in range(1, 6)]
        store.write(lambda tx: tx.remember(rows))
        assert store.write(lambda tx: tx.forget_dedup(3)) == 3
        assert store.write(lambda tx: tx.forget_dedup(3)) == 0
        assert sorted(store.write(lambda tx: tx.recall([row.name for row in rows]))) == [
            "key:4",
            "key:5",
        ]

    def test_records_survive_their_task(self, store: Store) -> None:
        key = add(store, "a")["a"]
        store.write(lambda tx: tx.remember([self.row("key:a", "a")]))
        store.write(lambda tx: tx.delete([key]))
        assert list(store.write(lambda tx: tx.recall(["key:a"]))) == ["key:a"]


class TestRoles:
    def test_ids_are_made_once(self, store: Store) -> None:
        ids = store.role_ids(["b", "a", "b"])
        assert sorted(ids) == ["a", "b"]
        assert store.role_ids(["a", "c"])["a"] == ids["a"]
        assert store.role_ids([]) == {}
        assert [row.name for row in store.read(lambda reader: reader.roles())] == ["a", "b", "c"]

    def test_every_process_sees_the_same_ids(self, shared: Backend) -> None:
        ours, theirs = shared.open(), shared.open()
        assert ours.role_ids(["a"]) == theirs.role_ids(["a"])
        assert theirs.role_ids(["b"]) == ours.role_ids(["b"])

    def test_limits_are_kept(self, store: Store) -> None:
        role = role_id(store)
        row = store.write(lambda tx: tx.lock_role(role))
        assert row == RoleRow(role, "worker", 0, 0, 0, 0)
        changed = row._replace(max_running=3, max_review=2, paused=1, seen_at=10**13)
        store.write(lambda tx: tx.set_role(changed))
        assert store.read(lambda reader: reader.role(role)) == changed
        assert store.write(lambda tx: tx.role(role)) == changed


class TestGraph:
    def test_edges_and_the_mark_on_the_parent(self, store: Store) -> None:
        keys = add(store, *"abcd")
        a, b, c, d = (keys[name] for name in "abcd")
        store.write(lambda tx: tx.link([(a, c), (b, c), (a, d)]))
        assert store.write(lambda tx: tx.children([a, b])) == [(a, c), (b, c), (a, d)]
        assert store.write(lambda tx: tx.children([c])) == []
        assert store.read(lambda reader: reader.parents_of(c)) == [a, b]
        assert [hot(store, key).flags & HAS_DEPENDENTS for key in (a, b, c, d)] == [1, 1, 0, 0]

    def test_linking_twice_is_linking_once(self, store: Store) -> None:
        keys = add(store, *"ab")
        edge = (keys["a"], keys["b"])
        store.write(lambda tx: tx.link([edge, edge]))
        store.write(lambda tx: tx.link([edge]))
        store.write(lambda tx: tx.link([]))
        assert store.write(lambda tx: tx.children([keys["a"]])) == [edge]


class TestResources:
    def test_all_or_none(self, store: Store) -> None:
        keys = add(store, *"abc")
        assert store.write(lambda tx: tx.hold(keys["a"], ["gpu", "port"]))
        assert not store.write(lambda tx: tx.hold(keys["b"], ["db", "gpu"]))
        assert store.write(lambda tx: tx.hold(keys["c"], ["db"])), "what b could not use is free"
        holders = store.read(lambda reader: reader.holders_of(["db", "gpu", "port", "disk"]))
        assert holders == {"db": "c", "gpu": "a", "port": "a"}

    def test_none_at_all_is_always_had(self, store: Store) -> None:
        key = add(store, "a")["a"]
        assert store.write(lambda tx: tx.hold(key, []))
        store.write(lambda tx: tx.want(key, []))

    def test_letting_go(self, store: Store) -> None:
        keys = add(store, *"ab")
        store.write(lambda tx: tx.hold(keys["a"], ["gpu"]))
        store.write(lambda tx: tx.unhold([keys["a"], keys["b"]]))
        assert store.write(lambda tx: tx.hold(keys["b"], ["gpu"]))
        store.write(lambda tx: tx.unhold([]))


class TestArtifacts:
    def test_recorded_once_and_never_replaced(self, store: Store) -> None:
        key = add(store, "a")["a"]
        rows = [
            ArtifactRow(key, 2, "b.md", 5, "x" * 64, "text/markdown", 7),
            ArtifactRow(key, 1, "b.md", 6, "y" * 64, "text/markdown", 8),
            ArtifactRow(key, 1, "a.md", 10**12, "z" * 64, "text/markdown", 9),
        ]
        store.write(lambda tx: tx.add_artifacts(rows))
        store.write(lambda tx: tx.add_artifacts([rows[0]._replace(size=1, sha256="other")]))
        store.write(lambda tx: tx.add_artifacts([]))
        listed = store.read(lambda reader: reader.artifacts_of(key))
        assert listed == [rows[2], rows[1], rows[0]]
        assert store.read(lambda reader: reader.artifacts_of(key + 1)) == []
