"""The verbs of `contracts.store.Reader` on one PostgreSQL transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentq.contracts.audit_rows import TokenRow
from agentq.contracts.limit_rows import CircuitRow, ResourceRow, RoleRow, resource_rows
from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.store import (
    OVER,
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
    RecordFilter,
    SpecRow,
    SpendingRow,
    TaskRow,
    TreeRow,
)
from agentq.contracts.task_filter import Filter, Order
from agentq.stores.postgres.pipeline import Call, Exchanger, Statement, Values

NO_VALUES: Values = {}


class PostgresReader:
    """Reads on one connection, inside one transaction that its first query opens."""

    def __init__(
        self,
        wire: Exchanger,
        sql: Mapping[str, Statement],
        clock: Callable[[], int] | None,
        begin: str = "begin_reading",
    ) -> None:
        self.begun = False
        #: The server's clock as this transaction last read it; 0 if it has not.
        self.moment = 0
        self._wire = wire
        self._sql = sql
        self._clock = clock
        self._begin = begin

    def _opening(self) -> list[Call]:
        if self.begun:
            return []
        self.begun = True
        return [Call(self._sql[self._begin], NO_VALUES)]

    def _ask(
        self, name: str, values: Values = NO_VALUES, make_row: Callable[..., Any] = tuple
    ) -> list[Any]:
        return self._ask_all([Call(self._sql[name], values, make_row)])[0]

    def _ask_all(self, asked: Sequence[Call]) -> list[list[Any]]:
        """The rows of each, in one round trip."""
        return self._wire.exchange([*self._opening(), *asked])[-len(asked) :]

    def end(self) -> None:
        """End the transaction, and with it the snapshot that it reads."""
        if self.begun:
            # What was read stays true whatever becomes of this: nobody waits for its answer.
            self._wire.exchange([], [Call(self._sql["commit"], NO_VALUES)])

    def _given_now(self) -> int | None:
        """The time where it is not the server's to say, as in tests."""
        return None if self._clock is None else self._clock()

    def now(self) -> int:
        if self._clock is not None:
            return self._clock()
        if not self.moment:
            self.moment = int(self._ask("moment")[0][0])
        return self.moment

    def keys(self, ids: Iterable[str]) -> dict[str, int]:
        return dict(self._ask("keys", {"ids": list(ids)}))

    def ids_starting(self, prefix: str, limit: int) -> list[str]:
        values = {"low": prefix, "high": prefix + "\U0010ffff", "count": limit}
        return [row[0] for row in self._ask("ids_starting", values)]

    def tasks(self, keys: Sequence[int] = (), ids: Sequence[str] = ()) -> list[TaskRow]:
        if ids:
            return self._ask("tasks_named", {"ids": list(ids)}, task_row)
        return self._ask("tasks", {"keys": list(keys)}, task_row) if keys else []

    def list_tasks(self, wanted: Filter) -> list[TaskRow]:
        values: Values = {
            "key": wanted.key,
            "role": wanted.role,
            "states": list(wanted.states),
            "state": wanted.states[0] if wanted.states else READY,
            "sender": wanted.sender,
            "type": wanted.type,
            "label_names": [name for name, _ in wanted.labels],
            "label_values": [value for _, value in wanted.labels],
            "updated_before": wanted.updated_before,
            "refers": wanted.refers,
            "priority": wanted.priority,
            "count": wanted.limit,
        }
        return self._ask(_listing(wanted), values, task_row)

    def history(self, *keys: int) -> list[LogRow]:
        return self._ask("history", {"keys": keys}, log_row) if keys else []

    def events_after(self, position: int, limit: int) -> list[LogRow]:
        return self._ask("events_after", {"position": position, "count": limit}, log_row)

    def counts(self, *, live_only: bool = False, at_most: int = 0) -> list[CountRow]:
        if at_most:
            return self._ask("counts_at_most", {"at_most": at_most}, CountRow._make)
        return self._ask("live_counts" if live_only else "counts", make_row=CountRow._make)

    def effects(
        self, lane: str, limit: int, *, after: int = 0, due_only: bool = False
    ) -> list[OutboxRow]:
        values = {"lane": lane, "after": after, "count": limit, "now": self._given_now()}
        return self._ask("due_effects" if due_only else "effects", values, OutboxRow._make)

    def artifacts_of(self, *keys: int) -> list[ArtifactRow]:
        return self._ask("artifacts_of", {"keys": keys}, ArtifactRow._make) if keys else []

    def roles(self) -> list[RoleRow]:
        return self._ask("roles", make_row=RoleRow._make)

    def occupancy(self, role: int, priority: int = 0, key: int = 0) -> tuple[int, int, int]:
        running, in_review = self._ask("occupancy", {"role": role})[0]
        ahead = 0
        if key:
            ahead = self._ask("ahead", {"role": role, "priority": priority, "key": key})[0][0]
        return running, in_review, ahead

    def resources(self, names: Sequence[str] = ()) -> list[ResourceRow]:
        if names:
            return self._resources("resources", names)
        limits = self._ask("all_resources")
        holders = self._ask("holders_of", {"resources": [row[0] for row in limits]})
        return resource_rows(names, limits, holders)

    def _resources(self, statement: str, names: Sequence[str]) -> list[ResourceRow]:
        values: Values = {"resources": list(names)}
        asked = [Call(self._sql[statement], values), Call(self._sql["holders_of"], values)]
        return resource_rows(names, *self._ask_all(asked))

    def edges_of(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        return self._ask("edges_of", {"keys": list(keys)}) if keys else []

    def orphan_rows(self, limit: int) -> list[int]:
        return [row[0] for row in self._ask("orphan_rows", {"count": limit})]

    def next_wake(self) -> int:
        return int(self._ask("next_wake", {"now": self._given_now()})[0][0])

    def prunable(
        self, before: int, limit: int, *, after_key: int = 0, keys: Sequence[int] | None = None
    ) -> list[int]:
        values: dict[str, object] = {"before": before, "after_key": after_key, "count": limit}
        name = "prunable"
        if keys is not None:
            name, values["keys"] = "prunable_of", list(keys)
        return [row[0] for row in self._ask(name, values)]

    def circuits(self) -> list[CircuitRow]:
        return self._ask("circuits", make_row=CircuitRow._make)

    def spending(self, kind: str, name: str = "", day: int = 0) -> list[SpendingRow]:
        values = {"kind": kind, "name": name, "day": day}
        named = "spending_of_day" if name else "spending_on" if day else "spending"
        return self._ask(named, values, SpendingRow._make)

    def trees_of(self, keys: Sequence[int]) -> list[tuple[int, TreeRow]]:
        return self._ask("trees_of", {"keys": list(keys)}, member_row) if keys else []

    def leader_leases(self, names: Sequence[str] = ()) -> list[LeaseRow]:
        rows: list[LeaseRow] = self._ask("leader_leases", make_row=LeaseRow._make)
        return [row for row in rows if not names or row.name in names]

    def tokens(self, sha256: str = "") -> list[TokenRow]:
        if sha256:
            return self._ask("token_of", {"sha256": sha256}, TokenRow._make)
        return self._ask("tokens", make_row=TokenRow._make)

    def records(self, wanted: RecordFilter[R]) -> list[R]:
        return self._ask(wanted.listing, wanted._asdict(), wanted.make_row)

    def schedules(self, names: Sequence[str] | None = None, first: int = 0) -> list[ScheduleRow]:
        if names is not None:
            return self._ask("schedules_named", {"names": list(names)}, ScheduleRow._make)
        if first:
            return self._ask("schedules_waking", {"count": first}, ScheduleRow._make)
        return self._ask("schedules", make_row=ScheduleRow._make)

    def dedup_records(self, names: Sequence[str]) -> dict[str, DedupRow]:
        if not names:
            return {}
        rows = self._ask("dedup_records", {"names": list(names)}, DedupRow._make)
        return {row.name: row for row in rows}

    def lanes(self) -> frozenset[str]:
        return frozenset(" ".join(row[0] for row in self._ask("lanes")).split())

    def ledger_id(self) -> str:
        return "".join(row[0] for row in self._ask("ledger_id"))


def _listing(wanted: Filter) -> str:
    if wanted.order is not Order.OLDEST:
        return f"list_{wanted.order}"
    live = wanted.states and max(wanted.states) < OVER
    return "list_oldest_live" if live else "list_oldest"


def task_row(row: Sequence[Any]) -> TaskRow:
    return TaskRow(HotRow._make(row[:10]), SpecRow(row[0], row[10], row[11]))


def log_row(row: Sequence[Any]) -> LogRow:
    return LogRow(row[0], row[1], EventRow._make(row[2:]))


def member_row(row: Sequence[Any]) -> tuple[int, TreeRow]:
    return row[0], TreeRow._make(row[1:])
