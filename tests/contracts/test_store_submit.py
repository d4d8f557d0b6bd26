"""How tasks come into a store: one, many, all or none."""

from __future__ import annotations

from agentq.contracts.store import (
    PENDING,
    HotRow,
    SpecRow,
    Store,
    TaskRow,
)
from tests.contracts.rows import (
    LANES,
    add,
    log,
    new_row,
    role_id,
)


class TestInsert:
    def test_a_task_comes_back_as_it_went_in(self, store: Store) -> None:
        role = role_id(store)
        row = new_row("a", role, priority=1, state=PENDING, wake_at=7, at=5, memo="{}", flags=2)
        keys = store.write(lambda tx: tx.insert([row]))
        assert list(keys) == ["a"]
        expected = TaskRow(
            HotRow(keys["a"], PENDING, 1, 0, 7, 5, "", "{}", 2), SpecRow(keys["a"], 5, row.body)
        )
        assert store.read(lambda reader: reader.tasks([keys["a"]])) == [expected]

    def test_the_submission_is_the_first_event(self, store: Store) -> None:
        keys = add(store, "a", "b")
        assert [(entry.position, entry.task_id, entry.event.version) for entry in log(store)] == [
            (1, "a", 1),
            (2, "b", 1),
        ]
        first = log(store)[0].event
        assert (first.key, first.kind, first.trigger, first.epoch) == (
            keys["a"],
            "submitted",
            "Submit",
            0,
        )

    def test_ids_that_are_taken_are_left_out(self, store: Store) -> None:
        old = add(store, "a", "b")
        new = add(store, "b", "c", "a", "d")
        assert sorted(new) == ["c", "d"]
        assert store.read(lambda r: r.keys(["a", "b", "c", "x"])) == old | {"c": new["c"]}
        assert [entry.position for entry in log(store)] == [1, 2, 3, 4]
        assert [entry.task_id for entry in log(store)] == ["a", "b", "c", "d"]

    def test_keys_grow_in_the_order_of_the_batch(self, store: Store) -> None:
        ids = [f"z{9 - n}" for n in range(10)]
        keys = add(store, *ids)
        assert [keys[name] for name in ids] == sorted(keys.values())
        assert min(add(store, "later").values()) > max(keys.values())

    def test_nothing_is_nothing(self, store: Store) -> None:
        assert store.write(lambda tx: tx.insert([])) == {}
        assert store.read(lambda reader: reader.last_position()) == 0

    def test_any_text_survives(self, store: Store) -> None:
        role = role_id(store)
        odd = "'\"\\ {} %s $1 :x \n\t\x01 é 🦊 \u202e \U0010ffff"
        row = new_row("odd", role, memo=odd, body={"instructions": odd})
        keys = store.write(lambda tx: tx.insert([row._replace(data=odd)]))
        stored = store.read(lambda reader: reader.tasks([keys["odd"]]))[0]
        assert (stored.hot.memo, stored.spec.body) == (odd, row.body)
        assert log(store)[0].event.data == odd

    def test_a_big_batch_and_a_big_body(self, store: Store) -> None:
        role = role_id(store)
        rows = [new_row(f"t{n}", role) for n in range(3000)]
        rows.append(new_row("huge", role, body={"instructions": "x" * 300_000}))
        assert len(store.write(lambda tx: tx.insert(rows))) == 3001
        assert store.read(lambda reader: reader.last_position()) == 3001
        huge = store.read(lambda reader: reader.tasks(list(reader.keys(["huge"]).values())))[0]
        assert len(huge.spec.body) > 300_000


class TestSubmit:
    def test_inserts_one(self, store: Store) -> None:
        role = role_id(store)
        assert store.submit([new_row("a", role)], {}, LANES, ["events"]) == {"a"}
        assert store.submit([new_row("a", role)], {}, LANES, ["events"]) == set()
        assert [entry.task_id for entry in log(store)] == ["a"]

    def test_inserts_all_or_none(self, store: Store) -> None:
        role = role_id(store)
        add(store, "b")
        assert store.submit([new_row(name, role) for name in "abc"], {}, LANES, []) == set()
        assert [(entry.position, entry.task_id) for entry in log(store)] == [(1, "b")]
        assert store.submit([new_row(name, role) for name in "ac"], {}, LANES, []) == {"a", "c"}
        assert [(entry.position, entry.task_id) for entry in log(store)] == [
            (1, "b"),
            (2, "a"),
            (3, "c"),
        ]

    def test_stores_effects_with_what_was_inserted(self, store: Store) -> None:
        role = role_id(store)
        add(store, "b")
        store.write(lambda tx: tx.set_lanes(frozenset({"notify", "results"})))
        effects = {
            name: [("notify", f"first {name}"), ("results", f"second {name}")] for name in "ab"
        }
        lanes = frozenset({"notify", "results"})
        rows = [new_row(name, role) for name in "ab"]
        assert store.submit(rows, effects, lanes, []) == set()
        assert store.read(lambda reader: reader.outbox_counts()) == {}
        assert store.submit(rows[:1], effects, lanes, []) == {"a"}
        taken = store.write(lambda tx: tx.take_effects("results", 0, 10, 5))
        key = store.read(lambda reader: reader.keys(["a"]))["a"]
        assert [(row.effect_id, row.task_id, row.payload, row.tries) for row in taken] == [
            (f"{key}.1.1", "a", "second a", 1)
        ]
        assert store.read(lambda reader: reader.outbox_counts()) == {"notify": 1, "results": 1}

    def test_one_with_effects(self, store: Store) -> None:
        role = role_id(store)
        assert store.submit([new_row("a", role)], {"a": [("results", "x")]}, LANES, []) == {"a"}
        assert store.read(lambda reader: reader.outbox_counts()) == {"results": 1}

    def test_the_same_id_twice_in_a_batch_is_taken(self, store: Store) -> None:
        role = role_id(store)
        assert store.submit([new_row("a", role), new_row("a", role)], {}, LANES, []) == set()
        assert log(store) == []
