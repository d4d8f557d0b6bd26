"""Prunes what ended long ago: first the rows of a task, then its files.

The transaction that deletes a task writes down, in the outbox, that its files are to be removed.
Whoever prunes next carries that out, as often as it takes: a process may die and a file store be
away at any point, and nothing stays behind that nobody knows of. The id stays taken until then, and
for a day more: a new task of that name would lose its files to the removal, or find them there.

Nothing is removed before the ledger was written to. One that was moved elsewhere refuses that, and
its files may be those of tasks that live on in the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.service_values import FilesLeft
from agentq.contracts.store import (
    LIVE,
    PENDING,
    Changes,
    DedupRow,
    EffectRow,
    Expired,
    OutboxRow,
    Reader,
    Store,
    Tx,
)
from agentq.contracts.task_filter import Filter, Order
from agentq.core.counting import counted
from agentq.core.digests import body_digest
from agentq.core.errors import AgentqError, Conflict
from agentq.core.graph import all_next
from agentq.core.limits import DAY_MS
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec
from agentq.core.values import replace
from agentq.ledger.codec import STATES, SpecCache, decode_plain, decode_spec, encode
from agentq.ledger.costs import day_of
from agentq.ledger.sealing import deleted_note
from agentq.ledger.system_log import last_event, system_rows

#: No decision makes these effects, so this lane is neither opened nor closed.
LANE = "forget"

Forget = Callable[[str], None]

_PAGE = 5000
#: PostgreSQL commits tasks in another order than it numbers them: how far apart, at the very most.
_OVERLAP = 1000
#: A store that fails so often in a row is away: asking it once more for each task would take hours.
_FAILURES_MAX = 3
#: Added to the expiry of a name while files of its task may be there; what was there comes back.
_HELD_MS = 1 << 52
#: A name stays taken for so long after its files are gone: somebody may have staged the context of
#: a new task before they went, and submit it only now; and a second pruner may still be at it.
_RESTS_MS = 24 * 3600 * 1000


class Named:
    """What tasks that are not over name in their own words: no row ties the two together."""

    def __init__(self) -> None:
        #: Parents, tasks to come, and the tasks that those will come after.
        self.ids: set[str] = set()
        #: Of tasks to come, the ids, and (id, digest) of contexts, which are staged already.
        self.coming: set[str] = set()
        self.contexts: set[tuple[str, str]] = set()
        self._last_key = 0

    def look(self, reader: Reader) -> None:
        """Read the tasks that were submitted since the last call."""
        after_key = max(self._last_key - _OVERLAP, 0)
        # How far this looks, also where nobody names anybody: what comes later has a higher key.
        newest = reader.list_tasks(Filter(limit=1))
        self._last_key = max(self._last_key, *(row.hot.key for row in newest), 0)
        wanted = Filter(states=LIVE, refers=True, order=Order.OLDEST, limit=_PAGE)
        while True:
            rows = reader.list_tasks(replace(wanted, key=after_key))
            for row in rows:
                self._take_in(decode_plain(row.spec.body))
            if len(rows) < _PAGE:
                return
            after_key = rows[-1].hot.key

    def _take_in(self, spec: Mapping[str, Any]) -> None:
        """Defaults are left out of it, and there may be very many: no need for whole specs."""
        if "parent" in spec:
            self.ids.add(spec["parent"])
        for child in spec.get("next", ()):
            self.ids.update((child["id"], *child.get("after", ())))
            self.coming.add(child["id"])
            self.contexts.add((child["id"], child.get("context_sha256", "")))
            self._take_in(child)


def files_to_remove(reader: Reader) -> int:
    """Of how many deleted tasks the files are still to be removed."""
    sequence, count = 0, 0
    while rows := reader.effects(LANE, _PAGE, after=sequence):
        sequence = rows[-1].sequence
        count += sum(len(decode_plain(row.payload).get("task_ids", ())) for row in rows)
    return count


#: So many samples of each length and role are kept (see `ledger.numbers`).
SAMPLES_KEPT = 400
#: How long a delivery of a webhook is kept once nothing waits for it. By its id it is known for a
#: time of its own.
HOOK_DELIVERIES_KEPT_MS = 30 * DAY_MS


class Pruner:
    """Prunes one store, once; `forget` removes the files of a task and may raise. `audit` says who
    decided so, and is written with each batch that is deleted."""

    def __init__(
        self,
        store: Store,
        specs: SpecCache,
        forget: Forget,
        audit: AuditRow | None = None,
        audit_before: int = 0,
    ) -> None:
        self._store = store
        self._audit = audit
        self._audit_before = audit_before
        self._specs = specs
        self._forget = forget
        self._named = Named()
        self._deleted = 0
        self._last_key = 0
        #: How far the outbox was read.
        self._sequence = 0
        self._failed: dict[str, AgentqError] = {}
        self._in_a_row = 0

    def prune(self, before: int, limit: int) -> int:
        """Delete what ended before that moment, `limit` tasks at a time; how many."""
        self._store.read(self._named.look)
        self._clear()
        while not self._is_away:
            # Looked for outside of the transaction: where little may go, this reads every task.
            keys = self._store.read(
                lambda reader: reader.prunable(before, limit, after_key=self._last_key)
            )
            if keys:
                self._store.number_events()
                self._deleted += self._store.write(partial(self._delete, before=before, keys=keys))
                self._clear()
            if len(keys) < limit:
                break
            self._last_key = keys[-1]
        # What roles spent is kept, a row a day; of labels there may be as many as tasks.
        self._store.write(lambda tx: tx.delete((), self._expired(tx.now(), before)))
        if self._failed:
            raise self._files_left()
        return self._deleted

    def _expired(self, now: int, before: int) -> Expired:
        hooks_before = now - HOOK_DELIVERIES_KEPT_MS
        return Expired(
            now, day_of(before), self._audit_before, hooks_before=hooks_before, samples_at=now,
            samples_kept=SAMPLES_KEPT,
        )  # fmt: skip

    def _delete(self, tx: Tx, before: int, keys: Sequence[int]) -> int:
        """Delete those of these tasks that may still go, and note that their files shall."""
        last = last_event(tx)
        tx.lock(keys)
        self._named.look(tx)
        # Asked again under lock: somebody may have opened one again, or submitted what follows it.
        rows = tx.tasks(tx.prunable(before, len(keys), keys=keys))
        ids = {row.hot.key: str(decode_plain(row.spec.body)["id"]) for row in rows}
        log = tx.history(*ids) if ids else []
        # Their positions are counted. One that has none yet would get it, or not, while it goes.
        kept = {row.event.key for row in log if not row.position}
        kept |= {key for key, each in ids.items() if each in self._named.ids}
        going = {key: each for key, each in ids.items() if key not in kept}
        if going:
            bodies = {ids[row.hot.key]: row.spec.body for row in rows if row.hot.key in going}
            hold_names(tx, bodies)
            gone = [row for row in rows if row.hot.key in going]
            said = system_rows(tx, [deleted_note(tx, gone, log)], last)
            tx.delete(list(going))
            order = _order(min(going), 0, list(going.values()))
            noted = self._noted(tx, list(going.values()))
            tx.save(Changes(effects=(order,), system=said, audit=noted))
            self._specs.drop(list(going))
        return len(going)

    def _noted(self, tx: Tx, ids: Sequence[str]) -> Sequence[AuditRow]:
        if self._audit is None:
            return ()
        named = f"{ids[0]} to {ids[-1]}" if len(ids) > 1 else ids[0]
        detail = f"{counted(len(ids), 'task')} deleted: {named}"
        return (self._audit._replace(at=tx.now(), detail=detail),)

    @property
    def _is_away(self) -> bool:
        return self._in_a_row >= _FAILURES_MAX

    def _clear(self) -> None:
        """Remove the files of deleted tasks: of those just now, and of what others left."""
        while not self._is_away:
            rows = self._store.read(lambda reader: reader.effects(LANE, 10, after=self._sequence))
            if not rows:
                return
            for row in rows:
                self._sequence = row.sequence
                self._carry_out(row)

    def _carry_out(self, row: OutboxRow) -> None:
        if self._is_away:
            return
        ids = decode_plain(row.payload)["task_ids"]
        going = self._store.write(partial(self._begin, row=row, ids=ids))
        if going is None:
            return
        left = [each for each in going if not self._remove(each)]
        if len(left) == len(ids):
            return

        def settle(tx: Tx) -> None:
            tx.settle_effects([row.sequence])
            release_names(tx, set(ids) - set(left))
            if left:
                key, _, number = map(int, row.effect_id.split("."))
                tx.save(Changes(effects=(_order(key, number + 1, left),)))

        self._store.write(settle, durable=False)  # lost with a machine, it is done again

    def _begin(self, tx: Tx, row: OutboxRow, ids: Sequence[str]) -> list[str] | None:
        """Begin to remove the files of these tasks; return their ids, None if it is done."""
        still = tx.effects(LANE, 1, after=row.sequence - 1)
        if not still or still[0].sequence != row.sequence:
            return None
        tx.settle_effects([row.sequence], tx.now())
        self._named.look(tx)
        # An order of a version that held no names: a new task may have one by now. Its files are
        # there as well, and go when it goes.
        there = tx.keys(ids)
        going = [each for each in ids if each not in there]
        hold_names(tx, dict.fromkeys(going, ""))
        return going

    def _remove(self, task_id: str) -> bool:
        """Whether the files of a deleted task are gone."""
        if self._is_away or task_id in self._failed:
            return False
        if task_id in self._named.coming:
            return False  # its name is that of a task to come, whose context may be there already
        try:
            self._forget(task_id)
        except AgentqError as error:
            self._failed[task_id] = error
            self._in_a_row += 1
            return False
        self._in_a_row = 0
        return True

    def _files_left(self) -> FilesLeft:
        first = next(iter(self._failed.values()))
        why = first.cause.removesuffix(" Nothing was changed.")
        were = "was" if self._deleted == 1 else "were"
        left = FilesLeft(
            f"{counted(self._deleted, 'task')} {were} deleted, but not all files of deleted tasks"
            f" could be removed. {why} What is left is written down, and removed by the next"
            " prune.",
            f"{first.remedy} Then prune again; `agentq up` does so by itself.".lstrip(),
        )
        left.deleted, left.why = self._deleted, why
        return left


def _order(key: int, number: int, ids: Sequence[str]) -> EffectRow:
    """The effect that the files of these tasks are removed; one for many, since it is a queue that
    every claim and report writes to."""
    return EffectRow(key, 0, number, LANE, encode({"effect": "Forget", "task_ids": ids}).decode())


def touch(tx: Tx) -> None:
    """Write without a change, so that a ledger that was moved refuses."""
    tx.save(Changes(lanes=tx.lanes()))


# -- names ---------------------------------------------------------------------------------------


def hold_names(tx: Tx, bodies: Mapping[str, str]) -> None:
    """Keep these ids taken until they are released; bodies are those of their specs, if known."""
    now = tx.now()
    known = tx.dedup_records([_name(each) for each in bodies])
    rows = []
    for task_id, body in bodies.items():
        row = known.get(_name(task_id))
        if row is None or (row.expires_at <= now and body):
            digest = body_digest(decode_spec(body)) if body else ""
            row = DedupRow(_name(task_id), task_id, digest, PENDING, row.expires_at if row else 0)
        if row.expires_at < _HELD_MS:
            rows.append(row._replace(expires_at=row.expires_at + _HELD_MS))
    if rows:
        tx.save(Changes(dedup=rows))


def release_names(tx: Tx, ids: Collection[str]) -> None:
    """Their files are gone: these names expire when they would have, yet not at once."""
    known = tx.dedup_records([_name(each) for each in sorted(ids)]) if ids else {}
    rests = tx.now() + _RESTS_MS
    rows = [
        row._replace(expires_at=max(row.expires_at - _HELD_MS, rests))
        for row in known.values()
        if row.expires_at >= _HELD_MS
    ]
    if rows:
        tx.save(Changes(dedup=rows))


def taken_ids(tx: Tx, ids: Collection[str]) -> set[str]:
    """Which of these no new task may get: of tasks that are there, or deleted and remembered."""
    there = set(tx.keys(ids))
    return there | _remembered(tx, [each for each in ids if each not in there])


def check_next_names(tx: Tx, specs: Iterable[Spec]) -> None:
    """Refuse tasks to come that have the id of a deleted one: their staged contexts may be gone
    with its files."""
    coming = [each.id for spec in specs if spec.next for each in all_next(spec)]
    if not coming:
        return
    there = tx.keys(coming)
    taken = sorted(_remembered(tx, [each for each in coming if each not in there]))
    if taken:
        raise Conflict(
            f"Next tasks have ids of deleted tasks, which are taken for some time still:"
            f" {', '.join(taken)}. Nothing was submitted.",
            "Choose other ids for them.",
        )


def _remembered(tx: Tx, ids: Sequence[str]) -> set[str]:
    # Asked after what is there: whoever deletes a task in between has its name noted by then.
    known = tx.dedup_records([_name(each) for each in ids]) if ids else {}
    now = tx.now()
    return {row.task_id for row in known.values() if row.expires_at > now}


def _name(task_id: str) -> str:
    return f"id:{task_id}"


# -- dependencies that are gone ------------------------------------------------------------------


class Gone(NamedTuple):
    """What a task shall come after and is not there: how each ended, and the same in words."""

    ended: tuple[tuple[str, State], ...]
    words: str


NOTHING_GONE = Gone((), "")


def gone_dependencies(tx: Tx, family: Mapping[str, Spec]) -> dict[str, Gone]:
    """By task of a family to be, what it shall come after and is not there.

    What nobody remembers counts as failed: a task that asked to come after another must not run as
    if all were well, and says itself what it does otherwise (`on_dependency_failure`).
    """
    asked = {each for child in family.values() for each in child.after} - family.keys()
    gone = asked - tx.keys(asked).keys() if asked else asked
    if not gone:
        return {}
    known = tx.dedup_records([_name(each) for each in sorted(gone)])
    outcomes = {row.task_id: STATES[row.state] for row in known.values()}
    ended = {each: outcomes[each] for each in gone if outcomes.get(each) in TERMINAL}
    found = {}
    for child in family.values():
        lost = [each for each in child.after if each in gone]
        if lost:
            words = ", ".join(f"{each} ({ended.get(each, 'unknown')})" for each in lost)
            found[child.id] = Gone(
                tuple((each, ended.get(each, State.FAILED)) for each in lost), words
            )
    return found
