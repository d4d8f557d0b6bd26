"""Rows as the ledger would make them, and the few steps that most contract tests share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from agentq.contracts.audit_rows import AuditFilter
from agentq.contracts.lane_rows import LaneCounts
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
    Changes,
    EffectRow,
    EventRow,
    HotRow,
    LogRow,
    NewRow,
    Reader,
    Store,
    TaskRow,
    Tx,
)
from agentq.contracts.task_filter import Filter, Order

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


def waiting_effects(reader: Reader) -> dict[str, int]:
    """How many effects wait in each lane."""
    return dict(reader.records(LaneCounts()))


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
    effects: tuple[tuple[int, str, str], ...] = (),
    after: tuple[str, ...] = (),
    resources: tuple[str, ...] = (),
    roots: tuple[int | str, ...] = (),
) -> NewRow:
    text = json.dumps({"id": id, "to": "worker", **(body or {})})
    return NewRow(
        id, role, priority, state, wake_at, at, memo, flags, text, "submitted", "",
        f"digest of {id}", effects, after, resources, roots,
    )  # fmt: skip


def role_id(store: Store, name: str = "worker") -> int:
    return store.role_ids([name])[name]


def insert(store: Store, *rows: NewRow) -> dict[str, int]:
    """Save new tasks; their keys by id, in the order given."""
    store.write(lambda tx: tx.save(Changes(new=rows)))
    keys = store.read(lambda reader: reader.keys([row.id for row in rows]))
    return {row.id: keys[row.id] for row in rows}


def add(
    store: Store, *ids: str, state: int = READY, wake_at: int = 0, after: tuple[str, ...] = ()
) -> dict[str, int]:
    """Insert tasks of the role `worker`; their keys by id."""
    role = role_id(store)
    return insert(
        store, *(new_row(name, role, state=state, wake_at=wake_at, after=after) for name in ids)
    )


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
        tx.save(stepped(*changed))
        return changed

    return store.write(change)


def stepped(*rows: HotRow, effects: Sequence[EffectRow] = ()) -> Changes:
    """What saves tasks that each made one step."""
    return Changes(tasks=rows, events=[event_of(row) for row in rows], effects=effects)


def ids_of(rows: Sequence[TaskRow]) -> list[str]:
    return [json.loads(row.spec.body)["id"] for row in rows]


def hot(store: Store, key: int) -> HotRow:
    return store.read(lambda reader: reader.tasks([key]))[0].hot


def log(store: Store) -> list[LogRow]:
    """All that has committed, in the order of the log."""
    store.number_events()
    return store.read(lambda reader: reader.events_after(0, 1_000_000))


def everything(reader: Reader) -> list[object]:
    """All that can be seen, to compare a before with an after."""
    tasks = reader.list_tasks(Filter(order=Order.OLDEST, limit=1000))
    keys = [row.hot.key for row in tasks]
    return [
        tasks,
        reader.events_after(0, 10_000),
        [reader.history(key) for key in keys],
        reader.counts(),
        reader.roles(),
        reader.lanes(),
        waiting_effects(reader),
        [reader.effects(lane, 1000) for lane in waiting_effects(reader)],
        reader.next_wake(),
        [reader.artifacts_of(key) for key in keys],
        reader.edges_of(keys),
        reader.trees_of(keys),
        reader.resources(["gpu", "db", "port"]),
        reader.resources(),
        reader.circuits(),
        reader.records(AuditFilter()),
        reader.spending("role"),
        reader.spending("label"),
        reader.leader_leases(),
        reader.orphan_rows(10),
    ]


def holders(store: Store, *names: str) -> dict[str, list[str]]:
    """The ids of the tasks that hold these resources, by their places."""
    rows = store.read(lambda reader: reader.resources(names))
    return {row.name: [task_id for _, task_id in row.holders] for row in rows}
