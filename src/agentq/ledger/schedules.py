"""Schedules in the ledger: each occurrence once, never early, however many processes try.

A schedule is one row. Whoever fires it locks the row and compares it with what was decided on: the
tasks of the occurrence and the row's next one are written together, or neither is. What a file
says, and which occurrences that means, is decided above (see `protocol.occurrences`); here it is
only made sure that nothing comes early or twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.doorbell import SCHEDULES_TOPIC
from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.schedule_values import (
    QUEUED_MAX,
    DeclaredSchedule,
    FiredSchedule,
    Overlap,
    ScheduleChange,
    ScheduledOccurrence,
    ScheduleFiring,
    ScheduleState,
)
from agentq.contracts.store import Changes, Tx
from agentq.core.errors import NotFound, Refused
from agentq.core.graph import parents_first
from agentq.core.limits import shorten
from agentq.core.states import TERMINAL
from agentq.core.task import OnDependencyFailure, Spec
from agentq.core.values import replace
from agentq.ledger.circuits import dated
from agentq.ledger.codec import STATES
from agentq.ledger.pruning import check_next_names, taken_ids
from agentq.ledger.submit import Submitter, check_batch, roles_of
from agentq.ledger.unit_of_work import UnitOfWork

_NOTE_CHARS_MAX = 500
_CLOCKS_DIFFER_MS = 5_000


class ScheduleLedger(Submitter):
    """Reads and changes schedules on one store, each change in a transaction of its own."""

    def every(self) -> list[ScheduleState]:
        return [state_of(row) for row in self._store.read(lambda reader: reader.schedules())]

    def waking(self, limit: int) -> list[ScheduleState]:
        rows = self._store.read(lambda reader: reader.schedules(first=limit))
        return [state_of(row) for row in rows]

    def change(
        self, name: str, change: ScheduleChange, asked_at: int = 0, audit: AuditRow | None = None
    ) -> ScheduleState:
        """Pause, resume, or ask to run now."""

        def write(tx: Tx) -> ScheduleRow:
            found = tx.schedules([name])
            if not found:
                raise NotFound(
                    f"There is no schedule {name[:80]!r}. Nothing was changed.",
                    "`agentq schedules` lists those that are there.",
                )
            after = _changed(found[0], change, _moment_of(asked_at, tx.now()))
            if after != found[0]:
                noted = dated(audit, tx)
                tx.save(Changes(schedules=[after], topics=(SCHEDULES_TOPIC,), audit=noted))
            return after

        return state_of(self._store.write(write))

    def declare(self, declared: Sequence[DeclaredSchedule], dropped: Sequence[str]) -> int:
        """Take note of what files say; how many rows that has changed."""

        def write(tx: Tx) -> int:
            names = sorted({each.name for each in declared} | set(dropped))
            known = {row.name: row for row in tx.schedules(names)}
            rows = [_declared(known.get(each.name), each) for each in declared]
            changed = [row for row in rows if row != known.get(row.name)]
            gone = [name for name in dropped if name in known]
            if changed or gone:
                tx.save(Changes(schedules=changed, dropped_schedules=gone))
            return len(changed) + len(gone)

        return self._store.write(write)

    def fire(self, firing: ScheduleFiring) -> FiredSchedule:
        """Carry out what is due, unless the row is not any more what this was decided on."""
        specs = [spec for each in firing.occurrences for spec in each.specs]
        check_batch(specs)
        roles = self._store.role_ids(roles_of(specs)) if specs else {}

        def write(tx: Tx) -> FiredSchedule:
            found = tx.schedules([firing.name])
            if not found or not _is_as_decided(found[0], firing):
                return FiredSchedule(False)
            work = self.work(tx)
            _check_times(found[0], firing, work.now)
            step = _Step(work, found[0], firing)
            for each in firing.occurrences:
                step.take(each)
            check_next_names(tx, step.specs)
            born = self._give_birth(work, parents_first(step.specs), roles)
            self._remember(work, [(spec, born[spec.id]) for spec in step.specs], (), set())
            row = step.finished()
            work.schedules.append(row)
            work.finish()
            return FiredSchedule(True, state_of(row), tuple(born.values()))

        return self._store.write(write)


class _Step:
    """What one firing comes to, occurrence by occurrence."""

    def __init__(self, work: UnitOfWork, row: ScheduleRow, firing: ScheduleFiring) -> None:
        self.row = row
        self.specs: list[Spec] = []
        self._firing = firing
        self._open = _not_over(work.tx, row.open_tasks.split())
        ids = [spec.id for each in firing.occurrences for spec in each.specs]
        #: Of an occurrence that was carried out before this row was made.
        self._taken = taken_ids(work.tx, ids) if ids else set()

    def take(self, occurrence: ScheduledOccurrence) -> None:
        reason = self._overlaps() if occurrence.specs else occurrence.reason or "nothing to do"
        if reason:
            self._skip(1, reason)
            return
        earlier = self._open[-1:] if self._firing.overlap is Overlap.QUEUE else []
        specs = [spec for spec in occurrence.specs if spec.id not in self._taken]
        if not self._firing.asked:
            specs = [_after(spec, *earlier) for spec in specs]
        self.specs += specs
        self._open += [spec.id for spec in specs]
        self.row = self.row._replace(fired=self.row.fired + 1, note="")

    def finished(self) -> ScheduleRow:
        """The row as it is when all is done."""
        firing = self._firing
        if firing.missed:
            self._skip(firing.missed, f"{firing.missed} were missed")
        row = self.row._replace(open_tasks=" ".join(self._open))
        if firing.asked:
            return _woken(row._replace(ran_at=row.asked_at))
        newest = max((each.at for each in firing.occurrences), default=row.next_at)
        return _woken(row._replace(next_at=firing.next_at, last_at=max(row.last_at, newest)))

    def _skip(self, count: int, reason: str) -> None:
        note = shorten(reason, _NOTE_CHARS_MAX)
        self.row = self.row._replace(skipped=self.row.skipped + count, note=note)

    def _overlaps(self) -> str:
        """Why an occurrence is skipped for the sake of earlier ones; "" if it is not."""
        if not self._open or self._firing.asked:
            return ""
        if self._firing.overlap is Overlap.SKIP:
            return f"{self._open[-1]} of an earlier occurrence is not over"
        if len(self._open) >= QUEUED_MAX:
            return f"{len(self._open)} earlier occurrences wait already"
        return ""


def _is_as_decided(row: ScheduleRow, firing: ScheduleFiring) -> bool:
    asked = row.asked_at > row.ran_at
    return row.wake_at == firing.seen_at != 0 and asked is firing.asked


def _check_times(row: ScheduleRow, firing: ScheduleFiring, now: int) -> None:
    """Refuse what is early, and what would let an occurrence come again."""
    times = [each.at for each in firing.occurrences]
    latest = max([firing.seen_at, *times])
    if latest > now:
        raise Refused(
            f"{firing.name} is not due for another {latest - now} ms. Nothing was submitted.",
            "Wait until then.",
            code="early",
        )
    if firing.asked:
        return
    again = times != sorted(set(times)) or (times and times[0] < row.next_at)
    if again or 0 < firing.next_at <= max([row.next_at, *times]):
        raise Refused(
            f"{firing.name} would occur again at a time that is decided already. Nothing was"
            " submitted.",
            "Work out what is due from the row as it is now.",
            code="repeated",
        )


def _after(spec: Spec, *earlier: str) -> Spec:
    """The same, once the task of the occurrence before is over, however that ends."""
    if not earlier:
        return spec
    run = OnDependencyFailure.RUN
    return replace(spec, after=(*spec.after, *earlier), on_dependency_failure=run)


def _not_over(tx: Tx, ids: Sequence[str]) -> list[str]:
    """Those of these tasks that are there and not over, in this order."""
    keys = tx.keys(ids) if ids else {}
    rows = tx.tasks(list(keys.values())) if keys else []
    over = {row.hot.key for row in rows if STATES[row.hot.state] in TERMINAL}
    return [each for each in ids if each in keys and keys[each] not in over]


def _moment_of(asked_at: int, now: int) -> int:
    """When it was asked for, in the words of whoever asked: it tells one request from another.

    Clocks differ a little, so a moment that is just ahead is kept. If it were set back to now, the
    same request would be another one a moment later.
    """
    return asked_at if 0 < asked_at <= now + _CLOCKS_DIFFER_MS else now


def _changed(row: ScheduleRow, change: ScheduleChange, asked_at: int) -> ScheduleRow:
    if change is not ScheduleChange.RUN:
        return _woken(row._replace(paused=int(change is ScheduleChange.PAUSE)))
    if row.problem:
        raise Refused(
            f"{row.name} cannot run: {row.problem} Nothing was changed.",
            "Mend its file; `agentq schedules check` says whether it is well.",
            code="broken_schedule",
        )
    return _woken(row._replace(asked_at=max(row.asked_at, asked_at)))


def _declared(row: ScheduleRow | None, said: DeclaredSchedule) -> ScheduleRow:
    before = row or ScheduleRow(said.name)
    problem = shorten(said.problem, _NOTE_CHARS_MAX)
    after = before._replace(digest=said.digest, problem=problem)
    if said.rule and said.rule != before.rule:
        after = after._replace(rule=said.rule, since_at=said.since_at, next_at=said.next_at)
    return _woken(after)


def _woken(row: ScheduleRow) -> ScheduleRow:
    """The same, with the moment at which it must be looked at."""
    if row.problem:
        return row._replace(wake_at=0)
    if row.asked_at > row.ran_at:
        return row._replace(wake_at=row.asked_at)
    return row._replace(wake_at=0 if row.paused else row.next_at)


def state_of(row: ScheduleRow) -> ScheduleState:
    """A row as the service says it."""
    words: dict[str, Any] = row._asdict()
    words["paused"], words["open_tasks"] = bool(row.paused), tuple(row.open_tasks.split())
    return ScheduleState(**words)
