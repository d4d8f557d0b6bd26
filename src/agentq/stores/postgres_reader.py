"""The verbs of `contracts.store.Reader` on one PostgreSQL transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agentq.contracts.store import (
    ArtifactRow,
    CircuitRow,
    EventRow,
    Filter,
    HotRow,
    LeavingRow,
    LogRow,
    OutboxRow,
    RoleRow,
    SpecRow,
    SpendingRow,
    TaskRow,
    TermRow,
    TreeRow,
)
from agentq.stores.postgres_wire import Call, Statement, Values, Wire

NO_VALUES: Values = {}


class PostgresReader:
    """Looks through one connection, inside one transaction that its first question opens."""

    def __init__(
        self,
        wire: Wire,
        sql: Mapping[str, Statement],
        clock: Callable[[], int] | None,
        begin: str = "begin_reading",
    ) -> None:
        self.begun = False
        #: The server's clock as this transaction last heard it; 0 if it did not.
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
        calls = [*self._opening(), Call(self._sql[name], values, make_row)]
        return self._wire.exchange(calls)[-1]

    def end(self) -> None:
        """Let go of the snapshot."""
        if self.begun:
            self._wire.exchange([Call(self._sql["commit"], NO_VALUES)])

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

    def tasks(self, keys: Sequence[int]) -> list[TaskRow]:
        return self._ask("tasks", {"keys": list(keys)}, task_row) if keys else []

    def list_tasks(self, wanted: Filter) -> list[TaskRow]:
        values: Values = {
            "before_key": wanted.before_key,
            "role": wanted.role,
            "states": list(wanted.states),
            "sender": wanted.sender,
            "type": wanted.type,
            "label_names": [name for name, _ in wanted.labels],
            "label_values": [value for _, value in wanted.labels],
            "count": wanted.limit,
        }
        return self._ask("list_tasks", values, task_row)

    def keys_after(self, key: int, limit: int) -> list[int]:
        return [row[0] for row in self._ask("keys_after", {"key": key, "count": limit})]

    def events_of(self, key: int) -> list[LogRow]:
        return self._ask("events_of", {"key": key}, log_row)

    def events_after(self, position: int, limit: int) -> list[LogRow]:
        return self._ask("events_after", {"position": position, "count": limit}, log_row)

    def last_position(self) -> int:
        return int(self._ask("last_position")[0][0])

    def counts(self) -> list[tuple[str, int, int]]:
        return self._ask("counts")

    def oldest_ready(self) -> list[tuple[str, int]]:
        return self._ask("oldest_ready")

    def artifacts_of(self, key: int) -> list[ArtifactRow]:
        return self._ask("artifacts_of", {"key": key}, ArtifactRow._make)

    def roles(self) -> list[RoleRow]:
        return self._ask("roles", make_row=RoleRow._make)

    def occupancy(self, role: int) -> tuple[int, int]:
        running, in_review = self._ask("occupancy", {"role": role})[0]
        return running, in_review

    def holders_of(self, resources: Sequence[str]) -> dict[str, str]:
        if not resources:
            return {}
        return dict(self._ask("holders_of", {"resources": list(resources)}))

    def outbox_counts(self) -> dict[str, int]:
        return dict(self._ask("outbox_counts"))

    def parents_of(self, key: int) -> list[int]:
        return [row[0] for row in self._ask("parents_of", {"key": key})]

    def ahead(self, role: int, priority: int, key: int) -> int:
        return int(self._ask("ahead", {"role": role, "priority": priority, "key": key})[0][0])

    def halves(self, limit: int) -> list[int]:
        return [row[0] for row in self._ask("halves", {"count": limit})]

    def role(self, role: int) -> RoleRow:
        row: RoleRow = self._ask("role", {"role": role}, RoleRow._make)[0]
        return row

    def next_wake(self) -> int:
        return int(self._ask("next_wake")[0][0])

    def prunable(self, before: int, after_key: int, limit: int) -> list[int]:
        values = {"before": before, "after_key": after_key, "count": limit}
        return [row[0] for row in self._ask("prunable", values)]

    def still_prunable(self, before: int, keys: Sequence[int]) -> list[int]:
        values = {"before": before, "keys": list(keys)}
        return [row[0] for row in self._ask("still_prunable", values)]

    def last_key(self) -> int:
        return int(self._ask("last_key")[0][0])

    def outbox_after(self, lane: str, sequence: int, limit: int) -> list[OutboxRow]:
        values = {"lane": lane, "sequence": sequence, "count": limit}
        return self._ask("outbox_after", values, OutboxRow._make)

    def naming(self, after_key: int, limit: int) -> list[SpecRow]:
        values = {"after_key": after_key, "count": limit}
        return self._ask("naming", values, SpecRow._make)

    def circuits(self) -> list[CircuitRow]:
        return self._ask("circuits", make_row=CircuitRow._make)

    def spent_on(self, kind: str, name: str, day: int) -> SpendingRow | None:
        values = {"kind": kind, "name": name, "day": day}
        return next(iter(self._ask("spent_on", values, SpendingRow._make)), None)

    def spending(self, kind: str) -> list[SpendingRow]:
        return self._ask("spending", {"kind": kind}, SpendingRow._make)

    def trees_of(self, keys: Sequence[int]) -> list[TreeRow]:
        return self._ask("trees_of", {"keys": list(keys)}, TreeRow._make) if keys else []

    def membership(self, ids: Iterable[str]) -> list[tuple[str, int]]:
        return self._ask("membership", {"ids": list(ids)})

    def leaving(self, lane: str, count: int) -> list[LeavingRow]:
        now = None if self._clock is None else self._clock()
        return self._ask("leaving", {"lane": lane, "now": now, "count": count}, leaving_row)

    def ready_counts(self) -> dict[str, int]:
        return dict(self._ask("ready_counts"))

    def ready_after(
        self, role: int, before: int, count: int, priority: int, key: int
    ) -> list[TaskRow]:
        values = {"role": role, "before": before, "count": count, "priority": priority, "key": key}
        return self._ask("ready_after", values, task_row)

    def terms(self) -> list[TermRow]:
        return self._ask("terms", make_row=TermRow._make)


def task_row(row: Sequence[Any]) -> TaskRow:
    return TaskRow(HotRow._make(row[:9]), SpecRow(row[0], row[9], row[10]))


def leaving_row(row: Sequence[Any]) -> LeavingRow:
    return LeavingRow(OutboxRow._make(row[:6]), task_row(row[6:]))


def log_row(row: Sequence[Any]) -> LogRow:
    return LogRow(row[0], row[1], EventRow._make(row[2:]))
