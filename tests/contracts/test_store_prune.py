"""The store contract: what may be pruned, and what is left to do about files."""

from __future__ import annotations

import pytest

from agentq.contracts.service_values import FilesLeft
from agentq.contracts.store import (
    BLOCKED,
    CANCELLED,
    COMPLETE,
    FAILED,
    READY,
    Changes,
    DedupRow,
    Store,
    TreeRow,
    Tx,
)
from agentq.core.errors import Conflict, Unavailable
from agentq.core.states import State
from agentq.core.task import OnDependencyFailure, Spec
from agentq.core.triggers import FailureKind
from agentq.ledger.codec import SpecCache
from agentq.ledger.ledger import Ledger
from agentq.ledger.pruning import Pruner
from tests.contracts.conftest import POSTGRES, Backend
from tests.contracts.rows import add, move, new_row, role_id

LATER = 3_000_000


def prunable(store: Store) -> list[int]:
    return store.read(lambda reader: reader.prunable(LATER, 10))


class TestPrunable:
    @pytest.mark.parametrize(
        ("state", "holder", "kept"),
        [(READY, "", True), (BLOCKED, "", True), (CANCELLED, "w", True), (FAILED, "", False)],
    )
    def test_what_others_come_after(
        self, store: Store, state: int, holder: str, kept: bool
    ) -> None:
        keys = add(store, "parent") | add(store, "over", "child", after=("parent",))
        move(store, [keys["parent"], keys["over"]], COMPLETE)
        move(store, [keys["child"]], state, holder=holder, wake_at=5 if holder else 0)
        found = prunable(store)
        assert (keys["parent"] not in found) is kept
        assert keys["over"] in found

    def test_the_root_of_a_tree(self, store: Store) -> None:
        role = role_id(store)
        names = ("root", "child", "grandchild")
        rows = [new_row(name, role, roots=("root",)) for name in names]
        tree = TreeRow(0, "root", "", "", "", 0)
        store.write(lambda tx: tx.save(Changes(new=rows, trees=[tree])))
        keys = store.read(lambda reader: reader.keys(names))
        root = keys["root"]
        move(store, [root, keys["child"]], COMPLETE)
        assert prunable(store) == [keys["child"]]
        move(store, [keys["grandchild"]], COMPLETE)
        assert prunable(store) == sorted(keys.values())

    def test_asked_again_of_some(self, store: Store) -> None:
        keys = add(store, "a", "b", "c", "parent") | add(store, "child", after=("parent",))
        move(store, [keys["a"], keys["b"], keys["parent"]], COMPLETE)
        asked = [keys["parent"], keys["c"], keys["b"], 10**6]

        def still(before: int, keys: list[int], limit: int = 10, after_key: int = 0) -> list[int]:
            return store.write(
                lambda tx: tx.prunable(before, limit, after_key=after_key, keys=keys)
            )

        assert still(LATER, asked) == [keys["b"]]
        assert still(0, asked) == []
        assert still(LATER, []) == []
        both = [keys["b"], keys["a"]]
        assert still(LATER, both) == sorted(both)
        assert still(LATER, both, limit=1) == [keys["a"]]
        assert still(LATER, both, after_key=keys["a"]) == [keys["b"]]


def fail(ledger: Ledger, task_id: str) -> int:
    key = ledger.queries.find(task_id)[0]
    held = ledger.claim_task(key, "w")
    ledger.fail(key, held.task.epoch, "no", FailureKind.INVALID)
    return key


class TestPruning:
    def test_files_that_could_not_be_removed_are_removed_by_another_process(
        self, shared: Backend
    ) -> None:
        ledger = Ledger(shared.open(), lambda: 0.5)
        names = [f"task-{number}" for number in range(7)]
        ledger.submit([Spec(name, "w") for name in names])
        for name in names:
            fail(ledger, name)

        def away(task_id: str) -> None:
            raise Unavailable("It is away.", "Wait.")

        with pytest.raises(FilesLeft, match="3 tasks were deleted"):
            ledger.prune(shared.clock.now + 1, away, limit=3)
        gone: list[str] = []
        other = Ledger(shared.open(), lambda: 0.5)
        assert other.prune(shared.clock.now + 1, gone.append, limit=3) == 4
        assert gone == names
        assert other.queries.stats().outbox == {}

    def test_a_name_is_taken_for_every_process_until_its_files_are_gone(
        self, shared: Backend
    ) -> None:
        ledger = Ledger(shared.open(), lambda: 0.5, dedup_ms=1)
        other = Ledger(shared.open(), lambda: 0.5, dedup_ms=1)
        ledger.submit([Spec("chosen", "w"), Spec("made-up", "w")], {"made-up"})
        for name in ("chosen", "made-up"):
            fail(ledger, name)
        shared.clock.now += 60_000
        tried = []

        def meanwhile(task_id: str) -> None:
            for name in ("chosen", "made-up"):
                with pytest.raises(Conflict, match=name):
                    other.submit([Spec(name, "w", title="Something else")])
            with pytest.raises(Conflict, match="made-up"):
                other.submit([Spec("build", "w", next=(Spec("made-up", "w"),))])
            tried.append(task_id)
            raise Unavailable("It is away.", "Wait.")

        with pytest.raises(FilesLeft):
            ledger.prune(shared.clock.now + 1, meanwhile)
        gone: list[str] = []
        other.prune(shared.clock.now + 1, gone.append)
        assert gone == tried == ["chosen", "made-up"]
        shared.clock.now += 24 * 3_600_000
        submitted = ledger.submit([Spec(name, "w", title="Something else") for name in gone])
        assert [each.created for each in submitted] == [True, True]

    @pytest.mark.parametrize("shared", [POSTGRES], indirect=True)  # elsewhere one writes at a time
    def test_a_name_that_was_held_since_it_was_recalled_is_recalled_again(
        self, shared: Backend
    ) -> None:
        ledger = Ledger(shared.open(), lambda: 0.5)
        ledger.submit([Spec("task-0", "w")], {"task-0"})
        fail(ledger, "task-0")
        seen: list[dict[str, DedupRow]] = []

        def submit(tx: Tx) -> None:
            seen.append(tx.dedup_records(["id:task-0"]))
            if len(seen) == 1:
                ledger.prune(shared.clock.now + 1, lambda _: None)
                tx.save(Changes(dedup=[DedupRow("id:task-0", "task-0", "", READY, 1)]))

        shared.open().write(submit)
        first, again = seen
        assert first == {}
        assert again["id:task-0"].state == FAILED

    def test_what_was_opened_again_or_is_waited_for_since_it_was_found_stays(
        self, shared: Backend
    ) -> None:
        store = shared.open()
        ledger = Ledger(store, lambda: 0.5)
        ledger.submit([Spec(name, "w") for name in ("a", "b", "c", "d")])
        keys = [fail(ledger, name) for name in ("a", "b", "c", "d")]
        # Somebody else says so after they were found, and before they are locked.
        other = Ledger(shared.open(), lambda: 0.5)
        other.requeue(keys[0], "boss")
        other.submit(
            [Spec("child", "w", after=("b",), on_dependency_failure=OnDependencyFailure.RUN)]
        )
        other.submit([Spec("build", "w", next=(Spec("build.1", "w", after=("c",)),))])
        pruner = Pruner(store, SpecCache(), lambda _: None)
        before = shared.clock.now + 1
        store.number_events()
        assert store.write(lambda tx: pruner._delete(tx, before, keys)) == 1
        there = ledger.queries.by_id(["a", "b", "c", "d"])
        assert {name: task.state for name, task in there.items()} == {
            "a": State.READY, "b": State.FAILED, "c": State.FAILED,
        }  # fmt: skip
