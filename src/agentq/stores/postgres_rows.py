"""The verbs of `contracts.store.Tx` on one PostgreSQL transaction.

Round trips are the cost here, so BEGIN travels with the first statement and what `save` writes
travels with COMMIT: a change that locks and saves makes two. Events get their positions under the
lock on `head`, which `save` takes last: everything else is locked before, so whoever holds `head`
waits for nobody and others wait for one commit only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from agentq.contracts.store import (
    ArtifactRow,
    CircuitRow,
    DedupRow,
    EffectRow,
    EventRow,
    HotRow,
    Lease,
    LogRow,
    NewRow,
    OutboxRow,
    RoleRow,
    RunAgain,
    SpecRow,
    SpendingRow,
    TaskRow,
    TreeRow,
)
from agentq.stores.postgres_loops import PostgresLoops
from agentq.stores.postgres_reader import NO_VALUES
from agentq.stores.postgres_wire import Call, Statement, Values, Wire

#: In more batches than these nothing would be gained.
_CUTS_MAX = 2
#: A notification holds less than 8000 bytes; beyond this one everybody is woken.
NOTIFY_BYTES_MAX = 7000


def payload(topics: Iterable[str]) -> str:
    """Topics as one notification says them; empty if there is nothing to say."""
    text = "\n".join(sorted(set(topics)))
    return text if len(text.encode()) <= NOTIFY_BYTES_MAX else "*"


class PostgresTx(PostgresLoops):
    """One transaction that may write."""

    def __init__(
        self,
        wire: Wire,
        sql: Mapping[str, Statement],
        clock: Callable[[], int] | None,
        known_lanes: Callable[[], str],
    ) -> None:
        super().__init__(wire, sql, clock, "begin")
        #: True from the moment COMMIT is on its way.
        self.committing = False
        #: An event of a task that this transaction has locked: there if, and only if, it committed.
        self.proof: EventRow | None = None
        self.lanes_changed = False
        self._known_lanes = known_lanes
        self._lanes: str | None = None
        self._lanes_checked = True
        self._topics: set[str] = set()
        self._hot: Sequence[HotRow] = ()
        self._events: list[EventRow] = []
        self._effects: Sequence[EffectRow] = ()
        self._spending: list[SpendingRow] = []
        self._saved = False
        self._recalled: dict[str, DedupRow | None] = {}
        #: Position of the newest event of each task that is locked here: the end of its chain.
        self._last_events: dict[int, int] = {}
        #: Which of the events under way is the newest of each task.
        self._newest: dict[int, int] = {}
        #: The pick that is to travel with the next lock; and whether it is under way.
        self._foreseen: list[Call] | None = None
        self._picking = False

    # -- beginning and ending --------------------------------------------------------------------

    def _ask(
        self, name: str, values: Values = NO_VALUES, make_row: Callable[..., Any] = tuple
    ) -> list[Any]:
        """Ask; the first question is also asked for the time, once it has its locks."""
        if name == "moment":
            return super()._ask(name)
        return self._ask_all([Call(self._sql[name], values, make_row)])[0]

    def _ask_all(self, asked: Sequence[Call], ahead: Sequence[Call] = ()) -> list[list[Any]]:
        if self._saved or self._spending:
            self._write_out()
        calls = [*self._opening(), *asked]
        if self.moment or self._clock is not None:
            return self._wire.exchange(calls, ahead)[-len(asked) :]
        *rows, ((self.moment, _),) = self._wire.exchange(
            [*calls, Call(self._sql["moment"], NO_VALUES)], ahead
        )
        return rows[-len(asked) :]

    def commit(self) -> None:
        if not self._lanes_checked and not self._events:
            self._check_lanes()
        calls = self._writing()
        if not self.begun and not calls:
            return
        calls = [*self._opening(), *calls, Call(self._sql["commit"], NO_VALUES)]
        self.committing = True
        self._wire.exchange(calls)

    def _write_out(self) -> None:
        calls = self._writing()
        if calls:
            *_, answer = self._wire.exchange([*self._opening(), *calls])
            for key, nth in self._newest.items():  # of what `save` wrote, which comes last
                self._last_events[key] = answer[0][0] + nth

    def _writing(self) -> list[Call]:
        """What is still to be written, in the order of locks: `head` is the last."""
        calls = []
        self._newest = {}
        if self._effects:
            columns = zip(*self._effects, strict=True)
            names = ("keys", "versions", "numbers", "lanes", "payloads")
            calls.append(Call(self._sql["insert_effects"], dict(zip(names, columns, strict=True))))
        if self._spending:
            written = [(*row[:3], *map(repr, row[3:])) for row in self._spending]
            calls.append(Call(self._sql["add_spending"], _columns(_SPENDING, written)))
            self._spending = []
        said = payload(self._topics)
        if self._events or self._hot:
            *_, (last_start, _) = batches = self._batches()
            for start, end in batches:
                topics = said if start == last_start else ""
                calls.append(self._saving(start, end, last_start, topics))
            self._lanes_checked = self._lanes_checked or bool(self._events)
        elif said:
            calls.append(Call(self._sql["notify"], {"topics": said}))
        self._hot, self._events, self._effects, self._saved = (), [], (), False
        self._topics = set()
        return calls

    def _batches(self) -> list[tuple[int, int]]:
        """Where each task has one event: the ends in one batch and the claims in the next, since
        tasks to which the same happened have most in common. Else all in one."""
        events, hot = self._events, self._hot
        if [event.key for event in events] != [row.key for row in hot]:
            return [(0, len(events))]
        cuts = [n for n in range(1, len(events)) if events[n].kind != events[n - 1].kind]
        if len(cuts) > _CUTS_MAX:
            cuts = []
        return list(pairwise((0, *cuts, len(events))))

    def _saving(self, start: int, end: int, last_start: int, topics: str) -> Call:
        rows, logged = self._hot, self._events
        if (start, end) != (0, len(logged)):
            rows, logged = rows[start:end], logged[start:end]
        hot, events = _columns(_HOT, rows), _columns(_EVENTS, logged)
        last, keys = self._last_events, events["keys"]
        values: dict[str, object] = {
            "count": len(logged),
            "known_lanes": self._told_lanes(),
            "topics": topics,
            **hot,
            **events,
            "previous": [last.get(key, 0) for key in keys],
        }
        if any(hot[name] != events[same] for name, same in _SAID_TWICE):
            return Call(self._sql["save"], values | self._chained())
        # Mostly each task has one event, and that says the same of it as its row. Counted from the
        # last batch, whose place in the log is what the server answers.
        self._newest |= {key: nth for nth, key in enumerate(keys, start + 1 - last_start)}
        shared = _shared(values)
        return Call(self._sql["save_alike" if shared else "save_each"], values | shared)

    def _chained(self) -> dict[str, object]:
        """Which of these events (counted from 1) comes before each, if one does; and which is the
        newest of each task: of those that change, and of those that were born in this transaction
        and do not.
        """
        newest, backs = self._newest, []
        for nth, event in enumerate(self._events, 1):
            backs.append(newest.get(event.key, 0))
            newest[event.key] = nth
        changed = [row.key for row in self._hot]
        born = sorted(newest.keys() - changed)
        return {
            "backs": backs,
            "hot_nths": [newest[key] for key in changed],
            "born_keys": born,
            "born_nths": [newest[key] for key in born],
        }

    def _hot_row(self, row: Sequence[Any]) -> HotRow:
        self._last_events[row[0]] = row[9]
        return HotRow._make(row[:9])

    def _task_row(self, row: Sequence[Any]) -> TaskRow:
        return TaskRow(self._hot_row(row), SpecRow(row[0], row[10], row[11]))

    # -- tasks -----------------------------------------------------------------------------------

    def insert(self, rows: Sequence[NewRow]) -> dict[str, int]:
        if not rows:
            return {}
        columns = _columns(_NEW, [row[:9] for row in rows])
        inserted: dict[str, int] = dict(self._ask("insert", columns))
        unwritten = dict(inserted)
        for row in rows:
            key = unwritten.pop(row.id, 0)
            if key:
                self._events.append(
                    EventRow(key, 1, row.at, row.kind, "Submit", row.state, 0, row.data)
                )
        return inserted

    def lock(self, keys: Sequence[int]) -> list[HotRow]:
        if not keys:
            return []
        locking = Call(self._sql["lock"], {"keys": list(keys)}, self._hot_row)
        if self._foreseen is None:
            return self._ask_all([locking])[0]
        picking, self._foreseen, self._picking = self._foreseen, None, True
        return self._ask_all([locking], picking)[0]

    def pick(self, role: int, count: int) -> list[TaskRow]:
        values = {"role": role, "count": count, "freely": False, "provider": "", "now": 0}
        return self._ask("pick", values, self._task_row)

    def pick_after(self, role: int, count: int, priority: int, key: int) -> list[TaskRow]:
        values = {"role": role, "count": count, "priority": priority, "key": key}
        return self._ask("pick_after", values, self._task_row)

    def foresee(self, role: int, count: int, provider: str = "") -> None:
        self._foreseen = self._free_pick(role, count, provider)

    def pick_freely(
        self, role: int, count: int, provider: str = ""
    ) -> tuple[RoleRow, int, list[TaskRow]]:
        if not self._picking:
            return _picked(self._ask_all(self._free_pick(role, count, provider)))
        self._picking = False
        return _picked(self._wire.collect())

    def pick_named(
        self, role: int, ids: Sequence[str], provider: str = ""
    ) -> tuple[RoleRow, int, list[TaskRow]]:
        return _picked(self._ask_all(self._free_pick(role, 0, provider, ids)))

    def _free_pick(
        self, role: int, count: int, provider: str, ids: Sequence[str] | None = None
    ) -> list[Call]:
        now = None if self._clock is None else self._clock()
        values = {"role": role, "count": count, "freely": True, "provider": provider, "now": now}
        pick = "pick" if ids is None else "pick_named"
        calls = [
            Call(self._sql["role"], values, RoleRow._make),
            Call(self._sql[pick], values | {"ids": ids}, self._task_row),
        ]
        # Asked before the pick: what was closed then cannot keep the pick from giving anything.
        return [Call(self._sql["open_circuit"], values), *calls] if provider else calls

    def due(self, now: int, count: int) -> list[TaskRow]:
        return self._ask("due", {"now": now, "count": count}, self._task_row)

    def save(
        self, hot: Sequence[HotRow], events: Sequence[EventRow], effects: Sequence[EffectRow]
    ) -> None:
        if self._saved:
            self._write_out()
        self._hot, self._effects, self._saved = hot, effects, True
        self._events += events
        if self.proof is None:
            self.proof = next((event for event in events if event.version > 1), None)

    def events_of(self, key: int) -> list[LogRow]:
        self._write_out()
        return super().events_of(key)

    def events_after(self, position: int, limit: int) -> list[LogRow]:
        self._write_out()
        return super().events_after(position, limit)

    def last_position(self) -> int:
        self._write_out()
        return super().last_position()

    def ring(self, topics: Iterable[str]) -> None:
        self._topics.update(topics)

    def renew(self, leases: Sequence[Lease]) -> set[int]:
        if not leases:
            return set()
        keys, epochs, lengths = zip(*leases, strict=True)
        now = None if self._clock is None else self._clock()
        values = {"keys": keys, "epochs": epochs, "leases": lengths, "now": now}
        return {row[0] for row in self._ask("renew", values)}

    # -- lanes -----------------------------------------------------------------------------------

    def _told_lanes(self) -> str:
        if self._lanes is None:
            self._lanes = self._known_lanes()
        return self._lanes

    def lanes(self) -> frozenset[str]:
        """As this process last saw them; if that was wrong, the transaction is run again."""
        self._lanes_checked = False
        return frozenset(self._told_lanes().split())

    def _check_lanes(self) -> None:
        if self._ask("lanes")[0][0] != self._told_lanes():
            raise RunAgain

    def set_lanes(self, lanes: frozenset[str]) -> None:
        wanted = " ".join(sorted(lanes))
        if not self._ask("set_lanes", {"lanes": wanted, "known_lanes": self._told_lanes()}):
            raise RunAgain
        self._lanes, self._lanes_checked, self.lanes_changed = wanted, True, True

    def take_effects(self, lane: str, now: int, count: int, until: int) -> list[OutboxRow]:
        values = {"lane": lane, "now": now, "count": count, "until": until}
        return sorted(self._ask("take_effects", values, OutboxRow._make))

    def ack_effects(self, sequences: Sequence[int]) -> None:
        if sequences:
            self._ask("ack_effects", {"sequences": list(sequences)})

    # -- the graph, roles and resources ----------------------------------------------------------

    def link(self, edges: Sequence[tuple[int, int]]) -> None:
        if edges:
            parents, children = zip(*edges, strict=True)
            self._ask("insert_edges", {"parents": parents, "children": children})
            self._ask("mark_parents", {"parents": sorted(set(parents))})

    def children(self, keys: Sequence[int]) -> list[tuple[int, int]]:
        return self._ask("children", {"keys": list(keys)}) if keys else []

    def lock_role(self, role: int) -> RoleRow:
        row: RoleRow = self._ask("lock_role", {"role": role}, RoleRow._make)[0]
        return row

    def set_role(self, row: RoleRow) -> None:
        self._ask("set_role", row._asdict())

    def want(self, key: int, resources: Sequence[str]) -> None:
        if resources:
            self._ask("want", {"key": key, "resources": list(resources)})

    def hold(self, key: int, resources: Sequence[str]) -> bool:
        if not resources:
            return True
        held = self._ask("hold", {"key": key, "resources": list(resources)})
        if len(held) == len(resources):
            return True
        if held:
            self.unhold([key])
        return False

    def unhold(self, keys: Sequence[int]) -> None:
        if keys:
            self._ask("unhold", {"keys": list(keys)})

    # -- records beside the tasks ----------------------------------------------------------------

    def recall(self, names: Sequence[str]) -> dict[str, DedupRow]:
        if not names:
            return {}
        rows = self._ask("recall", {"names": list(names)}, DedupRow._make)
        found = {row.name: row for row in rows}
        for name in names:
            self._recalled[name] = found.get(name)
        return found

    def remember(self, rows: Sequence[DedupRow]) -> None:
        """Two who found no record cannot both make one: the second is run again and finds it."""
        new = [row for row in rows if self._recalled.get(row.name, row) is None]
        old = [(row, seen) for row in rows if (seen := self._recalled.get(row.name)) is not None]
        rest = [row for row in rows if row.name not in self._recalled]
        if new and len(self._ask("remember_new", _columns(_DEDUP, new))) < len(new):
            raise RunAgain
        if old:
            values = _columns(_DEDUP, [row for row, _ in old]) | {
                "old_ids": [seen.task_id for _, seen in old],
                "old_expiries": [seen.expires_at for _, seen in old],
            }
            if len(self._ask("remember_instead", values)) < len(old):
                raise RunAgain
        if rest:
            self._ask("remember_anyway", _columns(_DEDUP, rest))
        self._recalled.update((row.name, row) for row in rows)

    def add_artifacts(self, rows: Sequence[ArtifactRow]) -> None:
        if rows:
            self._ask("add_artifacts", _columns(_ARTIFACTS, rows))

    def delete(self, keys: Sequence[int]) -> None:
        if keys:
            self._ask("delete", {"keys": list(keys)})
            self._ask("fell_trees")

    def forget_dedup(self, now: int) -> int:
        return int(self._ask("forget_dedup", {"now": now})[0][0])

    # -- circuits and budgets --------------------------------------------------------------------

    def extend_circuit(self, row: CircuitRow) -> CircuitRow:
        self._ask("extend_circuit", row._asdict())
        found: CircuitRow = self._ask("circuit", {"provider": row.provider}, CircuitRow._make)[0]
        return found

    def close_circuit(self, provider: str, at: int, reason: str) -> bool:
        return bool(self._ask("close_circuit", {"provider": provider, "at": at, "reason": reason}))

    def add_spending(self, rows: Sequence[SpendingRow]) -> None:
        """Travels with what `save` writes."""
        if self._spending:
            self._write_out()
        self._spending = list(rows)

    def forget_spending(self, kind: str, before_day: int) -> None:
        self._ask("forget_spending", {"kind": kind, "before_day": before_day})

    def lock_trees(self, keys: Sequence[int]) -> list[tuple[int, TreeRow]]:
        rows = self._ask("lock_trees", {"keys": list(keys)}) if keys else []
        return [(row[0], TreeRow._make(row[1:])) for row in rows]

    def set_trees(self, rows: Sequence[TreeRow]) -> None:
        if rows:
            self._ask("set_trees", _columns(_TREES, rows))

    def join_trees(self, members: Sequence[tuple[int, int]]) -> None:
        if members:
            self._ask("join_trees", _columns(("keys", "roots"), members))

    def waiting_roles(self, roots: Sequence[int]) -> list[str]:
        if not roots:
            return []
        return [row[0] for row in self._ask("waiting_roles", {"roots": list(roots)})]


_NEW = ("ids", "roles", "priorities", "states", "wake_ats", "ats", "memos", "flags", "bodies")
_NEW_EVENTS = (*_NEW, "kinds", "datas")
_NEW_EFFECTS = ("effect_ids", "effect_numbers", "effect_lanes", "effect_payloads")
_HOT = ("hot_keys", "hot_states", "hot_versions", "hot_epochs", "hot_wakes", "hot_ats",
        "hot_holders", "hot_memos", "hot_flags")  # fmt: skip
_SAID_TWICE = (("hot_keys", "keys"), ("hot_versions", "versions"), ("hot_ats", "ats"),
               ("hot_states", "states"), ("hot_epochs", "epochs"))  # fmt: skip
_MOSTLY_SHARED = (("hot_states", "state"), ("hot_versions", "version"), ("hot_epochs", "epoch"),
                  ("hot_wakes", "wake_at"), ("hot_ats", "at"), ("hot_holders", "holder"),
                  ("hot_flags", "flags"), ("kinds", "kind"), ("triggers", "trigger"))  # fmt: skip
_EVENTS = ("keys", "versions", "ats", "kinds", "triggers", "states", "epochs", "datas")
_DEDUP = ("names", "ids", "digests", "states", "expiries")
_SPENDING = ("kinds", "names", "days", "usds", "tokens", "turns", "seconds")
_TREES = ("roots", "names", "budgets", "extras", "spents", "used_ups")
_ARTIFACTS = ("keys", "epochs", "names", "sizes", "digests", "media_types", "ats")


def _picked(answers: list[list[Any]]) -> tuple[RoleRow, int, list[TaskRow]]:
    *circuits, (row,), picked = answers
    open_until = next((int(found[0][0]) for found in circuits if found), 0)
    return row, open_until, [] if open_until else picked


def _shared(values: Mapping[str, Any]) -> dict[str, Any]:
    """What all tasks of a batch have in common, said once; empty if they do not: a claim takes a
    hundred that were ready, a report ends a hundred first attempts."""
    shared = {}
    for column, name in _MOSTLY_SHARED:
        first, *_ = listed = values[column]
        if listed.count(first) != len(listed):
            return {}
        shared[name] = first
    return shared


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Rows as one array per column."""
    if not rows:
        return dict.fromkeys(names, ())
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def submission(
    rows: Sequence[NewRow], effects: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, object]:
    """The arrays of a submission of many."""
    listed = [
        (task_id, number, lane, text)
        for task_id, each in effects.items()
        for number, (lane, text) in enumerate(each)
    ]
    return {**_columns(_NEW_EVENTS, rows), **_columns(_NEW_EFFECTS, listed)}
