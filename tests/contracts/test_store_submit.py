"""How tasks come into a store: one, many, all or none, with all that belongs to them."""

from __future__ import annotations

import pytest

from agentq.contracts.store import (
    HAS_DEPENDENTS,
    HAS_RESOURCES,
    IN_TREE,
    PENDING,
    READY,
    Changes,
    HotRow,
    SpecRow,
    Store,
    TaskRow,
    TreeRow,
    Tx,
)
from agentq.core.errors import Unavailable
from tests.contracts.conftest import Backend
from tests.contracts.rows import (
    add,
    everything,
    hot,
    insert,
    log,
    new_row,
    role_id,
    waiting_effects,
)


class TestInsert:
    def test_a_task_comes_back_as_it_went_in(self, store: Store) -> None:
        role = role_id(store)
        row = new_row("a", role, priority=1, state=PENDING, wake_at=7, at=5, memo="{}", flags=2)
        keys = insert(store, row)
        assert list(keys) == ["a"]
        expected = TaskRow(
            HotRow(keys["a"], PENDING, 1, 0, 7, 5, "", "{}", 2, row.digest),
            SpecRow(keys["a"], 5, row.body),
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

    def test_keys_are_known_by_id_and_unknown_ids_left_out(self, store: Store) -> None:
        keys = add(store, "a", "b")
        assert store.read(lambda reader: reader.keys(["b", "x", "a"])) == keys
        assert store.write(lambda tx: tx.keys(iter(["b"]))) == {"b": keys["b"]}
        assert store.read(lambda reader: reader.keys([])) == {}

    def test_keys_grow_in_the_order_of_the_batch(self, store: Store) -> None:
        ids = [f"z{9 - n}" for n in range(10)]
        keys = add(store, *ids)
        assert [keys[name] for name in ids] == sorted(keys.values())
        assert min(add(store, "later").values()) > max(keys.values())

    def test_nothing_is_nothing(self, store: Store) -> None:
        before = store.read(everything)
        store.write(lambda tx: tx.save(Changes()))
        assert store.read(everything) == before
        assert store.number_events() == 0

    def test_any_text_survives(self, store: Store) -> None:
        role = role_id(store)
        odd = "'\"\\ {} %s $1 :x \n\t\x01 é 🦊 \u202e \U0010ffff"
        row = new_row("odd", role, memo=odd, body={"instructions": odd})
        keys = insert(store, row._replace(data=odd, effects=((0, "results", odd),)))
        stored = store.read(lambda reader: reader.tasks([keys["odd"]]))[0]
        assert (stored.hot.memo, stored.spec.body) == (odd, row.body)
        assert log(store)[0].event.data == odd
        assert store.read(lambda reader: reader.effects("results", 1))[0].payload == odd

    def test_a_big_batch_and_a_big_body(self, store: Store) -> None:
        role = role_id(store)
        rows = [new_row(f"t{n}", role) for n in range(3000)]
        rows.append(new_row("huge", role, body={"instructions": "x" * 300_000}))
        assert len(insert(store, *rows)) == 3001
        assert store.number_events() == 3001
        huge = store.read(lambda reader: reader.tasks(list(reader.keys(["huge"]).values())))[0]
        assert len(huge.spec.body) > 300_000


class TestIdsThatAreTaken:
    @pytest.mark.parametrize("ids", ["b", "bca", "ab"])
    def test_all_are_inserted_or_none(self, store: Store, ids: str) -> None:
        """Whoever submits looks first; whoever never looks is run again until that is too often."""
        role = role_id(store)
        add(store, "b")
        before = store.read(everything)
        rows = [new_row(name, role, effects=((0, "results", "x"),)) for name in ids]
        with pytest.raises(Unavailable, match="kept changing"):
            store.write(lambda tx: tx.save(Changes(new=rows)))
        assert store.read(everything) == before
        assert sorted(add(store, "a", "c")) == ["a", "c"]
        assert [(entry.position, entry.task_id) for entry in log(store)] == [
            (1, "b"),
            (2, "a"),
            (3, "c"),
        ]

    def test_the_same_id_twice_in_a_batch_is_taken(self, store: Store) -> None:
        rows = [new_row("a", role_id(store))] * 2
        with pytest.raises(Unavailable, match="kept changing"):
            store.write(lambda tx: tx.save(Changes(new=rows)))
        assert log(store) == []

    def test_one_that_was_taken_since_it_was_looked_for_is_looked_for_again(
        self, postgres_ledger_url: str
    ) -> None:
        """Only where writers do not take turns."""
        backend = Backend("postgres", postgres_ledger_url)
        ours, theirs = backend.open(), backend.open()
        role, seen = role_id(ours), []

        def change(tx: Tx) -> None:
            taken = tx.keys(["a", "b"])
            seen.append(sorted(taken))
            if len(seen) == 1:
                add(theirs, "b")
            tx.save(Changes(new=[new_row(each, role) for each in "ab" if each not in taken]))

        ours.write(change)
        assert seen == [[], ["b"]]
        assert [entry.task_id for entry in log(ours)] == ["b", "a"]
        backend.close()


class TestWhatBelongsToThem:
    def test_effects_keep_their_numbers(self, store: Store) -> None:
        role = role_id(store)
        rows = [
            new_row(
                name,
                role,
                effects=((3, "results", f"second {name}"), (1, "notify", f"first {name}")),
            )
            for name in "ab"
        ]
        keys = insert(store, *rows)
        found = store.read(lambda reader: reader.effects("results", 10))
        assert [(row.effect_id, row.key, row.payload, row.tries) for row in found] == [
            (f"{keys['a']}.1.3", keys["a"], "second a", 0),
            (f"{keys['b']}.1.3", keys["b"], "second b", 0),
        ]
        first = store.read(lambda reader: reader.effects("notify", 1))
        assert [row.effect_id for row in first] == [f"{keys['a']}.1.1"]
        assert store.read(waiting_effects) == {
            "notify": 2,
            "results": 2,
        }

    def test_dependencies_are_named_by_id_whether_new_or_old(self, store: Store) -> None:
        role = role_id(store)
        old = add(store, "old")["old"]
        keys = insert(
            store,
            new_row("child", role, state=PENDING, after=("old", "new")),
            new_row("new", role, after=("old",)),
        )
        child, new = keys["child"], keys["new"]
        assert store.read(lambda reader: reader.edges_of([child])) == [(old, child), (new, child)]
        assert store.read(lambda reader: reader.edges_of([new])) == [(new, child), (old, new)]
        assert [hot(store, key).flags for key in (old, new, child)] == [
            HAS_DEPENDENTS, HAS_DEPENDENTS, 0,
        ]  # fmt: skip
        assert [hot(store, key).version for key in (old, new, child)] == [1, 1, 1], "no event"

    def test_who_waits_for_a_new_task_is_named_by_id_whether_new_or_old(self, store: Store) -> None:
        """The parent of a task is told of its end like whatever comes after it."""
        role = role_id(store)
        old = add(store, "old")["old"]
        keys = insert(
            store,
            new_row("leaf", role)._replace(awaited_by=("branch",)),
            new_row("branch", role)._replace(awaited_by=("old",)),
            # One that comes after its own child: both are the same edge.
            new_row("both", role, after=("part",)),
            new_row("part", role)._replace(awaited_by=("both",)),
        )
        leaf, branch, both, part = (keys[name] for name in ("leaf", "branch", "both", "part"))
        edges = store.read(lambda reader: reader.edges_of([leaf, branch, both]))
        assert sorted(edges) == sorted([(leaf, branch), (branch, old), (part, both)])
        assert [hot(store, key).flags for key in (leaf, branch, old, part, both)] == [
            HAS_DEPENDENTS, HAS_DEPENDENTS, 0, HAS_DEPENDENTS, 0,
        ]  # fmt: skip

    def test_resources_and_trees(self, store: Store) -> None:
        role = role_id(store)
        trees = [TreeRow(0, "root", '{"usd":5.0}', "", "", 0)]
        rows = [
            new_row("child", role, flags=IN_TREE, roots=("root",)),
            new_row("root", role, flags=IN_TREE | HAS_RESOURCES, resources=("gpu",),
                    roots=("root",)),
        ]  # fmt: skip
        store.write(lambda tx: tx.save(Changes(new=rows, trees=trees)))
        keys = store.read(lambda reader: reader.keys(["root", "child"]))
        later = insert(store, new_row("later", role, flags=IN_TREE, roots=(keys["root"],)))
        tree = trees[0]._replace(root=keys["root"])
        members = [keys["root"], keys["child"], later["later"]]
        assert store.read(lambda reader: reader.trees_of(members)) == [
            (key, tree) for key in sorted(members)
        ]
        # What one wants is wanted once somebody has it.
        holder = add(store, "holder")["holder"]
        assert store.write(lambda tx: tx.hold_resources(holder, [("gpu", 0)]))
        picked = store.write(lambda tx: tx.pick(role, 10)).tasks
        assert keys["root"] not in {row.hot.key for row in picked}
        assert all(row.hot.state == READY for row in picked)
