"""The verbs of `contracts.store.Reader` on an open SQLite transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from agentq.contracts.audit_rows import TokenRow
from agentq.contracts.limit_rows import CircuitRow, ResourceRow, RoleRow, resource_rows
from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.store import (
    READY,
    ArtifactRow,
    CountRow,
    DedupRow,
    EventRow,
    HotRow,
    LeaseRow,
    LogRow,
    OutboxRow,
    R,
    Reader,
    RecordFilter,
    SpecRow,
    SpendingRow,
    TaskRow,
    TreeRow,
)
from agentq.contracts.task_filter import Filter, Order


def as_json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()


class SqliteReader:
    """Reads on one connection; its owner begins and ends the transaction."""

    def __init__(
        self, connection: apsw.Connection, sql: Mapping[str, str], clock: Callable[[], int]
    ) -> None:
        self.connection = connection
        self.now = clock
        self._sql = sql
        #: Position of the newest event of each task met in this transaction: the chain's end.
        self._last_events: dict[int, int] = {}

    def _all(self, name: str, bindings: Any = ()) -> list[Any]:
        return self.connection.execute(self._sql[name], bindings).fetchall()

    def _task_rows(self, rows: Iterable[tuple[Any, ...]]) -> list[TaskRow]:
        found = []
        for row in rows:
            self._last_events[row[0]] = row[10]
            found.append(TaskRow(HotRow._make(row[:10]), SpecRow(row[0], row[11], row[12])))
        return found

    def keys(self, ids: Iterable[str]) -> dict[str, int]:
        return dict(self._all("keys", (as_json(list(ids)),)))

    def ids_starting(self, prefix: str, limit: int) -> list[str]:
        high = prefix + "\U0010ffff"
        rows = self._all("ids_starting", {"low": prefix, "high": high, "count": limit})
        return [row[0] for row in rows]

    def tasks(self, keys: Sequence[int] = (), ids: Sequence[str] = ()) -> list[TaskRow]:
        if ids:
            return self._task_rows(self._all("tasks_named", (as_json(list(ids)),)))
        return self._task_rows(self._all("tasks", (as_json(list(keys)),)))

    def list_tasks(self, wanted: Filter) -> list[TaskRow]:
        bindings = {
            "key": wanted.key,
            "role": wanted.role,
            "states": as_json(wanted.states),
            "state": wanted.states[0] if wanted.states else READY,
            "sender": wanted.sender,
            "type": wanted.type,
            "labels": as_json(wanted.labels),
            "updated_before": wanted.updated_before,
            "refers": wanted.refers,
            "priority": wanted.priority,
            "count": wanted.limit,
        }
        return self._task_rows(self._all(_LISTINGS[wanted.order], bindings))

    def history(self, *keys: int) -> list[LogRow]:
        return _log_rows(self._all("history", {"keys": as_json(keys)}))

    def events_after(self, position: int, limit: int) -> list[LogRow]:
        return _log_rows(self._all("events_after", {"position": position, "count": limit}))

    def counts(self, *, live_only: bool = False, at_most: int = 0) -> list[CountRow]:
        if at_most:
            rows = self._all("counts_at_most", {"at_most": at_most})
        else:
            rows = self._all("live_counts" if live_only else "counts")
        return [CountRow(*row) for row in rows]

    def effects(
        self, lane: str, limit: int, *, after: int = 0, due_only: bool = False
    ) -> list[OutboxRow]:
        bindings = {"lane": lane, "after": after, "count": limit, "now": self.now()}
        rows = self._all("due_effects" if due_only else "effects", bindings)
        return [OutboxRow(*row) for row in rows]

    def artifacts_of(self, *keys: int) -> list[ArtifactRow]:
        rows = self._all("artifacts_of", {"keys": as_json(keys)})
        return [ArtifactRow(*row) for row in rows]

    def roles(self) -> list[RoleRow]:
        return [RoleRow(*row) for row in self._all("roles")]

    def occupancy(self, role: int, priority: int = 0, key: int = 0) -> tuple[int, int, int]:
        running, in_review = self._all("occupancy", {"role": role})[0]
        ahead = 0
        if key:
            bindings = {"role": role, "priority": priority, "key": key}
            ahead = self._all("ahead", bindings)[0][0]
        return running, in_review, ahead

    def resources(self, names: Sequence[str] = ()) -> list[ResourceRow]:
        wanted = (as_json(list(names)),)
        limits = self._all("resources", wanted) if names else self._all("all_resources")
        held = wanted if names else (as_json([row[0] for row in limits]),)
        return resource_rows(names, limits, self._all("holders_of", held))

    def edges_of(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        return self._all("edges_of", {"keys": as_json(list(keys))})

    def orphan_rows(self, limit: int) -> list[int]:
        return [row[0] for row in self._all("orphan_rows", {"count": limit})]

    def next_wake(self) -> int:
        return int(self._all("next_wake", {"now": self.now()})[0][0])

    def prunable(
        self, before: int, limit: int, *, after_key: int = 0, keys: Sequence[int] | None = None
    ) -> list[int]:
        bindings = {"before": before, "after_key": after_key, "count": limit}
        if keys is None:
            return [row[0] for row in self._all("prunable", bindings)]
        return [
            row[0] for row in self._all("prunable_of", bindings | {"keys": as_json(list(keys))})
        ]

    def circuits(self) -> list[CircuitRow]:
        return [CircuitRow(*row) for row in self._all("circuits")]

    def spending(self, kind: str, name: str = "", day: int = 0) -> list[SpendingRow]:
        bindings = {"kind": kind, "name": name, "day": day}
        named = "spending_of_day" if name else "spending_on" if day else "spending"
        rows = self._all(named, bindings)
        return [SpendingRow(*row) for row in rows]

    def trees_of(self, keys: Sequence[int]) -> list[tuple[int, TreeRow]]:
        rows = self._all("trees_of", (as_json(list(keys)),))
        return [(row[0], TreeRow(*row[1:])) for row in rows]

    def leader_leases(self, names: Sequence[str] = ()) -> list[LeaseRow]:
        rows = [LeaseRow(*row) for row in self._all("leader_leases")]
        return [row for row in rows if not names or row.name in names]

    def tokens(self, sha256: str = "") -> list[TokenRow]:
        rows = self._all("token_of", {"sha256": sha256}) if sha256 else self._all("tokens")
        return [TokenRow(*row) for row in rows]

    def records(self, wanted: RecordFilter[R]) -> list[R]:
        rows = self._all(wanted.listing, wanted._asdict())
        return [wanted.make_row(row) for row in rows]

    def schedules(self, names: Sequence[str] | None = None, first: int = 0) -> list[ScheduleRow]:
        if names is not None:
            rows = self._all("schedules_named", (as_json(list(names)),))
        elif first:
            rows = self._all("schedules_waking", {"count": first})
        else:
            rows = self._all("schedules")
        return [ScheduleRow(*row) for row in rows]

    def dedup_records(self, names: Sequence[str]) -> dict[str, DedupRow]:
        rows = self._all("dedup_records", (as_json(list(names)),))
        return {row[0]: DedupRow(*row) for row in rows}

    def last_position(self) -> int:
        return int(self._all("last_position")[0][0])

    def lanes(self) -> frozenset[str]:
        return frozenset(" ".join(row[0] for row in self._all("lanes")).split())

    def ledger_id(self) -> str:
        return "".join(row[0] for row in self._all("ledger_id"))


_LISTINGS = {
    Order.NEWEST: "list_newest",
    Order.OLDEST: "list_oldest",
    Order.URGENT: "list_urgent",
    Order.APPROVAL: "list_approval",
    Order.MENTIONED: "list_mentioned",
    Order.DEAD: "list_dead",
}


def _log_rows(rows: Iterable[tuple[Any, ...]]) -> list[LogRow]:
    return [LogRow(row[0], row[1], EventRow(*row[2:])) for row in rows]


def last_position(reader: Reader) -> int:
    """The position of the newest event; no verb of the contract (see `Store.number_events`)."""
    assert isinstance(reader, SqliteReader)
    return reader.last_position()
