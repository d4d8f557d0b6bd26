"""The verbs of `contracts.store.Tx` on one PostgreSQL transaction.

Round trips are the cost here, so BEGIN travels with the first statement and what `save` writes
travels with COMMIT: a change that locks and saves makes two. One that only saves over tasks whose
rows this process wrote last, as a worker's report does, makes one: it is decided on the rows as
they were left, and the statement that saves finds out whether they still are (see `Assumed`).
No row is common to all transactions: events get their places in the log after they have committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agentq.contracts.audit_rows import TokenRow
from agentq.contracts.limit_rows import CircuitRow, ResourceRow, RoleRow
from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.store import (
    IN_PROGRESS,
    Changes,
    DedupRow,
    EventRow,
    Expired,
    HotRow,
    Lease,
    LeaseRow,
    Picked,
    RunAgain,
    SpecRow,
    TaskRow,
    TreeRow,
)
from agentq.stores.postgres.clock import ServerClock
from agentq.stores.postgres.pipeline import Call, Exchanger, Statement, Values
from agentq.stores.postgres.reader import NO_VALUES, PostgresReader, member_row
from agentq.stores.postgres.save import calls_of, notification

#: Rows of tasks in progress that are remembered; beyond this many all are forgotten.
_REMEMBERED_MAX = 10_000


class Assumed:
    """Rows of tasks as this process last saved them, for those that it or its workers hold.

    Others seldom write such a row: a cancel, an ended lease, a renewal. Whoever decides on one from
    here must not commit before the row was found unchanged.
    """

    def __init__(self) -> None:
        self._rows: dict[int, HotRow] = {}

    def rows(self, keys: Sequence[int]) -> list[HotRow] | None:
        """Return the remembered rows of all these keys, ascending; None if one is missing."""
        try:
            return [self._rows[key] for key in sorted(keys)]
        except KeyError:
            return None

    def note(self, rows: Sequence[HotRow]) -> None:
        if len(self._rows) > _REMEMBERED_MAX:
            self._rows.clear()
        for row in rows:
            if row.state == IN_PROGRESS:
                self._rows[row.key] = row
            else:
                self._rows.pop(row.key, None)

    def forget(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._rows.pop(key, None)


class PostgresTx(PostgresReader):
    """One transaction that may write.

    `known_lanes` gives the open lanes as this process last saw them; `assumed` has rows that need
    not be locked, None if all must be.
    """

    def __init__(
        self,
        wire: Exchanger,
        sql: Mapping[str, Statement],
        clock: Callable[[], int] | None,
        known_lanes: Callable[[], str],
        server_clock: ServerClock,
        assumed: Assumed | None,
        *,
        durable: bool = True,
    ) -> None:
        super().__init__(wire, sql, clock, "begin")
        #: True from the moment COMMIT is on its way.
        self.committing = False
        #: An event of a task that this transaction has locked: there if, and only if, it committed.
        self.proof: EventRow | None = None
        self.lanes_changed = False
        self.saved: list[HotRow] = []
        #: Rows that were decided on and not locked yet.
        self.unlocked: dict[int, HotRow] = {}
        self.renewed: list[int] = []
        self._durable = durable
        self._assumed = assumed
        self._server_clock = server_clock
        self._known_lanes = known_lanes
        self._lanes: str | None = None
        self._topics: set[str] = set()
        #: What `save` was given and is not sent yet, and the versions its rows were read in.
        self._unsent: list[Changes] = []
        self._versions: dict[int, int] = {}
        self._records: dict[str, DedupRow | None] = {}

    # -- beginning and ending --------------------------------------------------------------------

    def _opening(self) -> list[Call]:
        calls = super()._opening()
        if calls and not self._durable:
            calls.append(Call(self._sql["commit_asynchronously"], NO_VALUES))
        return calls

    def _ask_all(self, asked: Sequence[Call]) -> list[list[Any]]:
        """Ask; the first question is also asked for the time, once it has its locks."""
        first = [*self._opening(), *self._locking(), *self._writing()]
        timed = not self.moment and self._clock is None
        after = [Call(self._sql["moment"], NO_VALUES)] if timed else []
        rows = self._wire.exchange([*first, *asked, *after])
        if timed:
            self.moment = int(rows.pop()[0][0])
            self._server_clock.note(self.moment)
        self._compare(rows)
        return rows[-len(asked) :]

    def _locking(self) -> list[Call]:
        """Before anything else is looked at, what was assumed is locked after all."""
        if not self.unlocked:
            return []
        return [Call(self._sql["lock"], {"keys": list(self.unlocked)}, HotRow._make)]

    def _compare(self, answers: Sequence[Sequence[Any]]) -> None:
        if self.unlocked:
            assumed, self.unlocked = self.unlocked, {}
            found = next((rows for rows in answers if rows and type(rows[0]) is HotRow), ())
            if {row.key: row for row in found} != assumed:
                raise RunAgain

    def now(self) -> int:
        if not self.begun and self._clock is None and not self.moment:
            self.moment = self._server_clock.estimate() or 0
        return super().now()

    def commit(self) -> None:
        saved = {row.key for changes in self._unsent for row in changes.tasks}
        if not self.unlocked.keys() <= saved:
            self._ask_all([])  # something was refused: make sure that it was so
        calls = self._writing()
        if not self.begun and not calls:
            self._notify()
            return
        alone = not self.begun and len(calls) == 1 and self._durable and self._wire.autocommits
        if not alone:  # one statement needs nobody to begin and to commit
            calls = [*self._opening(), *calls, Call(self._sql["commit"], NO_VALUES)]
        self.committing = True
        topics = notification(self._topics)
        after = [Call(self._sql["notify"], {"topics": topics})] if topics else []
        self._wire.exchange(calls, after)

    def _notify(self) -> None:
        topics = notification(self._topics)
        if topics:
            self._wire.exchange([Call(self._sql["notify"], {"topics": topics})])

    def _writing(self) -> list[Call]:
        """Statements for the changes that are not sent yet."""
        calls: list[Call] = []
        for changes in self._unsent:
            calls += calls_of(
                changes,
                self._sql,
                self._notified_lanes(),
                self._versions,
                self.unlocked,
                self._records,
            )
            self._versions |= {row.key: row.version for row in changes.tasks}
            self._records.update((row.name, row) for row in (*changes.new_dedup, *changes.dedup))
            if changes.lanes is not None:
                self._lanes, self.lanes_changed = " ".join(sorted(changes.lanes)), True
        self._unsent = []
        return calls

    # -- locking and picking ---------------------------------------------------------------------

    def _hot_row(self, row: Sequence[Any]) -> HotRow:
        self._versions[row[0]] = row[2]
        return HotRow._make(row[:10])

    def _task_row(self, row: Sequence[Any]) -> TaskRow:
        return TaskRow(self._hot_row(row), SpecRow(row[0], row[10], row[11]))

    def lock(self, keys: Sequence[int], specs: dict[int, SpecRow] | None = None) -> list[HotRow]:
        if not keys:
            return []
        if specs is not None:
            both = self._ask("lock_tasks", {"keys": list(keys)}, self._task_row)
            specs.update((row.spec.key, row.spec) for row in both)
            return [row.hot for row in both]
        if self._assumed is not None and not self.begun:
            known = self._assumed.rows(keys)
            if known is not None:
                self.unlocked |= {row.key: row for row in known}
                self._versions |= {row.key: row.version for row in known}
                return known
        return self._ask("lock", {"keys": list(keys)}, self._hot_row)

    def lock_role(self, role: int) -> RoleRow:
        row: RoleRow = self._ask("lock_role", {"role": role}, RoleRow._make)[0]
        return row

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
        values: dict[str, object] = {
            "role": role,
            "count": count,
            "unless_limited": unless_limited,
            "provider": provider,
            "now": self._given_now(),
        }
        name = "pick"
        if ids is not None:
            name, values["ids"] = "pick_named", list(ids)
        elif after is not None:
            name = "pick_after"
            values["priority"], values["key"] = after
        calls = [
            Call(self._sql["role"], values, RoleRow._make),
            Call(self._sql[name], values, self._task_row),
        ]
        if provider:
            # Asked first: what was closed then cannot keep the pick from giving anything.
            calls.insert(0, Call(self._sql["open_circuit"], values))
        *circuits, (row,), picked = self._ask_all(calls)
        open_until = next((int(found[0][0]) for found in circuits if found), 0)
        return Picked(row, open_until, [] if open_until else picked)

    def due(self, now: int, count: int) -> list[TaskRow]:
        return self._ask("due", {"now": now, "count": count}, self._task_row)

    def renew(self, leases: Sequence[Lease]) -> set[int]:
        if not leases:
            return set()
        keys, epochs, lengths = zip(*leases, strict=True)
        values = {"keys": keys, "epochs": epochs, "leases": lengths, "now": self._given_now()}
        self.renewed += keys
        return {row[0] for row in self._ask("renew", values)}

    def resources(self, names: Sequence[str] = ()) -> list[ResourceRow]:
        return self._resources("lock_resources", names) if names else super().resources()

    def hold_resources(self, key: int, places: Sequence[tuple[str, int]]) -> bool:
        if not places:
            return True
        resources, numbers = zip(*places, strict=True)
        values = {"key": key, "resources": resources, "places": numbers}
        held = self._ask("hold_resource", values)
        if len(held) == len(places):
            return True
        if held:
            self._ask("release_resources", {"keys": [key]})
        return False

    def trees_of(self, keys: Sequence[int]) -> list[tuple[int, TreeRow]]:
        return self._ask("lock_trees", {"keys": list(keys)}, member_row) if keys else []

    def circuits(self) -> list[CircuitRow]:
        """Whoever looks at them here may change them: two who open one take turns."""
        calls = [
            Call(self._sql["lock_circuits"], NO_VALUES),
            Call(self._sql["circuits"], NO_VALUES, CircuitRow._make),
        ]
        return self._ask_all(calls)[1]

    def tokens(self, sha256: str = "") -> list[TokenRow]:
        """Whoever looks at them here may change them: two who revoke one take turns."""
        calls = [
            Call(self._sql["lock_tokens"], NO_VALUES),
            Call(self._sql["token_of" if sha256 else "tokens"], {"sha256": sha256}, TokenRow._make),
        ]
        return self._ask_all(calls)[1]

    def leader_leases(self, names: Sequence[str] = ()) -> list[LeaseRow]:
        if not names:
            return super().leader_leases()
        values: Values = {"names": list(names)}
        calls = [
            Call(self._sql["insert_leader_leases"], values),
            Call(self._sql["lock_leader_leases"], values, LeaseRow._make),
        ]
        return self._ask_all(calls)[1]

    def schedules(self, names: Sequence[str] | None = None, first: int = 0) -> list[ScheduleRow]:
        if names is None:
            return super().schedules(None, first)
        return self._ask("lock_schedules", {"names": list(names)}, ScheduleRow._make)

    # -- saving ----------------------------------------------------------------------------------

    def save(self, changes: Changes) -> None:
        if any(getattr(changes, name) for name in _WRITTEN) or changes.lanes is not None:
            self._unsent.append(changes)
        self._topics.update(changes.topics)
        self.saved += changes.tasks
        if self.proof is None:
            self.proof = next((event for event in changes.events if event.version > 1), None)

    def _notified_lanes(self) -> str:
        if self._lanes is None:
            self._lanes = self._known_lanes()
        return self._lanes

    def lanes(self) -> frozenset[str]:
        """As this process last saw them; if that was wrong, the transaction is run again."""
        return frozenset(self._notified_lanes().split())

    # -- records beside the tasks ----------------------------------------------------------------

    def dedup_records(self, names: Sequence[str]) -> dict[str, DedupRow]:
        """What was found, or that nothing was, must still be so when a record is saved."""
        found = super().dedup_records(names)
        self._records.update((name, found.get(name)) for name in names)
        return found

    def settle_effects(self, sequences: Sequence[int], until: int | None = None) -> None:
        if not sequences:
            return
        values: dict[str, object] = {"sequences": list(sequences)}
        if until is None:
            self._ask("ack_effects", values)
        else:
            self._ask("postpone_effects", {**values, "until": until})

    def delete(self, keys: Sequence[int], expired: Expired | None = None) -> int:
        if keys:
            # Whoever gives events their places ends first, so that none stays behind without one.
            calls = [
                Call(self._sql["lock_head"], NO_VALUES),
                Call(self._sql["delete"], {"keys": list(keys)}),
                Call(self._sql["delete_trees"], NO_VALUES),
            ]
            self._ask_all(calls)
        if expired is None:
            return 0
        calls = [
            Call(self._sql["forget_labels"], {"before_day": expired.labels_before_day}),
            Call(self._sql["forget_audit"], {"audit_before": expired.audit_before}),
            Call(self._sql["forget_workers"], {"workers_before": expired.workers_before}),
            Call(self._sql["forget_hook_deliveries"], {"hooks_before": expired.hooks_before}),
            Call(
                self._sql["forget_samples"],
                {"samples_at": expired.samples_at, "samples_kept": expired.samples_kept},
            ),
            Call(self._sql["forget_dedup"], {"now": expired.dedup_before}),
        ]
        return int(self._ask_all(calls)[-1][0][0])


#: The parts of `Changes` that are rows.
_WRITTEN = (
    "new", "tasks", "events", "effects", "artifacts", "spending", "trees", "dedup", "new_dedup",
    "roles", "resources", "circuits", "leases", "tokens", "system", "audit", "hook_deliveries",
    "hook_outcomes", "webhook_targets", "released",
    "schedules", "dropped_schedules", "samples", "rebuilt",
)  # fmt: skip
