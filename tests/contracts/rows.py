"""Rows as the ledger would make them, and the few steps that most contract tests share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from agentq.contracts.store import (
    BLOCKED,
    CANCELLED,
    COMPLETE,
    EXPIRED,
    FAILED,
    IN_PROGRESS,
    PENDING,
    READY,
    REVIEW,
    EventRow,
    HotRow,
    LogRow,
    NewRow,
    Reader,
    Store,
    TaskRow,
    Tx,
)

ALL_STATES = (
    PENDING,
    READY,
    IN_PROGRESS,
    REVIEW,
    BLOCKED,
    COMPLETE,
    FAILED,
    CANCELLED,
    EXPIRED,
)
#: The lanes of a new ledger.
LANES = frozenset({"results"})


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self, now: int = 1_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def new_row(
    id: str,
    role: int,
    *,
    priority: int = 2,
    state: int = READY,
    wake_at: int = 0,
    at: int = 1_000_000,
    memo: str = "",
    flags: int = 0,
    body: dict[str, object] | None = None,
) -> NewRow:
    text = json.dumps({"id": id, "to": "worker", **(body or {})})
    return NewRow(id, role, priority, state, wake_at, at, memo, flags, text, "submitted", "")


def role_id(store: Store, name: str = "worker") -> int:
    return store.role_ids([name])[name]


def add(store: Store, *ids: str, state: int = READY, wake_at: int = 0) -> dict[str, int]:
    """Insert tasks of the role `worker`; their keys by id."""
    role = role_id(store)
    rows = [new_row(name, role, state=state, wake_at=wake_at) for name in ids]
    return store.write(lambda tx: tx.insert(rows))


def moved(hot: HotRow, state: int, *, holder: str = "", wake_at: int = 0) -> HotRow:
    epoch = hot.epoch + 1 if state == IN_PROGRESS else hot.epoch
    return hot._replace(
        state=state, version=hot.version + 1, epoch=epoch, holder=holder, wake_at=wake_at
    )


def event_of(hot: HotRow, kind: str = "moved", data: str = "") -> EventRow:
    return EventRow(hot.key, hot.version, hot.updated_at, kind, "Tick", hot.state, hot.epoch, data)


def move(
    store: Store, keys: Iterable[int], state: int, *, holder: str = "", wake_at: int = 0
) -> list[HotRow]:
    """Lock, change and save, as every step of the ledger does."""

    def change(tx: Tx) -> list[HotRow]:
        changed = [moved(hot, state, holder=holder, wake_at=wake_at) for hot in tx.lock(list(keys))]
        tx.save(changed, [event_of(hot) for hot in changed], [])
        return changed

    return store.write(change)


def ids_of(rows: Sequence[TaskRow]) -> list[str]:
    return [json.loads(row.spec.body)["id"] for row in rows]


def hot(store: Store, key: int) -> HotRow:
    return store.read(lambda reader: reader.tasks([key]))[0].hot


def log(store: Store) -> list[LogRow]:
    return store.read(lambda reader: reader.events_after(0, 1_000_000))


def everything(reader: Reader) -> list[object]:
    """All that can be seen, to compare a before with an after."""
    tasks = reader.tasks(reader.keys_after(0, 1000))
    return [
        tasks,
        reader.events_after(0, 10_000),
        reader.last_position(),
        reader.roles(),
        reader.outbox_counts(),
        reader.next_wake(),
        [reader.artifacts_of(row.hot.key) for row in tasks],
        [reader.parents_of(row.hot.key) for row in tasks],
        reader.holders_of(["gpu", "db", "port"]),
    ]
