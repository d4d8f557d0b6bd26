"""Circuits, what was spent, and trees: the records beside the tasks that hold claims back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agentq.contracts.limit_rows import CircuitRow, RoleRow
from agentq.contracts.store import (
    IN_TREE,
    READY,
    Changes,
    Expired,
    Picked,
    SpendingRow,
    Store,
    TreeRow,
    Tx,
)
from agentq.ledger.ledger import Ledger
from tests.contracts.conftest import Backend
from tests.contracts.rows import Clock, add, hot, ids_of, insert, new_row, role_id


def circuit(until: int, at: int = 1_000_000, reason: str = "limit", by: str = "ann") -> CircuitRow:
    return CircuitRow("acme", until, reason, at, by)


def set_circuits(store: Store, *rows: CircuitRow) -> None:
    store.write(lambda tx: tx.save(Changes(circuits=rows)))


def free_pick(store: Store, provider: str = "") -> tuple[RoleRow, int, list[str]]:
    role = role_id(store)
    row, until, picked = store.write(
        lambda tx: tx.pick(role, 10, provider=provider, unless_limited=True)
    )
    return row, until, ids_of(picked)


class TestCircuits:
    def test_what_is_saved_is_found_by_provider(self, store: Store) -> None:
        other = CircuitRow("zeta", 5, "r", 1, "bob")
        set_circuits(store, other, circuit(2_000_000))
        assert store.read(lambda reader: reader.circuits()) == [circuit(2_000_000), other]
        closed = circuit(1_500_000, reason="closed by ann")
        set_circuits(store, closed)
        assert store.read(lambda reader: reader.circuits()) == [closed, other]
        assert store.write(lambda tx: tx.circuits()) == [closed, other]

    def test_a_circuit_is_extended_and_never_shortened(self, store: Store, clock: Clock) -> None:
        ledger = Ledger(store, lambda: 0.5)
        first = ledger.open_circuit("acme", 2_000_000, "limit", "ann")
        assert first == circuit(2_000_000)
        # A shorter one changes nothing,
        assert ledger.open_circuit("acme", 1_500_000, "other", "ann") == first
        # a longer one goes on from where it was opened.
        clock.now = 1_100_000
        longer = ledger.open_circuit("acme", 3_000_000, "again", "bob")
        assert longer == CircuitRow("acme", 3_000_000, "again", 1_000_000, "bob")
        assert store.read(lambda reader: reader.circuits()) == [longer]

    def test_one_that_has_ended_is_opened_anew(self, store: Store, clock: Clock) -> None:
        ledger = Ledger(store, lambda: 0.5)
        ledger.open_circuit("acme", 1_100_000, "limit", "ann")
        clock.now = 1_200_000
        assert ledger.open_circuit("acme", 1_300_000, "limit", "ann").opened_at == 1_200_000

    def test_closing_says_whether_it_was_open(self, store: Store, clock: Clock) -> None:
        ledger = Ledger(store, lambda: 0.5)
        assert not ledger.close_circuit("acme", "ann")
        ledger.open_circuit("acme", 2_000_000, "limit", "ann")
        clock.now = 1_500_000
        assert ledger.close_circuit("acme", "ann")
        clock.now += 1
        assert not ledger.close_circuit("acme", "ann")
        (row,) = store.read(lambda reader: reader.circuits())
        assert (row.open_until, row.reason) == (1_500_000, "closed by ann")
        # And it can be opened for less than it once was.
        clock.now = 1_600_000
        again = ledger.open_circuit("acme", 1_700_000, "limit", "ann")
        assert again.open_until == 1_700_000

    def test_two_who_open_one_at_once_keep_the_longer(self, shared: Backend) -> None:
        """On a fresh row, where both find none; whoever looks in a transaction may change it."""
        ledgers = [Ledger(shared.open(), lambda: 0.5) for _ in range(4)]
        for round_ in range(5):
            provider = f"provider-{round_}"

            def extend(number: int, provider: str = provider) -> int:
                until = 2_000_000 + number
                return ledgers[number].open_circuit(provider, until, "r", "ann").open_until

            with ThreadPoolExecutor(4) as pool:
                told = list(pool.map(extend, range(4)))
            assert all(until >= 2_000_000 + number for number, until in enumerate(told))
            rows = ledgers[0].store.read(lambda reader: reader.circuits())
            assert {row.provider: row.open_until for row in rows}[provider] == 2_000_003

    @pytest.mark.parametrize("by", ["urgency", "id", "place"])
    def test_nothing_is_picked_while_it_is_open(self, store: Store, clock: Clock, by: str) -> None:
        keys = add(store, "a", "b")
        role = role_id(store)
        set_circuits(store, circuit(clock.now + 500))

        def picked(provider: str) -> tuple[int, list[str]]:
            def change(tx: Tx) -> Picked:
                if by == "id":
                    return tx.pick(role, 9, provider=provider, ids=["b"])
                if by == "place":
                    return tx.pick(role, 9, provider=provider, after=(2, keys["a"]))
                return tx.pick(role, 9, provider=provider)

            _, until, tasks = store.write(change)
            return until, ids_of(tasks)

        expected = ["a", "b"] if by == "urgency" else ["b"]
        assert picked("acme") == (clock.now + 500, [])
        assert free_pick(store, "acme")[1:] == (clock.now + 500, [])
        # It concerns nobody else,
        assert picked("other") == (0, expected)
        assert picked("") == (0, expected)
        # and is over at its end.
        clock.now += 500
        assert picked("acme") == (0, expected)

    def test_another_process_sees_it(self, shared: Backend) -> None:
        one, two = shared.open(), shared.open()
        add(one, "a")
        set_circuits(one, circuit(shared.clock.now + 1))
        assert free_pick(two, "acme")[2] == []


class TestRoles:
    def test_a_role_keeps_its_provider_and_its_budget(self, store: Store) -> None:
        role = role_id(store)

        def change(tx: Tx) -> RoleRow:
            row = tx.lock_role(role)._replace(provider="acme", daily='{"usd":5.0}')
            tx.save(Changes(roles=[row]))
            return row

        row = store.write(change)
        assert row.is_limited
        assert store.write(lambda tx: tx.lock_role(role)) == row
        assert store.read(lambda reader: reader.roles()) == [row]

    def test_a_daily_budget_is_a_limit(self, store: Store) -> None:
        add(store, "a")
        role = role_id(store)
        row = store.write(lambda tx: tx.lock_role(role))._replace(daily='{"usd":5.0}')
        store.write(lambda tx: tx.save(Changes(roles=[row])))
        found, _, picked = free_pick(store)
        assert found.is_limited and picked == []


def spent(name: str, day: int, usd: float, tokens: float = 0.0, kind: str = "role") -> SpendingRow:
    return SpendingRow(kind, name, day, usd, tokens, 1.0, 0.5)


def spend(store: Store, *rows: SpendingRow) -> None:
    store.write(lambda tx: tx.save(Changes(spending=rows)))


class TestSpending:
    def test_amounts_are_added_up_by_name_and_day(self, store: Store) -> None:
        spend(store, spent("a", 1, 0.25), spent("b", 1, 1.0, 7.0))
        spend(store, spent("a", 1, 0.5, 1e15), spent("a", 2, 0.125))
        rows = store.read(lambda reader: reader.spending("role"))
        assert rows == [
            SpendingRow("role", "a", 1, 0.75, 1e15, 2.0, 1.0),
            SpendingRow("role", "a", 2, 0.125, 0.0, 1.0, 0.5),
            SpendingRow("role", "b", 1, 1.0, 7.0, 1.0, 0.5),
        ]
        assert store.read(lambda reader: reader.spending("role", "a", 2)) == [rows[1]]
        assert store.read(lambda reader: reader.spending("role", "a", 3)) == []
        assert store.read(lambda reader: reader.spending("label", "a", 2)) == []

    def test_sums_may_grow_beyond_any_whole_number(self, store: Store) -> None:
        for _ in range(3):
            spend(store, spent("a", 1, 0.0, 9e18))
        (row,) = store.read(lambda reader: reader.spending("role"))
        assert row.tokens == 27e18

    def test_a_transaction_sees_what_it_added(self, store: Store) -> None:
        def change(tx: Tx) -> list[SpendingRow]:
            tx.save(Changes(spending=[spent("a", 1, 0.25)]))
            tx.save(Changes(spending=[spent("a", 1, 0.25)]))
            return tx.spending("role", "a", 1)

        (row,) = store.write(change)
        assert row.usd == 0.5

    def test_a_rolled_back_cost_was_never_there(self, store: Store) -> None:
        class Stop(Exception):
            pass

        def change(tx: Tx) -> None:
            tx.save(Changes(spending=[spent("a", 1, 0.25)]))
            assert tx.spending("role")
            raise Stop

        with pytest.raises(Stop):
            store.write(change)
        assert store.read(lambda reader: reader.spending("role")) == []

    def test_old_days_of_labels_are_forgotten(self, store: Store) -> None:
        rows = [spent("a", day, 1.0, kind=kind) for kind in ("label", "role") for day in (1, 2)]
        spend(store, *rows)
        assert store.write(lambda tx: tx.delete((), Expired(labels_before_day=2))) == 0, (
            "it counts dedup records"
        )
        assert [row.day for row in store.read(lambda reader: reader.spending("label"))] == [2]
        assert len(store.read(lambda reader: reader.spending("role"))) == 2


def grow(store: Store, *names: str) -> dict[str, int]:
    """Tasks of one tree, the first of them its root."""
    role = role_id(store)
    rows = [new_row(name, role, flags=IN_TREE, roots=(names[0],)) for name in names]
    tree = TreeRow(0, names[0], '{"usd":5.0}', "", "", 0)
    store.write(lambda tx: tx.save(Changes(new=rows, trees=[tree])))
    return store.read(lambda reader: reader.keys(names))


class TestTrees:
    def test_members_lead_to_their_tree(self, store: Store) -> None:
        keys = grow(store, "root", "child")
        add(store, "free")
        tree = TreeRow(keys["root"], "root", '{"usd":5.0}', "", "", 0)
        members = [(key, tree) for key in sorted(keys.values())]
        assert store.read(lambda reader: reader.trees_of([keys["child"]])) == [
            (keys["child"], tree)
        ]
        everybody = store.read(lambda reader: reader.keys(["root", "child", "free"])).values()
        assert store.read(lambda reader: reader.trees_of(list(everybody))) == members
        assert store.write(lambda tx: tx.trees_of(list(everybody))) == members
        assert store.read(lambda reader: reader.trees_of([])) == []

    def test_one_may_be_in_several(self, store: Store) -> None:
        outer = grow(store, "outer")["outer"]
        role = role_id(store)
        rows = [new_row(name, role, roots=(outer, "inner")) for name in ("inner", "leaf")]
        inner = TreeRow(0, "inner", "{}", "", "", 0)
        store.write(lambda tx: tx.save(Changes(new=rows, trees=[inner])))
        keys = store.read(lambda reader: reader.keys(["inner", "leaf"]))
        found = store.read(lambda reader: reader.trees_of([keys["leaf"]]))
        assert [(key, row.root, row.name) for key, row in found] == [
            (keys["leaf"], outer, "outer"),
            (keys["leaf"], keys["inner"], "inner"),
        ]

    def test_what_it_says_is_changed(self, store: Store) -> None:
        keys = grow(store, "root")
        row = TreeRow(keys["root"], "root", '{"usd":7.0}', '{"usd":2.0}', '{"usd":1.0}', 1)
        store.write(lambda tx: tx.save(Changes(trees=[row])))
        assert store.read(lambda reader: reader.trees_of([keys["root"]])) == [(keys["root"], row)]

    def test_whoever_is_in_a_tree_that_is_used_up_is_passed_over(self, store: Store) -> None:
        keys = grow(store, "root", "child")
        add(store, "free")
        role = role_id(store)

        def set_used_up(used_up: int) -> None:
            row = TreeRow(keys["root"], "root", '{"usd":5.0}', "", '{"usd":5.0}', used_up)
            store.write(lambda tx: tx.save(Changes(trees=[row])))

        def picked() -> list[str]:
            return ids_of(store.write(lambda tx: tx.pick(role, 10)).tasks)

        def named() -> list[str]:
            return ids_of(store.write(lambda tx: tx.pick(role, 10, ids=["free", "child"])).tasks)

        set_used_up(1)
        assert picked() == named() == ["free"]
        assert free_pick(store)[2] == ["free"]
        assert hot(store, keys["child"]).state == READY
        set_used_up(0)
        assert picked() == ["root", "child", "free"]
        assert named() == ["free", "child"]

    def test_a_tree_stands_while_anybody_belongs_to_it(self, store: Store) -> None:
        keys = grow(store, "root", "child")
        store.write(lambda tx: tx.delete([keys["root"]]))
        ((_, tree),) = store.read(lambda reader: reader.trees_of([keys["child"]]))
        assert tree.name == "root"
        store.write(lambda tx: tx.delete([keys["child"]]))
        assert store.write(lambda tx: tx.trees_of(list(keys.values()))) == []
        # Whoever names it by its key now joins nothing.
        later = insert(store, new_row("later", role_id(store), roots=(keys["root"],)))
        assert store.read(lambda reader: reader.trees_of(list(later.values()))) == []
