"""The audit log: every decision and every refusal, with who, how that is known, and from where.

A decision is written in its own transaction: the row is there if, and only if, the decision is. A
refusal changes nothing, so it is written afterwards, and nobody may fill the disk by being refused:
of many alike within a minute the first is written at once and the others as one row that says how
many they were. Whoever is refused in too many ways gets one row a minute for all of them.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from agentq.contracts.audit_rows import AuditFilter, AuditRow
from agentq.contracts.service_values import AuditEntry, AuditOutcome, AuditPage
from agentq.core.access import Action, Principal, PrincipalKind
from agentq.core.errors import Invalid
from agentq.core.limits import DAY_MS
from agentq.protocol.secret_detection import redact

if TYPE_CHECKING:
    from agentq.contracts.store import Store
    from agentq.core.errors import AgentqError

#: How much of a name and of a text is written down.
NAME_CHARS_MAX, DETAIL_CHARS_MAX = 200, 400
#: Beyond this nobody looks for secrets: it is cut off in any case.
_READ_CHARS_MAX = 10_000
#: How long refusals that are alike count as one.
ALIKE_MS = 60_000
#: Rows for the refusals of one principal (of all without a good token together) in that time, and
#: on a day; and rows for all refusals that one process writes on a day.
ROWS_MAX, ROWS_A_DAY_MAX, ALL_ROWS_A_DAY_MAX = 20, 2_000, 10_000
#: Rows that wait for a ledger that cannot be written.
UNWRITTEN_MAX = 1000
PAGE_MAX = 1000
_MANY = "More was refused than is written down one by one."


class Place(NamedTuple):
    """Where this process runs: what is known of a principal that nobody has sent here."""

    user: str
    origin: str


def decision(
    who: Principal, action: Action, place: Place, subject: str = "", detail: str = ""
) -> AuditRow:
    """The row of a decision; the transaction that takes it fills in the moment."""
    return _row(who, action, place, AuditOutcome.DONE, subject, "", detail)


def refusal_row(
    who: Principal | None, error: AgentqError, action: str, subject: str, place: Place, at: int
) -> AuditRow:
    """The row of a refusal; nobody asked where `who` is None, and `place` is where they are."""
    row = _row(who, action, place, AuditOutcome.REFUSED, subject, error.code, error.cause)
    return row._replace(at=at)


def _row(
    who: Principal | None,
    action: str,
    place: Place,
    outcome: AuditOutcome,
    subject: str,
    code: str,
    detail: str,
) -> AuditRow:
    name = storable(who.name, NAME_CHARS_MAX) if who else ""
    origin = (who.origin if who else "") or place.origin
    return AuditRow(
        0, name, str(who.kind) if who else "", how_known(who, place), storable(origin),
        str(action), storable(subject), str(outcome), code, 1,
        storable(redact(detail[:_READ_CHARS_MAX]), DETAIL_CHARS_MAX),
    )  # fmt: skip


def how_known(who: Principal | None, place: Place) -> str:
    """How anybody knows who asks: by a token, as an attempt, or as a user of this machine."""
    if who is None:
        return ""
    token = f"token {who.token_id}" if who.token_id else "token" if who.proof == "token" else ""
    if who.kind is PrincipalKind.ATTEMPT:
        attempt = f"attempt {who.task_id}/{who.epoch}"
        return storable(f"{attempt} by {token}" if who.token_id else attempt)
    return token or (f"local user {place.user}" if not who.origin else str(who.how))


def storable(text: str, most: int = NAME_CHARS_MAX) -> str:
    """Text as every database takes it, cut off where it is too long."""
    text = text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def entry(row: AuditRow) -> AuditEntry:
    """The row as the service answers with it."""
    return AuditEntry(
        row.number, row.at, row.who, row.kind, row.how, row.origin, row.action, row.subject,
        AuditOutcome(row.outcome), row.code, row.times, row.detail,
    )  # fmt: skip


def page(store: Store, wanted: AuditFilter) -> AuditPage:
    """One page of the log, and what to go on with; raises `Invalid` for what no page can be."""
    if wanted.outcome and wanted.outcome not in set(AuditOutcome):
        known = ", ".join(AuditOutcome)
        raise Invalid(f"There is no outcome {wanted.outcome[:80]!r}.", f"Known: {known}.")
    if not 1 <= wanted.limit <= PAGE_MAX:
        raise Invalid(f"A page has 1 to {PAGE_MAX} entries, got {wanted.limit}.")
    rows = store.read(lambda reader: reader.records(wanted))
    cursor = rows[-1].number if len(rows) == wanted.limit else 0
    return AuditPage(tuple(entry(row) for row in rows), cursor)


class _Window:
    """Refusals that are alike, from the first that was written on."""

    def __init__(self, row: AuditRow) -> None:
        self.since = row.at
        self.last = row
        self.held = 0

    def take(self) -> AuditRow | None:
        """The row for those that were not written yet; None if there are none."""
        held, self.held = self.held, 0
        return self.last._replace(times=held) if held else None


class Refusals:
    """The refusals of one process, on their way into the log. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[tuple[object, ...], _Window] = {}
        self._minute: dict[tuple[str, ...], int] = {}
        self._day: dict[tuple[str, ...], int] = {}
        self._minute_of = self._day_of = -1
        self._rows_of_day = 0
        self._unwritten: list[AuditRow] = []

    def add(self, row: AuditRow) -> list[AuditRow]:
        """Take in one refusal; return the rows to be written now."""
        with self._lock:
            ready = self._over(row.at)
            self._count_from(row.at)
            window = self._windows.get(_alike(row))
            if window is None and not self._has_room(row):
                row = self._merged(row)
                window = self._windows.get(_alike(row))
            if window is None:
                self._windows[_alike(row)] = _Window(row)
                return [*self._take_unwritten(), *ready, row]
            window.held += 1
            window.last = row
            return ready

    def has_waiting(self) -> bool:
        """Whether any was held back."""
        with self._lock:
            return bool(self._unwritten) or any(each.held for each in self._windows.values())

    def waiting(self, now: int | None = None) -> list[AuditRow]:
        """The rows for what was held back: all of it, or what is a minute old at this moment."""
        with self._lock:
            if now is not None:
                return [*self._take_unwritten(), *self._over(now)]
            found = [window.take() for window in self._windows.values()]
            return [*self._take_unwritten(), *(row for row in found if row is not None)]

    def put_back(self, rows: list[AuditRow]) -> None:
        """Keep rows that could not be written for the next time; the oldest, if they are many."""
        with self._lock:
            self._unwritten = [*rows, *self._unwritten][:UNWRITTEN_MAX]

    def _take_unwritten(self) -> list[AuditRow]:
        rows, self._unwritten = self._unwritten, []
        return rows

    def _over(self, now: int) -> list[AuditRow]:
        ended = [key for key, each in self._windows.items() if now - each.since >= ALIKE_MS]
        found = [self._windows.pop(key).take() for key in ended]
        return [row for row in found if row is not None]

    def _count_from(self, now: int) -> None:
        if now // ALIKE_MS != self._minute_of:
            self._minute_of, self._minute = now // ALIKE_MS, {}
        if now // DAY_MS != self._day_of:
            self._day_of, self._day, self._rows_of_day = now // DAY_MS, {}, 0

    def _has_room(self, row: AuditRow) -> bool:
        """Count one row more of this principal, if there may be one."""
        asker = _asker(row)
        minute, day = self._minute.get(asker, 0), self._day.get(asker, 0)
        if minute >= ROWS_MAX or day >= ROWS_A_DAY_MAX or self._is_full:
            return False
        self._minute[asker], self._day[asker] = minute + 1, day + 1
        self._rows_of_day += 1
        return True

    @property
    def _is_full(self) -> bool:
        return self._rows_of_day >= ALL_ROWS_A_DAY_MAX

    def _merged(self, row: AuditRow) -> AuditRow:
        """What stands for refusals of this principal, or of everybody, that get no row each."""
        who, kind, how = ("", "", "") if self._is_full else _asker(row)
        return AuditRow(row.at, who, kind, how, "", "", "", row.outcome, "", 1, _MANY)


def _alike(row: AuditRow) -> tuple[object, ...]:
    """What refusals have in common that count as one."""
    return row[1:9]


def _asker(row: AuditRow) -> tuple[str, str, str]:
    return (row.who, row.kind, row.how)
