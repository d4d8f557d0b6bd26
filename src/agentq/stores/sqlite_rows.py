"""The verbs of `contracts.store.Tx` on an open SQLite transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from agentq.contracts.store import (
    ArtifactRow,
    CircuitRow,
    DedupRow,
    EffectRow,
    EventRow,
    Filter,
    HotRow,
    Lease,
    LeavingRow,
    LogRow,
    NewRow,
    OutboxRow,
    RoleRow,
    SpecRow,
    SpendingRow,
    TaskRow,
    TermRow,
    TreeRow,
)


def _json(values: Sequence[Any]) -> str:
    return msgspec.json.encode(values).decode()


class SqliteTx:
    """Speaks SQL on one connection. Whoever owns it begins and commits."""

    def __init__(
        self, connection: apsw.Connection, sql: Mapping[str, str], clock: Callable[[], int]
    ) -> None:
        self.connection = connection
        self.now = clock
        self.topics: set[str] = set()
        self._sql = sql
        #: The last task key and the last position in the log, counted on from one transaction to
        #: the next while nobody else writes: then the file still has the version we left.
        self._key = self._position = 0
        self._counted = False
        self._version = 0
        #: Position of the newest event of each task met in this transaction: the chain's end.
        self._last_events: dict[int, int] = {}
        #: Which lanes were open at the last insert; whoever prepared effects must have known them.
        self.inserted_under: frozenset[str] = frozenset()

    def begin(self) -> None:
        self.topics = set()
        self._last_events.clear()
        self._counted = self._counted and self._version == self.connection.data_version()

    def committed(self) -> None:
        if self._counted:
            self._version = self.connection.data_version()

    def rolled_back(self) -> None:
        self._counted = False

    def _count(self) -> None:
        """Know where keys and positions go on, and which lanes are open."""
        if not self._counted:
            lanes, self._key, self._position = self._all("head")[0]
            self.inserted_under = frozenset(lanes.split())
            self._counted = True

    def _all(self, name: str, bindings: Any = ()) -> list[Any]:
        return self.connection.execute(self._sql[name], bindings).fetchall()

    def _task_rows(self, rows: Iterable[tuple[Any, ...]]) -> list[TaskRow]:
        found = []
        for row in rows:
            self._last_events[row[0]] = row[9]
            found.append(TaskRow(HotRow(*row[:9]), SpecRow(row[0], row[10], row[11])))
        return found

    def _hot_rows(self, rows: Iterable[tuple[Any, ...]]) -> list[HotRow]:
        found = []
        for row in rows:
            self._last_events[row[0]] = row[9]
            found.append(HotRow(*row[:9]))
        return found

    def _many(self, name: str, rows: Iterable[Any]) -> None:
        self.connection.executemany(self._sql[name], rows)

    # -- looking ---------------------------------------------------------------------------------

    def keys(self, ids: Iterable[str]) -> dict[str, int]:
        return dict(self._all("keys", (_json(list(ids)),)))

    def ids_starting(self, prefix: str, limit: int) -> list[str]:
        high = prefix + "\U0010ffff"
        rows = self._all("ids_starting", {"low": prefix, "high": high, "count": limit})
        return [row[0] for row in rows]

    def tasks(self, keys: Sequence[int]) -> list[TaskRow]:
        return self._task_rows(self._all("tasks", (_json(list(keys)),)))

    def list_tasks(self, wanted: Filter) -> list[TaskRow]:
        return self._task_rows(
            self._all(
                "list_tasks",
                {
                    "before_key": wanted.before_key,
                    "role": wanted.role,
                    "states": _json(wanted.states),
                    "sender": wanted.sender,
                    "type": wanted.type,
                    "labels": _json(wanted.labels),
                    "count": wanted.limit,
                },
            )
        )

    def keys_after(self, key: int, limit: int) -> list[int]:
        return [row[0] for row in self._all("keys_after", {"key": key, "count": limit})]

    def events_of(self, key: int) -> list[LogRow]:
        return _log_rows(self._all("events_of", {"key": key}))

    def events_after(self, position: int, limit: int) -> list[LogRow]:
        return _log_rows(self._all("events_after", {"position": position, "count": limit}))

    def last_position(self) -> int:
        return int(self._all("last_position")[0][0])

    def counts(self) -> list[tuple[str, int, int]]:
        return self._all("counts")

    def oldest_ready(self) -> list[tuple[str, int]]:
        return self._all("oldest_ready")

    def artifacts_of(self, key: int) -> list[ArtifactRow]:
        return [ArtifactRow(*row) for row in self._all("artifacts_of", {"key": key})]

    def roles(self) -> list[RoleRow]:
        return [RoleRow(*row) for row in self._all("roles")]

    def occupancy(self, role: int) -> tuple[int, int]:
        running, in_review = self._all("occupancy", {"role": role})[0]
        return running, in_review

    def holders_of(self, resources: Sequence[str]) -> dict[str, str]:
        return dict(self._all("holders_of", (_json(list(resources)),)))

    def outbox_counts(self) -> dict[str, int]:
        return dict(self._all("outbox_counts"))

    def parents_of(self, key: int) -> list[int]:
        return [row[0] for row in self._all("parents_of", {"key": key})]

    def ahead(self, role: int, priority: int, key: int) -> int:
        return int(self._all("ahead", {"role": role, "priority": priority, "key": key})[0][0])

    def halves(self, limit: int) -> list[int]:
        return [row[0] for row in self._all("halves", {"count": limit})]

    def role(self, role: int) -> RoleRow:
        return RoleRow(*self._all("role", {"role": role})[0])

    def next_wake(self) -> int:
        return int(self._all("next_wake")[0][0])

    def prunable(self, before: int, after_key: int, limit: int) -> list[int]:
        bindings = {"before": before, "after_key": after_key, "count": limit}
        return [row[0] for row in self._all("prunable", bindings)]

    def still_prunable(self, before: int, keys: Sequence[int]) -> list[int]:
        return [row[0] for row in self._all("still_prunable", (_json(list(keys)), before))]

    def last_key(self) -> int:
        return int(self._all("last_key")[0][0])

    def outbox_after(self, lane: str, sequence: int, limit: int) -> list[OutboxRow]:
        rows = self._all("outbox_after", {"lane": lane, "sequence": sequence, "count": limit})
        return [OutboxRow(*row) for row in rows]

    def naming(self, after_key: int, limit: int) -> list[SpecRow]:
        bindings = {"after_key": after_key, "count": limit}
        return [SpecRow(*row) for row in self._all("naming", bindings)]

    def circuits(self) -> list[CircuitRow]:
        return [CircuitRow(*row) for row in self._all("circuits")]

    def spent_on(self, kind: str, name: str, day: int) -> SpendingRow | None:
        rows = self._all("spent_on", {"kind": kind, "name": name, "day": day})
        return SpendingRow(*rows[0]) if rows else None

    def spending(self, kind: str) -> list[SpendingRow]:
        return [SpendingRow(*row) for row in self._all("spending", {"kind": kind})]

    def trees_of(self, keys: Sequence[int]) -> list[TreeRow]:
        return [TreeRow(*row) for row in self._all("trees_of", (_json(list(keys)),))]

    def membership(self, ids: Iterable[str]) -> list[tuple[str, int]]:
        return self._all("membership", (_json(list(ids)),))

    def leaving(self, lane: str, count: int) -> list[LeavingRow]:
        rows = self._all("leaving", {"lane": lane, "now": self.now(), "count": count})
        return [
            LeavingRow(
                OutboxRow(*row[:6]), TaskRow(HotRow(*row[6:15]), SpecRow(row[6], row[15], row[16]))
            )
            for row in rows
        ]

    def ready_counts(self) -> dict[str, int]:
        return dict(self._all("ready_counts"))

    def ready_after(
        self, role: int, before: int, count: int, priority: int, key: int
    ) -> list[TaskRow]:
        wanted = {"role": role, "before": before, "priority": priority, "key": key, "count": count}
        return self._task_rows(self._all("ready_after", wanted))

    def terms(self) -> list[TermRow]:
        return [TermRow(*row) for row in self._all("terms")]

    # -- tasks -----------------------------------------------------------------------------------

    def insert_one(self, row: NewRow, task_id: str, body: str) -> bool:
        """One plain task, the most common case. False if its id is taken."""
        self._count()
        self._key = key = self._key + 1
        self._position = position = self._position + 1
        execute, sql = self.connection.execute, self._sql
        execute(sql["insert_spec"], (key, task_id, row.at, body))
        if not self.connection.changes():
            return False
        execute(
            sql["insert_task"],
            (key, row.role, row.priority, row.state, row.wake_at, row.at, row.memo, row.flags,
             position),
        )  # fmt: skip
        execute(
            sql["insert_event"],
            (position, 0, key, 1, row.at, row.kind, "Submit", row.state, 0, row.data),
        )
        return True

    def insert_alike(self, row: NewRow, words: Sequence[tuple[str, str]]) -> bool:
        """Tasks that differ in id and body only: what they share is said once, and the tables fill
        each other. False if an id is taken: then roll back."""
        self._count()
        last_key, last_position = self._key, self._position
        before = self.connection.total_changes()
        at = row.at
        self._many(
            "insert_spec",
            [(key, task_id, at, body) for key, (task_id, body) in enumerate(words, last_key + 1)],
        )
        if self.connection.total_changes() - before < len(words):
            return False
        shared = row._asdict() | {"last_key": last_key, "ahead": last_position - last_key}
        self._all("insert_tasks_alike", shared)
        self._all("insert_events_alike", shared)
        self._key = last_key + len(words)
        self._position = last_position + len(words)
        return True

    def insert(self, rows: Sequence[NewRow]) -> dict[str, int]:
        self._count()
        last_key = self._key
        self._key += len(rows)
        before = self.connection.total_changes()
        self._many(
            "insert_spec",
            [(key, row.id, row.at, row.body) for key, row in enumerate(rows, last_key + 1)],
        )
        kept: dict[str, int] | None = None
        if self.connection.total_changes() - before < len(rows):
            kept = dict(self._all("newer_specs", (last_key,)))
        inserted: dict[str, int] = {}
        tasks: list[tuple[Any, ...]] = []
        events: list[EventRow] = []
        position = self._position
        for key, row in enumerate(rows, last_key + 1):
            if kept is not None and kept.get(row.id) != key:
                continue  # that id was taken
            position += 1
            inserted[row.id] = key
            tasks.append(
                (key, row.role, row.priority, row.state, row.wake_at, row.at, row.memo, row.flags,
                 position)
            )  # fmt: skip
            events.append(EventRow(key, 1, row.at, row.kind, "Submit", row.state, 0, row.data))
        self._many("insert_task", tasks)
        self._append(events)
        return inserted

    def add_new_effects(
        self, inserted: Mapping[str, int], effects: Mapping[str, Sequence[tuple[str, str]]]
    ) -> None:
        self._many(
            "insert_effect",
            [
                (inserted[task_id], 1, number, lane, payload)
                for task_id, listed in effects.items()
                if task_id in inserted
                for number, (lane, payload) in enumerate(listed)
            ],
        )

    def _append(self, events: Sequence[EventRow]) -> None:
        """Events get their positions here: writers take turns, so this is the order of commits."""
        self._count()
        position, last = self._position, self._last_events
        rows = []
        for event in events:
            position += 1
            rows.append((position, last.get(event.key, 0), *event))
            last[event.key] = position
        self._position = position
        self._many("insert_event", rows)

    def lock(self, keys: Sequence[int]) -> list[HotRow]:
        if len(keys) == 1:
            return self._hot_rows(self._all("lock_one", (keys[0],)))
        return self._hot_rows(self._all("lock", (_json(list(keys)),)))

    def pick(self, role: int, count: int) -> list[TaskRow]:
        return self._task_rows(self._all("pick", (role, count)))

    def pick_after(self, role: int, count: int, priority: int, key: int) -> list[TaskRow]:
        return self._task_rows(self._all("pick_after", (role, priority, key, count)))

    def foresee(self, role: int, count: int, provider: str = "") -> None:
        """Nothing to gain here: nobody is asked but the file."""

    def pick_freely(
        self, role: int, count: int, provider: str = ""
    ) -> tuple[RoleRow, int, list[TaskRow]]:
        row = self.role(role)
        open_until = self._open_until(provider) if provider else 0
        return row, open_until, [] if row.is_limited or open_until else self.pick(role, count)

    def pick_named(
        self, role: int, ids: Sequence[str], provider: str = ""
    ) -> tuple[RoleRow, int, list[TaskRow]]:
        open_until = self._open_until(provider) if provider else 0
        asked = {"ids": _json(list(ids)), "role": role}
        picked = [] if open_until else self._task_rows(self._all("pick_named", asked))
        return self.role(role), open_until, picked

    def _open_until(self, provider: str) -> int:
        rows = self._all("circuit", {"provider": provider})
        open_until = int(rows[0][1]) if rows else 0
        return open_until if open_until > self.now() else 0

    def due(self, now: int, count: int) -> list[TaskRow]:
        return self._task_rows(self._all("due", (now, count)))

    def save(
        self, hot: Sequence[HotRow], events: Sequence[EventRow], effects: Sequence[EffectRow]
    ) -> None:
        self._append(events)
        last = self._last_events
        self._many("update_task", [(*row[1:], last[row[0]], row[0]) for row in hot])
        if effects:
            self._many("insert_effect", effects)

    def ring(self, topics: Iterable[str]) -> None:
        self.topics.update(topics)

    def renew(self, leases: Sequence[Lease]) -> set[int]:
        now = self.now()
        rows = self.connection.executemany(
            self._sql["renew"], [(now + lease.lease_ms, lease.key, lease.epoch) for lease in leases]
        )
        return {row[0] for row in rows}

    # -- lanes -----------------------------------------------------------------------------------

    def lanes(self) -> frozenset[str]:
        return frozenset(self._all("lanes")[0][0].split())

    def set_lanes(self, lanes: frozenset[str]) -> None:
        self._all("set_lanes", (" ".join(sorted(lanes)),))
        self._counted = False

    def take_effects(self, lane: str, now: int, count: int, until: int) -> list[OutboxRow]:
        rows = self._all("take_effects", (until, lane, now, count))
        return sorted(OutboxRow(*row) for row in rows)

    def ack_effects(self, sequences: Sequence[int]) -> None:
        self._many("ack_effect", [(sequence,) for sequence in sequences])

    def postpone_effects(self, sequences: Sequence[int], until: int) -> None:
        self._many("postpone_effect", [(until, sequence) for sequence in sequences])

    def relax(self) -> None:
        """Nothing to gain: a commit that is not synced is synced by the next."""

    def lock_terms(self, names: Sequence[str]) -> list[TermRow]:
        self._many("insert_term", [(name,) for name in names])
        wanted = set(names)
        return [row for row in self.terms() if row.name in wanted]

    def set_terms(self, rows: Sequence[TermRow]) -> None:
        self._many("set_term", [row._asdict() for row in rows])

    # -- the graph, roles and resources ----------------------------------------------------------

    def link(self, edges: Sequence[tuple[int, int]]) -> None:
        self._many("insert_edge", edges)
        self._many("mark_parent", [(parent,) for parent in {parent for parent, _ in edges}])

    def children(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        return self._all("children", (_json(list(keys)),))

    def create_role(self, name: str) -> int:
        self._all("insert_role", (name,))
        return int(self._all("role_id", (name,))[0][0])

    def lock_role(self, role: int) -> RoleRow:
        return self.role(role)

    def set_role(self, row: RoleRow) -> None:
        self._all("set_role", row._asdict())

    def want(self, key: int, resources: Sequence[str]) -> None:
        self._many("want", [(key, resource) for resource in resources])

    def hold(self, key: int, resources: Sequence[str]) -> bool:
        for resource in resources:
            self._all("hold", (resource, key))
            if not self.connection.changes():
                self._all("unhold", (key,))
                return False
        return True

    def unhold(self, keys: Sequence[int]) -> None:
        self._many("unhold", [(key,) for key in keys])

    # -- records beside the tasks ----------------------------------------------------------------

    def recall(self, names: Sequence[str]) -> dict[str, DedupRow]:
        return {row[0]: DedupRow(*row) for row in self._all("recall", (_json(list(names)),))}

    def remember(self, rows: Sequence[DedupRow]) -> None:
        self._many("remember", rows)

    def add_artifacts(self, rows: Sequence[ArtifactRow]) -> None:
        self._many("add_artifact", rows)

    def delete(self, keys: Sequence[int]) -> None:
        self._all("set_floors")
        each = [(key,) for key in keys]
        for name in ("keep_outcome", "delete_events", "delete_artifacts", "delete_outbox",
                     "unhold", "delete_wants", "delete_parents", "delete_children",
                     "leave_trees", "delete_task", "delete_spec"):  # fmt: skip
            self._many(name, each)
        self._all("fell_trees")
        self._counted = False

    def forget_dedup(self, now: int) -> int:
        self._all("forget_dedup", {"now": now})
        return self.connection.changes()

    # -- circuits and budgets --------------------------------------------------------------------

    def extend_circuit(self, row: CircuitRow) -> CircuitRow:
        self._all("extend_circuit", row._asdict())
        return CircuitRow(*self._all("circuit", {"provider": row.provider})[0])

    def close_circuit(self, provider: str, at: int, reason: str) -> bool:
        return bool(self._all("close_circuit", {"provider": provider, "at": at, "reason": reason}))

    def add_spending(self, rows: Sequence[SpendingRow]) -> None:
        self._many("add_spending", rows)

    def forget_spending(self, kind: str, before_day: int) -> None:
        self._all("forget_spending", {"kind": kind, "before_day": before_day})

    def lock_trees(self, keys: Sequence[int]) -> list[tuple[int, TreeRow]]:
        rows = self._all("lock_trees", (_json(list(keys)),))
        return [(row[0], TreeRow(*row[1:])) for row in rows]

    def set_trees(self, rows: Sequence[TreeRow]) -> None:
        self._many("set_tree", rows)

    def join_trees(self, members: Sequence[tuple[int, int]]) -> None:
        self._many("join_tree", members)

    def waiting_roles(self, roots: Sequence[int]) -> list[str]:
        return [row[0] for row in self._all("waiting_roles", (_json(list(roots)),))]


def _log_rows(rows: Iterable[tuple[Any, ...]]) -> list[LogRow]:
    return [LogRow(row[0], row[1], EventRow(*row[2:])) for row in rows]
