"""The verbs of `contracts.store.Tx` on an open SQLite transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from agentq.contracts.limit_rows import RoleRow
from agentq.contracts.store import (
    Changes,
    EventRow,
    Expired,
    HotRow,
    Lease,
    LeaseRow,
    NewRow,
    Picked,
    RunAgain,
    SpecRow,
    TaskRow,
    TreeRow,
)
from agentq.stores.sqlite.reader import SqliteReader, as_json


class SqliteTx(SqliteReader):
    """Writes on one connection; its owner begins and commits the transaction."""

    def __init__(
        self, connection: apsw.Connection, sql: Mapping[str, str], clock: Callable[[], int]
    ) -> None:
        super().__init__(connection, sql, clock)
        self.topics: set[str] = set()
        #: The last task key, the last position in the log and the open lanes, known on from one
        #: transaction to the next while nobody else writes: then the file still has the version
        #: we left.
        self._key = self._position = 0
        self._lanes: frozenset[str] = frozenset()
        self._counted = False
        self._version = 0

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
        """Load the last key, the last position and the open lanes, unless they are known."""
        if not self._counted:
            self._key, self._position, lanes = self._all("head")[0]
            self._lanes = frozenset(lanes.split())
            self._counted = True

    def lanes(self) -> frozenset[str]:
        self._count()
        return self._lanes

    def _many(self, name: str, rows: Sequence[Any]) -> None:
        if rows:
            self.connection.executemany(self._sql[name], rows)

    # -- picking and locking ---------------------------------------------------------------------

    def lock(self, keys: Sequence[int], specs: dict[int, SpecRow] | None = None) -> list[HotRow]:
        if specs is not None:
            rows = self._all("tasks", (as_json(sorted(keys)),))
            for row in rows:
                specs[row[0]] = SpecRow(row[0], row[11], row[12])
        elif len(keys) == 1:
            rows = self._all("lock_one", (keys[0],))
        else:
            rows = self._all("lock", (as_json(list(keys)),))
        self._last_events.update((row[0], row[10]) for row in rows)
        return [HotRow._make(row[:10]) for row in rows]

    def lock_role(self, role: int) -> RoleRow:
        return RoleRow(*self._all("role", {"role": role})[0])

    def pick(
        self,
        role: int,
        count: int,
        *,
        provider: str = "",
        ids: Sequence[str] | None = None,
        after: tuple[int, int] | None = None,
        unless_limited: bool = False,
    ) -> Picked:
        row = self.lock_role(role)
        open_until = self._open_until(provider) if provider else 0
        if open_until or (unless_limited and row.is_limited):
            return Picked(row, open_until, [])
        values: dict[str, Any] = {"role": role, "count": count, "now": self.now()}
        name = "pick"
        if ids is not None:
            name, values["ids"] = "pick_named", as_json(list(ids))
        elif after is not None:
            name = "pick_after"
            values["priority"], values["key"] = after
        return Picked(row, 0, self._task_rows(self._all(name, values)))

    def _open_until(self, provider: str) -> int:
        now = self.now()
        return next(
            (
                row.open_until
                for row in self.circuits()
                if row.provider == provider and (row.failures or row.open_until > now)
            ),
            0,
        )

    def due(self, now: int, count: int) -> list[TaskRow]:
        return self._task_rows(self._all("due", (now, count)))

    def renew(self, leases: Sequence[Lease]) -> set[int]:
        now = self.now()
        rows = self.connection.executemany(
            self._sql["renew"], [(now + lease.lease_ms, lease.key, lease.epoch) for lease in leases]
        )
        return {row[0] for row in rows}

    def hold_resources(self, key: int, places: Sequence[tuple[str, int]]) -> bool:
        for resource, place in places:
            self._all("hold_resource", (resource, place, key))
            if not self.connection.changes():
                self._all("release_resources", (key,))
                return False
        return True

    def leader_leases(self, names: Sequence[str] = ()) -> list[LeaseRow]:
        self._many("insert_leader_lease", [(name,) for name in names])
        return super().leader_leases(names)

    # -- saving ----------------------------------------------------------------------------------

    def save(self, changes: Changes) -> None:
        self.topics.update(changes.topics)
        if changes.rebuilt:
            from agentq.stores.sqlite.rebuilding import rebuild  # start-up: hardly anybody needs it

            rebuild(self._many, changes.rebuilt)
        if changes.new:
            self._insert(changes.new, changes.trees)
        if changes.events:
            self._append(changes.events)
        if changes.tasks:
            last = self._last_events
            self._many("update_task", [(*row[1:], last[row[0]], row[0]) for row in changes.tasks])
        if changes.addresses:
            self._many("set_address", [(*row[1:], row[0]) for row in changes.addresses])
        for name, rows in (
            ("insert_effect", changes.effects),
            ("add_artifact", changes.artifacts),
            ("add_spending", changes.spending),
            ("save_dedup", changes.dedup),
        ):
            if rows:
                self._many(name, rows)
        if changes.new_dedup:
            before = self.connection.total_changes()
            self._many("insert_dedup", changes.new_dedup)
            if self.connection.total_changes() - before < len(changes.new_dedup):
                raise RunAgain
        self._save_surroundings(changes)

    def _save_surroundings(self, changes: Changes) -> None:
        if changes.trees:
            self._many("set_tree", [tree for tree in changes.trees if tree.root])
        if changes.released:
            self._many("release_resources", [(key,) for key in changes.released])
        if changes.roles:
            self._many("set_role", [row._asdict() for row in changes.roles])
        if changes.resources:
            self._many("set_resource", [row._asdict() for row in changes.resources])
        if changes.circuits:
            self._many("set_circuit", [row._asdict() for row in changes.circuits])
        if changes.leases:
            self._many("set_leader_lease", [row._asdict() for row in changes.leases])
        if changes.tokens:
            self._many("set_token", [row._asdict() for row in changes.tokens])
        if changes.audit:
            self._many("add_audit", [row._asdict() for row in changes.audit])
        self._save_records(changes)
        if changes.schedules:
            self._many("set_schedule", [row._asdict() for row in changes.schedules])
        if changes.dropped_schedules:
            self._many("drop_schedule", [(name,) for name in changes.dropped_schedules])
        if changes.lanes is not None:
            self._all("set_lanes", (" ".join(sorted(changes.lanes)),))
            self._counted = False

    def _save_records(self, changes: Changes) -> None:
        """What stands beside tasks and is locked by nobody."""
        if changes.system:
            self._many("add_system_event", changes.system)
        if changes.samples:
            self._many("save_sample", changes.samples)
        if changes.hook_deliveries:
            self._many("save_hook_delivery", [row[:-1] for row in changes.hook_deliveries])
        if changes.hook_outcomes:
            self._many("set_hook_outcome", [row._asdict() for row in changes.hook_outcomes])
        if changes.webhook_targets:
            self._many("save_webhook_target", changes.webhook_targets)

    def _insert(self, rows: Sequence[NewRow], trees: Sequence[TreeRow]) -> None:
        self._count()
        first, position = self._key + 1, self._position
        self._key += len(rows)
        self._position += len(rows)
        before = self.connection.total_changes()
        specs, tasks, events, tied = [], [], [], False
        for key, row in enumerate(rows, first):
            position += 1
            tied = tied or any(row[12:])
            task_id, role, priority, state, wake_at, at, memo, flags, body, *said = row[:12]
            kind, data, digest = said
            specs.append((key, task_id, at, body))
            tasks.append((key, role, priority, state, wake_at, at, memo, flags, digest, position))
            events.append((position, 0, key, 1, at, kind, "Submit", state, 0, data, digest))
        self._many("insert_spec", specs)
        if self.connection.total_changes() - before < len(rows):
            raise RunAgain  # somebody took an id between our look and our insert
        self._many("insert_task", tasks)
        self._many("insert_event", events)
        if tied:
            self._tie(rows, first, trees)

    def _tie(self, rows: Sequence[NewRow], first: int, trees: Sequence[TreeRow]) -> None:
        """Insert dependencies, tree memberships and wanted resources of new tasks."""
        effects = [
            (key, 1, *effect) for key, row in enumerate(rows, first) for effect in row.effects
        ]
        self._many("insert_effect", effects)
        keys = {row.id: key for key, row in enumerate(rows, first)}
        named = {each for row in rows for each in (*row.after, *row.awaited_by)}
        keys |= self.keys(named - keys.keys())
        edges = [(keys[parent], keys[row.id]) for row in rows for parent in row.after]
        edges += [(keys[row.id], keys[each]) for row in rows for each in row.awaited_by]
        self._many("insert_edge", edges)
        self._many("mark_parent", [(parent,) for parent in {parent for parent, _ in edges}])
        self._many(
            "add_wanted_resources", [(keys[row.id], each) for row in rows for each in row.resources]
        )
        new = [tree._replace(root=keys[tree.name]) for tree in trees if not tree.root]
        self._many("set_tree", new)
        members = [
            (keys[row.id], keys[root] if isinstance(root, str) else root)
            for row in rows
            for root in row.roots
        ]
        self._many("join_tree", members)

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

    # -- records beside the tasks ----------------------------------------------------------------

    def settle_effects(self, sequences: Sequence[int], until: int | None = None) -> None:
        if until is None:
            self._many("ack_effect", [(sequence,) for sequence in sequences])
        else:
            each_once = [(until, sequence) for sequence in sorted(set(sequences))]
            self._many("postpone_effect", each_once)

    def delete(self, keys: Sequence[int], expired: Expired | None = None) -> int:
        if keys:
            self._delete(keys)
        if expired is None:
            return 0
        self._all("forget_labels", (expired.labels_before_day,))
        self._all("forget_audit", {"audit_before": expired.audit_before})
        self._all("forget_workers", {"workers_before": expired.workers_before})
        self._all("forget_hook_deliveries", {"hooks_before": expired.hooks_before})
        gone = {"samples_at": expired.samples_at, "samples_kept": expired.samples_kept}
        self._all("forget_samples", gone)
        self._all("forget_dedup", (expired.dedup_before,))
        return self.connection.changes()

    def _delete(self, keys: Sequence[int]) -> None:
        self._all("set_floors")
        each = [(key,) for key in keys]
        for name in ("keep_outcome", "delete_events", "delete_artifacts", "delete_outbox",
                     "release_resources", "delete_wants", "delete_parents", "delete_children",
                     "leave_trees", "delete_task", "delete_spec"):  # fmt: skip
            self._many(name, each)
        self._all("delete_trees")
        self._counted = False

    # -- roles -----------------------------------------------------------------------------------

    def create_role(self, name: str) -> int:
        self._all("insert_role", (name,))
        return int(self._all("role_id", (name,))[0][0])
