"""Queries of the ledger. They decide nothing and change nothing."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from agentq.contracts.limit_rows import CircuitRow
from agentq.contracts.store import (
    IN_TREE,
    READY,
    ArtifactRow,
    HotRow,
    LogRow,
    Reader,
    Store,
    TaskRow,
)
from agentq.contracts.task_filter import Filter, Order
from agentq.core.errors import Invalid, NotFound
from agentq.core.spec_types import is_readable
from agentq.core.states import State
from agentq.core.task import Task, Usage
from agentq.ledger.codec import CODES, STATES, SpecCache, limits_of, to_task

if TYPE_CHECKING:
    from agentq.contracts.overview_values import AwaitedDecisions, Overview, WorkerInfo
    from agentq.contracts.service_values import (
        Explanation,
        KeyStanding,
        Page,
        Problem,
        Stats,
        Wanted,
    )
    from agentq.core.limits import RoleLimits
    from agentq.core.triggers import LogEntry
    from agentq.ledger.circuits import RoleCircuit
    from agentq.ledger.measuring import Measuring
    from agentq.ledger.numbers import NumberLedger
    from agentq.ledger.replay import CheckFiles

#: How many tasks on which somebody is mentioned are looked at.
_MENTIONED_MAX = 1000


class LedgerQueries:
    """Every query that the service interface answers."""

    def __init__(self, store: Store, specs: SpecCache) -> None:
        self._store = store
        self._specs = specs

    def _task(self, row: TaskRow) -> Task:
        return to_task(row.hot, *self._specs.put(row.spec))

    def find(self, ref: str) -> tuple[int, Task]:
        """The task of this id, or of the one id that starts with it."""

        if not is_readable(ref):
            raise NotFound("There is no task of that name.", "`agentq list` shows the tasks.")

        def look(reader: Reader) -> TaskRow:
            found = reader.tasks(ids=(ref,)) or reader.tasks(ids=(self._only_id(reader, ref),))
            return found[0]

        row = self._store.read(look)
        return row.hot.key, self._task(row)

    @staticmethod
    def _only_id(reader: Reader, ref: str) -> str:
        candidates: list[str] = []
        if ref:
            candidates = reader.ids_starting(ref, 6)
            if not candidates and not ref.startswith("task-"):
                candidates = reader.ids_starting(f"task-{ref}", 6)
        if not candidates:
            raise NotFound(
                f"There is no task {ref!r}.", "`agentq list` shows the tasks that are there."
            )
        if len(candidates) > 1:
            shown = ", ".join(candidates[:5]) + (", …" if len(candidates) > 5 else "")
            raise Invalid(
                f"{ref!r} could be any of {shown}.", "Give more of the id.", code="ambiguous"
            )
        return candidates[0]

    def by_id(self, ids: list[str]) -> dict[str, Task]:
        """Tasks by their exact ids; those that are not there are left out."""
        rows = self._store.read(lambda reader: reader.tasks(ids=ids))
        return {task.id: task for task in map(self._task, rows)}

    def get(self, key: int) -> Task | None:
        rows = self._store.read(lambda reader: reader.tasks([key]))
        return self._task(rows[0]) if rows else None

    def list_tasks(self, wanted: Wanted) -> Page:
        from agentq.contracts.service_values import Page

        if not 1 <= wanted.limit <= 10_000:
            raise Invalid(f"A page has 1 to 10000 tasks, got {wanted.limit}.")

        if wanted.mentioning:
            return Page(tuple(self._mentioning(wanted.mentioning.lower(), wanted.limit)), 0)

        def look(reader: Reader) -> list[TaskRow]:
            role = 0
            if wanted.role:
                ids = {row.name: row.id for row in reader.roles()}
                role = ids.get(wanted.role, -1)
            return reader.list_tasks(
                Filter(
                    tuple(CODES[state] for state in wanted.states),
                    role,
                    wanted.sender,
                    wanted.type,
                    wanted.labels,
                    key=wanted.cursor,
                    limit=wanted.limit + 1,
                )
            )

        rows = self._store.read(look)
        more = len(rows) > wanted.limit
        rows = rows[: wanted.limit]
        cursor = rows[-1].hot.key if more else 0
        return Page(tuple(self._task(row) for row in rows), cursor)

    def _mentioning(self, name: str, limit: int) -> Iterator[Task]:
        """Tasks that mention somebody, the oldest first; so many of those that mention anybody are
        looked at."""
        wanted = Filter(order=Order.MENTIONED, limit=_MENTIONED_MAX)
        rows = self._store.read(lambda reader: reader.list_tasks(wanted))
        found = (
            task for task in map(self._task, rows)
            if any(each.name == name for each in task.details.mentions)
        )  # fmt: skip
        yield from itertools.islice(found, limit)

    def with_artifacts(self, after: int, limit: int) -> list[tuple[int, Task, list[ArtifactRow]]]:
        """Tasks whose key comes after this one, by key, with the records of their evidence."""

        def look(reader: Reader) -> list[tuple[TaskRow, list[ArtifactRow]]]:
            rows = reader.list_tasks(Filter(order=Order.OLDEST, key=after, limit=limit))
            artifacts = artifacts_by_task(reader, [row.hot.key for row in rows])
            return [(row, artifacts.get(row.hot.key, [])) for row in rows]

        found = self._store.read(look)
        return [(row.hot.key, self._task(row), listed) for row, listed in found]

    # -- the log ---------------------------------------------------------------------------------

    def _entries(self, reader: Reader, rows: list[LogRow]) -> list[LogEntry]:
        from agentq.core.triggers import LogEntry
        from agentq.ledger.log_codec import to_event

        keys = {row.event.key for row in rows}
        # Kept here, not only in the cache: that may be emptied at any moment.
        specs = {key: held[0] for key in keys if (held := self._specs.get(key))}
        unknown = sorted(keys - specs.keys())
        for both in reader.tasks(unknown) if unknown else ():
            specs[both.hot.key] = self._specs.put(both.spec)[0]
        return [
            LogEntry(row.position, row.task_id, to_event(row.event, specs[row.event.key]))
            for row in rows
            if row.event.key in specs
        ]

    def history(self, key: int) -> list[LogEntry]:
        """Everything that happened to one task, in order."""
        self._store.number_events()
        return self._store.read(lambda reader: self._entries(reader, reader.history(key)))

    def events_after(self, position: int, limit: int = 500) -> list[LogEntry]:
        """What was committed after that position, in the order of commits, without gaps."""
        self._store.number_events()
        return self._store.read(
            lambda reader: self._entries(reader, reader.events_after(position, limit))
        )

    def last_position(self) -> int:
        return self._store.number_events()

    def artifacts(self, key: int) -> list[ArtifactRow]:
        return self._store.read(lambda reader: reader.artifacts_of(key))

    def limits(self) -> dict[str, RoleLimits]:
        """The limits of every role that the ledger has heard of."""
        rows = self._store.read(lambda reader: reader.roles())
        return {row.name: limits_of(row) for row in rows}

    def key_limits(self, keys: Sequence[str] = ()) -> dict[str, KeyStanding]:
        """How these resources stand, or all that have limits of their own."""
        from agentq.ledger.resources import standing

        def look(reader: Reader) -> dict[str, KeyStanding]:
            now = reader.now()
            return {row.name: standing(row, now) for row in reader.resources(keys)}

        return self._store.read(look)

    def circuits(self) -> list[CircuitRow]:
        """The circuits of providers that hold claims back now, by provider."""
        from agentq.ledger.circuits import held_back

        def look(reader: Reader) -> list[CircuitRow]:
            rows = reader.circuits()
            now = reader.now() if rows else 0
            return [row for row in rows if held_back(rows, row.provider, now)]

        return self._store.read(look)

    def role_circuits(self) -> dict[str, RoleCircuit]:
        """Why roles need a person, by role."""
        from agentq.ledger.circuits import role_circuit

        rows = self._store.read(lambda reader: reader.roles())
        return {row.name: circuit for row in rows if (circuit := role_circuit(row)) is not None}

    def costs(self, by: str) -> dict[str, Usage]:
        """What was spent, summed up by role, label or day."""
        from agentq.ledger.costs import GROUPINGS, LABEL, ROLE, summed

        if by not in GROUPINGS:
            raise Invalid(f"Costs are summed up by {', '.join(GROUPINGS)}; got {by!r}.")
        kind = LABEL if by == LABEL else ROLE
        return summed(self._store.read(lambda reader: reader.spending(kind)), by)

    def next_wake(self) -> int:
        return self._store.read(lambda reader: reader.next_wake())

    def explain(self, key: int, *, four_eyes: bool = True) -> Explanation:
        from agentq.ledger.buckets import empty_in_words, next_token_at
        from agentq.ledger.circuits import held_back, role_circuit
        from agentq.ledger.costs import spent_today
        from agentq.ledger.explain import Facts, explain, when
        from agentq.ledger.presence import not_claimed

        def look(reader: Reader) -> Explanation:
            found = reader.tasks([key])
            if not found:
                raise NotFound("That task is no longer there: it was pruned.", "See `agentq list`.")
            task = self._task(found[0])
            roles = {row.name: row for row in reader.roles()}
            role = roles[task.to]
            rank = task.spec.priority.rank if task.state is State.READY else 0
            running, in_review, ahead = reader.occupancy(
                role.id, rank, key if task.state is State.READY else 0
            )
            keys = [parent for parent, child in reader.edges_of([key]) if child == key]
            parents = {t.id: str(t.state) for t in (self._task(row) for row in reader.tasks(keys))}
            now = reader.now()
            facts = Facts(
                now,
                parents,
                limits_of(role),
                running,
                in_review,
                role.seen_at,
                tuple(reader.resources(task.spec.resources)) if task.spec.resources else (),
                ahead,
                held_back(reader.circuits(), role.provider, now) if role.provider else None,
                role_circuit(role),
                spent_today(reader, role.name, now),
                _empty_trees(reader, found[0].hot),
                self._barred(reader, task, roles, four_eyes=four_eyes),
                empty_in_words(role, now, when(next_token_at(role, now), now)),
                not_claimed(reader.leader_leases(), role.name, now),
            )
            return explain(task, facts)

        return self._store.read(look)

    def _barred(
        self, reader: Reader, task: Task, roles: Collection[str], *, four_eyes: bool
    ) -> tuple[str, ...]:
        """Who may not approve a task, since they asked for it: by submitting it, or the run that
        it belongs to."""
        from agentq.core.access import RUN_TYPE, approves_own

        own = approves_own(task.spec.sender, task, roles, four_eyes=four_eyes)
        barred = [] if own else [task.spec.sender]
        above, seen = task, {task.id}
        while four_eyes and above.spec.parent and above.spec.parent not in seen:
            seen.add(above.spec.parent)
            keys = reader.keys((above.spec.parent,))
            if not keys:
                break
            above = self._task(reader.tasks(list(keys.values()))[0])
            if above.spec.type == RUN_TYPE:
                barred += [above.spec.sender, *above.editors]
        return tuple(dict.fromkeys(barred))

    def stats(self) -> Stats:
        from agentq.contracts.lane_rows import LaneCounts
        from agentq.contracts.service_values import Stats
        from agentq.ledger.outbox_ages import effect_ages

        def look(reader: Reader) -> Stats:
            by_role: dict[str, dict[str, int]] = {}
            oldest: dict[str, int] = {}
            now = reader.now()
            for row in reader.counts():
                by_role.setdefault(row.role, {})[str(STATES[row.state])] = row.tasks
                if row.state == READY:
                    oldest[row.role] = max(now - row.oldest_at, 0)
            waiting = dict(reader.records(LaneCounts()))
            return Stats(by_role, oldest, waiting, position, effect_ages(reader, waiting, now))

        position = self._store.number_events()
        return self._store.read(look)

    def overview(self) -> Overview:
        from agentq.ledger.overview import overview

        return self._store.read(lambda reader: overview(reader, self._task))

    def approvals(
        self, role: str, asked_of: str, limit: int, *, with_reviewers: bool
    ) -> AwaitedDecisions:
        from agentq.ledger.awaited_decisions import awaited_decisions

        return self._store.read(
            lambda reader: awaited_decisions(
                reader, self._task, role, asked_of, limit, with_reviewers=with_reviewers
            )
        )

    def workers(self) -> list[WorkerInfo]:
        from agentq.ledger.overview import all_workers

        return self._store.read(lambda reader: all_workers(reader, self._task))

    def measuring(self) -> Measuring:
        from agentq.ledger.measuring import Measuring

        return Measuring(self._store, self._specs)

    def numbers(self) -> NumberLedger:
        from agentq.ledger.numbers import NumberLedger

        return NumberLedger(self._store, self._specs)

    def verify(
        self,
        check_files: CheckFiles | None = None,
        *,
        seal: str = "",
        since_seal: bool = False,
    ) -> Iterator[tuple[int, list[Problem]]]:
        """Replay everything, page by page: (tasks looked at so far, problems on this page)."""
        from agentq.ledger.replay import verify

        return verify(self._store, check_files, seal=seal, since_seal=since_seal)


def _empty_trees(reader: Reader, row: HotRow) -> tuple[tuple[str, str], ...]:
    if not row.flags & IN_TREE:
        return ()
    from agentq.ledger.shared_budgets import used_up

    trees = reader.trees_of([row.key])
    return tuple((tree.name, used_up(tree)) for _, tree in trees if tree.used_up)


def artifacts_by_task(reader: Reader, keys: Sequence[int]) -> dict[int, list[ArtifactRow]]:
    """What is recorded of these tasks' artifacts, by the key of their task."""
    found: dict[int, list[ArtifactRow]] = {}
    for row in reader.artifacts_of(*keys):
        found.setdefault(row.key, []).append(row)
    return found
