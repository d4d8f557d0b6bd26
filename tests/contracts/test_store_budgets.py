"""Circuits, what was spent, and trees: the records beside the tasks that hold claims back."""

from __future__ import annotations

from agentq.contracts.store import (
    IN_TREE,
    READY,
    CircuitRow,
    RoleRow,
    SpendingRow,
    Store,
    TreeRow,
    Tx,
)
from tests.contracts.conftest import Backend
from tests.contracts.rows import Clock, add, hot, ids_of, new_row, role_id


def circuit(until: int, at: int = 1_000_000, reason: str = "limit", by: str = "ann") -> CircuitRow:
    return CircuitRow("acme", until, reason, at, by)


def open_until(store: Store, row: CircuitRow) -> CircuitRow:
    return store.write(lambda tx: tx.extend_circuit(row))


def free_pick(store: Store, provider: str = "") -> tuple[RoleRow, int, list[str]]:
    def change(tx: Tx) -> tuple[RoleRow, int, list[str]]:
        row, until, picked = tx.pick_freely(role_id(store), 10, provider)
        return row, until, ids_of(picked)

    role_id(store)
    return store.write(change)


class TestCircuits:
    def test_a_circuit_is_extended_and_never_shortened(self, store: Store) -> None:
        first = open_until(store, circuit(2_000_000))
        assert first == circuit(2_000_000)
        # A shorter one changes nothing,
        assert open_until(store, circuit(1_500_000, reason="other")) == first
        # a longer one goes on from where it was opened.
        longer = open_until(store, circuit(3_000_000, at=1_100_000, reason="again", by="bob"))
        assert longer == CircuitRow("acme", 3_000_000, "again", 1_000_000, "bob")
        assert store.read(lambda reader: reader.circuits()) == [longer]

    def test_one_that_has_ended_is_opened_anew(self, store: Store) -> None:
        open_until(store, circuit(1_100_000))
        assert open_until(store, circuit(1_300_000, at=1_200_000)).opened_at == 1_200_000

    def test_closing_says_whether_it_was_open(self, store: Store) -> None:
        def close(at: int) -> bool:
            return store.write(lambda tx: tx.close_circuit("acme", at, "closed by ann"))

        assert not close(1_000_000)
        open_until(store, circuit(2_000_000))
        assert close(1_500_000)
        assert not close(1_500_001)
        (row,) = store.read(lambda reader: reader.circuits())
        assert (row.open_until, row.reason) == (1_500_000, "closed by ann")
        # And it can be opened for less than it once was.
        assert open_until(store, circuit(1_700_000, at=1_600_000)).open_until == 1_700_000

    def test_nothing_is_picked_while_it_is_open(self, store: Store, clock: Clock) -> None:
        add(store, "a")
        open_until(store, circuit(clock.now + 500))
        assert free_pick(store, "acme")[1:] == (clock.now + 500, [])
        # It concerns nobody else,
        assert free_pick(store, "other")[1:] == (0, ["a"])
        assert free_pick(store)[1:] == (0, ["a"])
        # and is over at its end.
        clock.now += 500
        assert free_pick(store, "acme")[1:] == (0, ["a"])

    def test_another_process_sees_it(self, shared: Backend) -> None:
        one, two = shared.open(), shared.open()
        add(one, "a")
        open_until(one, circuit(shared.clock.now + 1))
        assert free_pick(two, "acme")[2] == []


class TestRoles:
    def test_a_role_keeps_its_provider_and_its_budget(self, store: Store) -> None:
        role = role_id(store)

        def change(tx: Tx) -> RoleRow:
            row = tx.lock_role(role)._replace(provider="acme", daily='{"usd":5.0}')
            tx.set_role(row)
            return row

        row = store.write(change)
        assert row.is_limited
        assert store.read(lambda reader: reader.role(role)) == row
        assert store.read(lambda reader: reader.roles()) == [row]

    def test_a_daily_budget_is_a_limit(self, store: Store) -> None:
        add(store, "a")
        role = role_id(store)
        store.write(lambda tx: tx.set_role(tx.lock_role(role)._replace(daily='{"usd":5.0}')))
        row, _, picked = free_pick(store)
        assert row.is_limited and picked == []

    def test_picking_goes_on_after_a_task(self, store: Store) -> None:
        role = role_id(store)
        rows = [new_row(name, role, priority=n) for name, n in (("c", 2), ("a", 0), ("b", 1))]
        rows += [new_row("d", role, priority=2)]
        keys = store.write(lambda tx: tx.insert(rows))

        def after(priority: int, name: str, count: int = 10) -> list[str]:
            return ids_of(store.write(lambda tx: tx.pick_after(role, count, priority, keys[name])))

        assert after(0, "a") == ["b", "c", "d"]
        assert after(1, "b", 1) == ["c"]
        assert after(2, "d") == []


def spent(name: str, day: int, usd: float, tokens: float = 0.0, kind: str = "role") -> SpendingRow:
    return SpendingRow(kind, name, day, usd, tokens, 1.0, 0.5)


class TestSpending:
    def test_amounts_are_added_up_by_name_and_day(self, store: Store) -> None:
        store.write(lambda tx: tx.add_spending([spent("a", 1, 0.25), spent("b", 1, 1.0, 7.0)]))
        store.write(lambda tx: tx.add_spending([spent("a", 1, 0.5, 1e15), spent("a", 2, 0.125)]))
        rows = store.read(lambda reader: reader.spending("role"))
        assert rows == [
            SpendingRow("role", "a", 1, 0.75, 1e15, 2.0, 1.0),
            SpendingRow("role", "a", 2, 0.125, 0.0, 1.0, 0.5),
            SpendingRow("role", "b", 1, 1.0, 7.0, 1.0, 0.5),
        ]
        assert store.read(lambda reader: reader.spent_on("role", "a", 2)) == rows[1]
        assert store.read(lambda reader: reader.spent_on("role", "a", 3)) is None
        assert store.read(lambda reader: reader.spent_on("label", "a", 2)) is None

    def test_sums_may_grow_beyond_any_whole_number(self, store: Store) -> None:
        for _ in range(3):
            store.write(lambda tx: tx.add_spending([spent("a", 1, 0.0, 9e18)]))
        (row,) = store.read(lambda reader: reader.spending("role"))
        assert row.tokens == 27e18

    def test_a_transaction_sees_what_it_added(self, store: Store) -> None:
        def change(tx: Tx) -> SpendingRow | None:
            tx.add_spending([spent("a", 1, 0.25)])
            tx.add_spending([spent("a", 1, 0.25)])
            return tx.spent_on("role", "a", 1)

        row = store.write(change)
        assert row is not None and row.usd == 0.5

    def test_a_rolled_back_cost_was_never_there(self, store: Store) -> None:
        class Stop(Exception):
            pass

        def change(tx: Tx) -> None:
            tx.add_spending([spent("a", 1, 0.25)])
            raise Stop

        try:
            store.write(change)
        except Stop:
            assert store.read(lambda reader: reader.spending("role")) == []

    def test_old_days_of_a_kind_are_forgotten(self, store: Store) -> None:
        rows = [spent("a", day, 1.0, kind=kind) for kind in ("label", "role") for day in (1, 2)]
        store.write(lambda tx: tx.add_spending(rows))
        store.write(lambda tx: tx.forget_spending("label", 2))
        assert [row.day for row in store.read(lambda reader: reader.spending("label"))] == [2]
        assert len(store.read(lambda reader: reader.spending("role"))) == 2


def grow(store: Store, *names: str) -> dict[str, int]:
    """Tasks of one tree, the first of them its root."""
    role = role_id(store)

    def change(tx: Tx) -> dict[str, int]:
        keys = tx.insert([new_row(name, role, flags=IN_TREE) for name in names])
        root = keys[names[0]]
        tx.set_trees([TreeRow(root, names[0], '{"usd":5.0}', "", "", 0)])
        tx.join_trees([(key, root) for key in keys.values()])
        return keys

    return store.write(change)


class TestTrees:
    def test_members_lead_to_their_tree(self, store: Store) -> None:
        keys = grow(store, "root", "child")
        tree = TreeRow(keys["root"], "root", '{"usd":5.0}', "", "", 0)
        assert store.read(lambda reader: reader.trees_of([keys["child"]])) == [tree]
        assert store.read(lambda reader: reader.membership(["child", "nobody"])) == [
            ("child", keys["root"])
        ]
        locked = store.write(lambda tx: tx.lock_trees(sorted(keys.values())))
        assert locked == [(key, tree) for key in sorted(keys.values())]

    def test_whoever_is_in_a_tree_that_is_used_up_is_passed_over(self, store: Store) -> None:
        keys = grow(store, "root", "child")
        add(store, "free")
        role = role_id(store)

        def set_used_up(used_up: int) -> None:
            row = TreeRow(keys["root"], "root", '{"usd":5.0}', "", '{"usd":5.0}', used_up)
            store.write(lambda tx: tx.set_trees([row]))

        def picked() -> list[str]:
            return ids_of(store.write(lambda tx: tx.pick(role, 10)))

        set_used_up(1)
        assert picked() == ["free"]
        assert free_pick(store)[2] == ["free"]
        assert hot(store, keys["child"]).state == READY
        set_used_up(0)
        assert picked() == ["root", "child", "free"]

    def test_who_waits_in_a_tree_is_known(self, store: Store) -> None:
        keys = grow(store, "root", "child")
        assert store.write(lambda tx: tx.waiting_roles([keys["root"]])) == ["worker"]
        assert store.write(lambda tx: tx.waiting_roles([keys["child"]])) == []

    def test_a_tree_stands_while_anybody_belongs_to_it(self, store: Store) -> None:
        keys = grow(store, "root", "child")
        store.write(lambda tx: tx.delete([keys["root"]]))
        assert store.read(lambda reader: reader.trees_of([keys["child"]]))[0].name == "root"
        store.write(lambda tx: tx.delete([keys["child"]]))
        assert store.write(lambda tx: tx.lock_trees(list(keys.values()))) == []
