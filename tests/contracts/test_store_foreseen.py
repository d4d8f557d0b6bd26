"""A pick that was foreseen travels with the lock before it, and is the pick it would have been."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentq.contracts.store import COMPLETE, READY, Store, Tx
from tests.contracts.conftest import Backend
from tests.contracts.rows import add, event_of, hot, ids_of, log, moved, role_id


def lock_and_pick(
    store: Store, key: int, between: Callable[[Tx], object] = lambda tx: None, provider: str = ""
) -> list[str]:
    role = role_id(store)

    def change(tx: Tx) -> list[str]:
        tx.foresee(role, 10, provider)
        (row,) = tx.lock([key])
        between(tx)
        role_row, until, picked = tx.pick_freely(role, 10, provider)
        assert role_row.id == role and until == 0
        row = moved(row, COMPLETE)
        tx.save([row], [event_of(row)], [])
        return ids_of([each for each in picked if each.hot.key != key])

    return store.write(change)


@pytest.mark.parametrize("provider", ["", "acme"])
def test_it_gives_what_is_ready(store: Store, provider: str) -> None:
    key = add(store, "a")["a"]
    add(store, "b")
    add(store, "c")
    assert lock_and_pick(store, key, provider=provider) == ["b", "c"]
    assert hot(store, key).state == COMPLETE


def test_other_questions_may_come_between(store: Store) -> None:
    key = add(store, "a")["a"]
    add(store, "b")
    seen: list[object] = []

    def ask(tx: Tx) -> None:
        seen.append(tx.artifacts_of(key))
        seen.append(tx.now() > 0)

    assert lock_and_pick(store, key, ask) == ["b"]
    assert seen == [[], True]


def test_one_that_nobody_asks_for_is_forgotten(store: Store) -> None:
    key = add(store, "a")["a"]
    other = add(store, "b")["b"]
    role = role_id(store)

    def change(tx: Tx) -> None:
        tx.foresee(role, 10)
        row = moved(tx.lock([key])[0], COMPLETE)
        tx.save([row], [event_of(row)], [])

    store.write(change)
    assert hot(store, key).state == COMPLETE and hot(store, other).state == READY
    assert [entry.event.version for entry in log(store)] == [1, 1, 2]


def test_a_change_that_gives_up_leaves_nothing_behind(shared: Backend) -> None:
    store = shared.open()
    key = add(store, "a")["a"]
    role = role_id(store)

    def change(tx: Tx) -> None:
        tx.foresee(role, 10)
        tx.lock([key])
        raise KeyError("changed my mind")

    with pytest.raises(KeyError):
        store.write(change)
    another = shared.open()
    for each in (store, another):  # nothing is locked any more, and the connection is sound
        assert lock_and_pick(each, next(iter(add(each, f"next-{id(each)}").values()))) == ["a"]
