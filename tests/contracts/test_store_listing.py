"""The store contract: tasks are found, counted and listed, in the order and the pages asked for."""

from __future__ import annotations

import pytest

from agentq.contracts.store import (
    BLOCKED,
    COMPLETE,
    EXPIRED,
    FAILED,
    IN_PROGRESS,
    NEEDS_APPROVAL,
    PENDING,
    READY,
    CountRow,
    Store,
)
from agentq.contracts.task_filter import Filter, Order
from agentq.core.values import replace
from tests.contracts.rows import add, ids_of, insert, move, new_row, role_id


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

    def test_counts_by_role_and_state(self, store: Store) -> None:
        keys = add(store, "a", "b", "c")
        other = role_id(store, "a-role")
        role_id(store, "idle")
        insert(store, new_row("d", other, at=77), new_row("e", other, at=78))
        move(store, [keys["a"]], COMPLETE)
        live = [CountRow("a-role", READY, 2, 77), CountRow("worker", READY, 2, 1_000_000)]
        assert store.read(lambda reader: reader.counts(live_only=True)) == live
        assert store.read(lambda reader: reader.counts()) == [
            *live,
            CountRow("worker", COMPLETE, 1, 1_000_000),
        ]

    def test_counts_that_end_at_a_limit(self, store: Store) -> None:
        keys = add(store, "a", "b", "c", "d", "e")
        role = role_id(store)
        approval = [new_row(f"p{n}", role, state=PENDING, flags=NEEDS_APPROVAL) for n in range(3)]
        insert(store, *approval, new_row("p", role, state=PENDING))
        move(store, [keys["a"]], FAILED)
        move(store, [keys["b"]], EXPIRED)
        found = store.read(lambda reader: reader.counts(at_most=2))
        counts = {(row.role, row.state): row.tasks for row in found if row.tasks}
        assert counts == {
            ("", PENDING): 2, ("", FAILED): 2, ("worker", PENDING): 2, ("worker", READY): 2,
        }  # fmt: skip
        found = store.read(lambda reader: reader.counts(at_most=100))
        counts = {(row.role, row.state): row.tasks for row in found if row.tasks}
        assert counts == {
            ("", PENDING): 3, ("", FAILED): 2, ("worker", PENDING): 4, ("worker", READY): 3,
        }  # fmt: skip

    def test_what_needs_an_approval_and_what_is_dead(self, store: Store) -> None:
        keys = add(store, "a", "b", "c")
        role = role_id(store)
        rows = [new_row(f"p{n}", role, state=PENDING, flags=NEEDS_APPROVAL | 1) for n in range(3)]
        keys |= insert(store, *rows, new_row("p", role, state=PENDING))
        move(store, [keys["a"]], EXPIRED)
        move(store, [keys["c"]], FAILED)
        move(store, [keys["p0"]], COMPLETE)

        def listed(wanted: Filter) -> list[str]:
            return ids_of(store.read(lambda reader: reader.list_tasks(wanted)))

        assert listed(Filter(order=Order.APPROVAL)) == ["p1", "p2"]
        assert listed(Filter(order=Order.APPROVAL, key=keys["p1"])) == ["p2"]
        assert listed(Filter(order=Order.APPROVAL, limit=1)) == ["p1"]
        assert listed(Filter(order=Order.DEAD)) == ["c", "a"]
        assert listed(Filter(order=Order.DEAD, key=keys["c"])) == ["a"]
        assert listed(Filter(order=Order.DEAD, limit=1)) == ["c"]
        assert listed(Filter((PENDING,), role, order=Order.URGENT)) == ["p1", "p2", "p"]
        assert listed(Filter(role=role, order=Order.URGENT)) == ["b"], "what is ready"

    def test_how_many_would_be_picked_before(self, store: Store) -> None:
        role = role_id(store)
        ranks = {"low": 3, "urgent": 0, "first": 2, "second": 2}
        rows = [new_row(name, role, priority=rank) for name, rank in ranks.items()]
        keys = insert(store, *rows)
        move(store, add(store, "running").values(), IN_PROGRESS)
        other = role_id(store, "other")
        insert(store, new_row("elsewhere", other, priority=0))

        def ahead(name: str) -> int:
            running, in_review, before = store.read(
                lambda reader: reader.occupancy(role, ranks[name], keys[name])
            )
            assert (running, in_review) == (1, 0)
            return before

        assert {name: ahead(name) for name in ranks} == {
            "urgent": 0,
            "first": 1,
            "second": 2,
            "low": 3,
        }

    def test_nothing_is_only_half_there(self, store: Store) -> None:
        add(store, "a", "b")
        assert store.read(lambda reader: reader.orphan_rows(10)) == []


class TestListing:
    def listed(self, store: Store, wanted: Filter) -> list[str]:
        return ids_of(store.read(lambda reader: reader.list_tasks(wanted)))

    def test_newest_first_in_pages(self, store: Store) -> None:
        keys = add(store, *"abcde")
        assert self.listed(store, Filter(limit=2)) == ["e", "d"]
        assert self.listed(store, Filter(key=keys["d"], limit=9)) == ["c", "b", "a"]

    def test_oldest_first_in_pages(self, store: Store) -> None:
        keys = add(store, *"abcde")
        assert self.listed(store, Filter(order=Order.OLDEST, limit=2)) == ["a", "b"]
        rest = Filter(order=Order.OLDEST, key=keys["b"], limit=9)
        assert self.listed(store, rest) == ["c", "d", "e"]
        assert self.listed(store, replace(rest, key=keys["e"])) == []

    def test_oldest_first_of_what_is_not_over(self, store: Store) -> None:
        """The same words on the way that reads only the few tasks that are not over."""
        role, other = role_id(store), role_id(store, "other")
        bodies: dict[str, dict[str, object]] = {
            "a": {"sender": "lead"},
            "b": {"sender": "lead", "labels": {"area": "db"}},
            "c": {"type": "review"},
            "d": {"sender": "lead"},
        }
        keys = insert(store, *(new_row(each, role, body=body) for each, body in bodies.items()))
        keys |= insert(store, new_row("e", other, state=PENDING, at=5))
        move(store, [keys["d"]], COMPLETE)
        live = Filter(states=tuple(range(COMPLETE)), order=Order.OLDEST)
        assert self.listed(store, live) == ["a", "b", "c", "e"]
        assert self.listed(store, replace(live, key=keys["a"], limit=2)) == ["b", "c"]
        assert self.listed(store, replace(live, role=other)) == ["e"]
        assert self.listed(store, replace(live, states=(PENDING,))) == ["e"]
        assert self.listed(store, replace(live, sender="lead")) == ["a", "b"]
        assert self.listed(store, replace(live, type="review")) == ["c"]
        assert self.listed(store, replace(live, labels=(("area", "db"),))) == ["b"]
        assert self.listed(store, replace(live, updated_before=6)) == ["e"]

    def test_what_is_ready_by_urgency_in_pages(self, store: Store) -> None:
        role = role_id(store)
        rows = [new_row(f"low-{n}", role, priority=3) for n in range(3)]
        rows += [new_row("urgent", role, priority=0), new_row("young", role, at=1_500_000)]
        rows += [new_row("waits", role, priority=0, state=PENDING)]
        keys = insert(store, *rows, new_row("elsewhere", role_id(store, "other"), priority=0))
        move(store, add(store, "running").values(), IN_PROGRESS, holder="w", wake_at=9)
        first = Filter(
            states=(READY,), role=role, order=Order.URGENT, updated_before=1_000_001, limit=2
        )
        assert self.listed(store, first) == ["urgent", "low-0"]
        assert self.listed(store, replace(first, priority=3, key=keys["low-0"])) == [
            "low-1",
            "low-2",
        ]
        assert self.listed(store, replace(first, priority=3, key=keys["low-2"])) == []
        everybody = replace(first, updated_before=0, limit=9)
        assert self.listed(store, everybody) == ["urgent", "young", "low-0", "low-1", "low-2"]

    @pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST])
    def test_by_the_time_of_the_last_step(self, store: Store, order: Order) -> None:
        role = role_id(store)
        insert(store, new_row("old", role, at=5), new_row("edge", role, at=7))
        assert self.listed(store, Filter(updated_before=7, order=order)) == ["old"]
        assert len(self.listed(store, Filter(updated_before=8, order=order))) == 2

    @pytest.mark.parametrize("order", [Order.NEWEST, Order.OLDEST])
    def test_tasks_that_name_others_page_by_page(self, store: Store, order: Order) -> None:
        role = role_id(store)
        bodies: dict[str, dict[str, object]] = {
            "a": {"parent": "x"},
            "b": {"instructions": 'say {"parent": "x"}'},
            "c": {"next": [{"id": "c.1", "after": ["y"]}]},
            "d": {"parent": "x"},
        }
        keys = insert(store, *(new_row(each, role, body=body) for each, body in bodies.items()))
        move(store, [keys["d"]], COMPLETE)
        wanted = Filter(states=(READY,), refers=True, order=order)
        expected = ["a", "c"] if order is Order.OLDEST else ["c", "a"]
        first, second = expected
        assert self.listed(store, wanted) == expected
        assert self.listed(store, replace(wanted, limit=1)) == [first]
        assert self.listed(store, replace(wanted, key=keys[first])) == [second]
        assert self.listed(store, replace(wanted, key=keys[second])) == []
        assert len(self.listed(store, replace(wanted, states=()))) == 3, "with those that are over"

    def test_by_state_and_role(self, store: Store) -> None:
        keys = add(store, *"abc")
        other = role_id(store, "other")
        insert(store, new_row("d", other))
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
        insert(store, *rows)

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
