"""Circuits in the ledger: a provider's, with an end or a probe, and a role's, which needs a person.

What a claim asks of them is here too: whether it may take what it wants, one task as a probe, or
nothing. The arithmetic is in `core.circuits`. A provider's circuit is a row of its own; a role's is
part of the role's row, which every claim looks at anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agentq.contracts.audit_rows import AuditRow
from agentq.contracts.doorbell import ROOM_TOPIC, lane_topic, role_topic
from agentq.contracts.limit_rows import CircuitRow, RoleRow
from agentq.contracts.store import Changes, Store, Tx
from agentq.core import triggers as t
from agentq.core.circuits import ProviderCircuit, pause_ms, probed, served, tripped
from agentq.core.effects import Notify
from agentq.core.errors import Invalid, Refused
from agentq.core.limits import CIRCUIT_MS_MAX, SUMMARY_CHARS_MAX, shorten
from agentq.core.task import Task
from agentq.core.trigger_validation import check_trigger
from agentq.core.values import replace
from agentq.ledger.codec import decoder, encode
from agentq.ledger.log_codec import effects_of_role
from agentq.ledger.system_log import circuit_note, role_note, system_rows
from agentq.ledger.unit_of_work import UnitOfWork
from agentq.protocol.envelope import iso
from agentq.protocol.spec_validation import check_role


class RoleCircuit(msgspec.Struct, frozen=True):
    """Why a role needs a person, since when, and who says so; as the role's row keeps it."""

    reason: str
    opened_at: int
    opened_by: str


class Interruption(msgspec.Struct, frozen=True):
    """An attempt that is given back because of its surroundings.

    With a provider, that one did not serve; without, the task's role cannot work.
    """

    epoch: int
    reason: str
    provider: str = ""


class Circuits:
    """Opens and closes circuits, each in a transaction of its own."""

    def __init__(self, store: Store, role_id: Callable[[str], int]) -> None:
        self._store = store
        self._role_id = role_id

    def open(
        self, provider: str, until_ms: int, reason: str, by: str, audit: AuditRow | None = None
    ) -> CircuitRow:
        """Let nobody claim for this provider before that moment; longer than it was, never shorter.
        Return how its circuit stands now."""
        check_role(provider, "provider")
        check_trigger(t.Comment(by, reason))

        def change(tx: Tx) -> CircuitRow:
            now = tx.now()
            if type(until_ms) is not int or not 0 < until_ms <= now + CIRCUIT_MS_MAX:
                raise Invalid(
                    f"A circuit is open for a year at most, got the moment {until_ms!r}"
                    f" (it is {now}). Nothing was opened.",
                    "Moments are milliseconds of the ledger's clock.",
                )
            row = circuit_row(tx.circuits(), provider)
            if row is None or row.open_until < until_ms:
                before = row if row is not None and row.open_until > now else None
                opened_at = now if before is None else before.opened_at
                row = CircuitRow(provider, until_ms, reason, opened_at, by)
                told = _tell(tx, "", in_words(row)) if before is None else Changes()
                noted = system_rows(tx, [circuit_note(row)])
                tx.save(replace(told, circuits=(row,), system=noted, audit=dated(audit, tx)))
            return row

        return self._store.write(change)

    def close(self, provider: str, by: str, audit: AuditRow | None = None) -> bool:
        """Let claims for this provider begin again at once; whether anything held them back."""
        check_role(provider, "provider")
        check_trigger(t.Comment(by, ""))

        def change(tx: Tx) -> bool:
            now, row = tx.now(), circuit_row(tx.circuits(), provider)
            if row is None or not _standing(row).holds_back(now):
                return False
            closed = row._replace(
                open_until=min(row.open_until, now), reason=f"closed by {by}", failures=0, probing=0
            )
            _save_closed(tx, closed, audit)
            return True

        return self._store.write(change)

    def reset(self, provider: str, audit: AuditRow | None = None) -> bool:
        """Note that the provider served an attempt; whether that has closed its circuit."""
        check_role(provider, "provider")

        def change(tx: Tx) -> bool:
            now, row = tx.now(), circuit_row(tx.circuits(), provider)
            if row is None:
                return False
            after = _with(row, served(_standing(row), now))
            if after == row:
                return False
            _save_closed(tx, after._replace(reason="it serves again"), audit)
            return True

        return self._store.write(change)

    def open_role(self, role: str, reason: str, by: str, audit: AuditRow | None = None) -> bool:
        """Let nobody claim tasks of this role until somebody closes its circuit; whether it was
        closed before, or open for another reason."""
        check_trigger(t.Comment(by, reason))
        role_id = self._role_id(role)

        def change(tx: Tx) -> bool:
            row = tx.lock_role(role_id)
            opened = _opened(row, reason, by, tx.now())
            if opened is None:
                return False
            told = _tell(tx, role, needs_person(opened))
            noted = system_rows(tx, [role_note(opened)])
            tx.save(replace(told, roles=(opened,), system=noted, audit=dated(audit, tx)))
            return True

        return self._store.write(change)

    def close_role(self, role: str, audit: AuditRow | None = None) -> bool:
        """Let claims of this role begin again at once; whether its circuit was open."""
        role_id = self._role_id(role)

        def change(tx: Tx) -> bool:
            row = tx.lock_role(role_id)
            if not row.circuit:
                return False
            topics = (ROOM_TOPIC, role_topic(role))
            closed = row._replace(circuit="")
            noted = system_rows(tx, [role_note(closed)])
            tx.save(Changes(roles=(closed,), system=noted, topics=topics, audit=dated(audit, tx)))
            return True

        return self._store.write(change)


def _tell(tx: Tx, role: str, words: str) -> Changes:
    """What is saved so that people hear of a circuit that no attempt has opened."""
    effects = effects_of_role(tx, role, Notify("circuit_open", shorten(words, SUMMARY_CHARS_MAX)))
    # With the lanes as they are taken to be, so that it is run again if they are others by now.
    topics = {lane_topic(each.lane) for each in effects}
    return Changes(effects=effects, lanes=tx.lanes(), topics=topics)


def _save_closed(tx: Tx, row: CircuitRow, audit: AuditRow | None) -> None:
    waiting = [role_topic(role.name) for role in tx.roles() if role.provider == row.provider]
    topics = (ROOM_TOPIC, *waiting)
    noted = system_rows(tx, [circuit_note(row)])
    tx.save(Changes(circuits=(row,), system=noted, topics=topics, audit=dated(audit, tx)))


def dated(audit: AuditRow | None, tx: Tx) -> tuple[AuditRow, ...]:
    """The row of a decision, at the moment of its transaction; none if there is none to write."""
    return () if audit is None else (audit._replace(at=tx.now()),)


def circuit_row(rows: Sequence[CircuitRow], provider: str) -> CircuitRow | None:
    return next((row for row in rows if row.provider == provider), None)


def _standing(row: CircuitRow) -> ProviderCircuit:
    return ProviderCircuit(row.open_until, row.failures, bool(row.probing))


def _with(row: CircuitRow, circuit: ProviderCircuit) -> CircuitRow:
    return row._replace(
        open_until=circuit.open_until, failures=circuit.failures, probing=int(circuit.probing)
    )


def role_circuit(row: RoleRow) -> RoleCircuit | None:
    """Why the role needs a person; None if it does not."""
    if not row.circuit:
        return None
    circuit: RoleCircuit = decoder(RoleCircuit).decode(row.circuit)
    return circuit


def _opened(row: RoleRow, reason: str, by: str, now: int) -> RoleRow | None:
    """The role's row with its circuit open; None if it is open for this reason already."""
    before = role_circuit(row)
    if before is not None and before.reason == reason:
        return None
    since = before.opened_at if before is not None else now
    return row._replace(circuit=encode(RoleCircuit(reason, since, by)).decode())


# -- an attempt that its surroundings have interrupted ---------------------------------------------


def interrupt(work: UnitOfWork, key: int, said: Interruption, by: str) -> tuple[Task, bool]:
    """Give a task back unharmed and open the circuit that keeps it, and others, from failing the
    same way. Return the task, and whether a circuit has changed.

    A task that a provider did not serve waits longer each time by itself: another one is the next
    probe, in case it was this one's words that the provider cannot bear.
    """
    work.load([key])
    task = work.task(key)
    if said.provider:
        changed, words = _trip_provider(work, said, by)
        not_before = work.now + pause_ms(task.details.interruptions + 1)
    else:
        changed, words = _trip_role(work, task, said, by)
        not_before = 0
    words = shorten(words, SUMMARY_CHARS_MAX)
    return work.apply(key, t.Release(said.epoch, said.reason, not_before, words)), changed


def _trip_provider(work: UnitOfWork, said: Interruption, by: str) -> tuple[bool, str]:
    """Open the provider's circuit; return whether it has changed, and what people are told."""
    row = circuit_row(work.tx.circuits(), said.provider) or CircuitRow(
        said.provider, 0, "", work.now, by
    )
    before = _standing(row)
    after = tripped(before, work.now)
    if after == before:
        return False, ""
    opened_at = row.opened_at if before.failures else work.now
    row = _with(row, after)._replace(reason=said.reason, opened_at=opened_at, opened_by=by)
    work.circuits.append(row)
    if before.failures:
        return True, ""  # people know already
    return True, f"provider {said.provider} does not serve: {said.reason}"


def _trip_role(work: UnitOfWork, task: Task, said: Interruption, by: str) -> tuple[bool, str]:
    row = work.tx.lock_role(work.role_id(task.to))
    opened = _opened(row, said.reason, by, work.now)
    if opened is None:
        return False, ""
    work.roles.append(opened)
    work.notes.append(role_note(opened))
    work.note_limits(row.name, True)
    return True, f"role {task.to} needs a person: {said.reason}"


# -- what claims ask -------------------------------------------------------------------------------


def probe(work: UnitOfWork, provider: str) -> CircuitRow | None:
    """The circuit as it stands if the next task is given out as a probe; None if none may be."""
    row = circuit_row(work.tx.circuits(), provider)
    if row is None or not _standing(row).may_probe(work.now):
        return None
    return row._replace(open_until=probed(work.now), probing=1)


def held_back(rows: Sequence[CircuitRow], provider: str, now: int) -> CircuitRow | None:
    """The provider's circuit, if it keeps a claim from taking what it wants."""
    row = circuit_row(rows, provider)
    return row if row is not None and _standing(row).holds_back(now) else None


def check_circuit(work: UnitOfWork, task: Task, provider: str) -> None:
    """Raise `Refused` while the provider's circuit is open; note the task as the probe if it is
    the next."""
    row = held_back(work.tx.circuits(), provider, work.now)
    if row is None:
        return
    after = probe(work, provider)
    if after is not None:
        work.circuits.append(after)
        return
    raise Refused(
        f"{task.id} cannot be claimed now: {in_words(row)}.",
        f"Wait, or `agentq circuits close {provider}` if it serves again.",
        code="circuit_open",
    )


def in_words(row: CircuitRow, when: str = "") -> str:
    """Why nobody claims for the provider, and until when."""
    why = f": {row.reason.rstrip('.')}" if row.reason else ""
    until = f"{iso(row.open_until)}{when}"
    if row.probing:
        return f"provider {row.provider} has failed, and one task is out as a probe{why}"
    if row.failures:
        times = "once" if row.failures == 1 else f"{row.failures} times in a row"
        return f"provider {row.provider} has failed {times} and is asked again after {until}{why}"
    return f"provider {row.provider} is out of quota until {until}{why}"


def needs_person(row: RoleRow) -> str:
    """Why nothing of a role whose circuit is open is given out, in words."""
    circuit = role_circuit(row)
    assert circuit is not None
    return f"role {row.name} needs a person: {circuit.reason.rstrip('.')}"
