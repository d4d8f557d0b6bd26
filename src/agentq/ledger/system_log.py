"""The system stream: what was decided about no task, as events that are chained by digests.

Limits, circuits, tokens and lanes are rows that change in place. Whatever changes one writes what
it says now into the stream, in the same transaction, so that the last event of each says what its
row must say. Deleted tasks leave an event too, and seals are events of this stream: each is over
all that came before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentq.contracts.audit_rows import AuditRow, TokenRow
from agentq.contracts.limit_rows import CircuitRow, ResourceRow, RoleRow
from agentq.contracts.store import Changes, Reader, Store, Tx
from agentq.contracts.system_rows import LastSystemEvent, SystemPage, SystemRow, TreeExtras
from agentq.ledger.chain import digest_of
from agentq.ledger.codec import encode

#: System events that are read at once.
PAGE = 1000
#: The first row of every stream: from where on events have digests. Written by a migration.
CHAINED = "chained"
#: Which settings decided: no row stands for them, they are in files.
SETTINGS = "settings"
#: Kinds whose last event says how something stands now.
STANDING = frozenset({"role", "resource", "circuit", "token", "lanes", "tree"})


class SystemNote(NamedTuple):
    """What a system event shall say; the transaction gives it a number, a moment and a digest."""

    kind: str
    subject: str
    data: str
    position: int = 0


def role_note(row: RoleRow) -> SystemNote:
    """What holds claims of a role back; its bucket and when it was seen are no decision."""
    said = (row.max_running, row.max_review, row.paused, row.daily, row.circuit, row.rate)
    return SystemNote("role", row.name, encode(said).decode())


def resource_note(row: ResourceRow) -> SystemNote:
    return SystemNote("resource", row.name, encode((row.max_held, row.rate)).decode())


def circuit_note(row: CircuitRow) -> SystemNote:
    return SystemNote("circuit", row.provider, encode(tuple(row[1:])).decode())


def token_note(row: TokenRow) -> SystemNote:
    return SystemNote("token", row.id, encode(tuple(row[1:])).decode())


def tree_note(name: str, extra: str) -> SystemNote:
    """What people have added to the budget that a task shares with its descendants."""
    return SystemNote("tree", name, extra)


def lanes_note(lanes: Iterable[str]) -> SystemNote:
    return SystemNote("lanes", "", encode(sorted(lanes)).decode())


#: What there is of each kind if no event speaks of it; of a circuit and a token there is nothing.
UNLESS_SAID = {
    "role": role_note(RoleRow(0, "", 0, 0, 0, 0)).data,
    "resource": resource_note(ResourceRow("")).data,
    "lanes": lanes_note(["results"]).data,
    "tree": "",
}


def last_event(reader: Reader) -> SystemRow:
    (last,) = reader.records(LastSystemEvent())
    return last


def system_rows(
    tx: Reader, notes: Sequence[SystemNote], last: SystemRow | None = None
) -> list[SystemRow]:
    """The next events of the stream. Whoever saves them is run again if others came first.

    Notes that follow from what the stream says come after `last`, which was read before that: what
    others have said in between makes them untrue.
    """
    if not notes:
        return []
    last = last or last_event(tx)
    rows = []
    for note in notes:
        last = next_row(last, tx.now(), note)
        rows.append(last)
    return rows


def save_lanes(tx: Tx, wanted: frozenset[str], audit: Sequence[AuditRow] = ()) -> None:
    """Open these lanes and no others, from the next commit on."""
    notes = [lanes_note(wanted)] if wanted != tx.lanes() else []
    tx.save(Changes(lanes=wanted, system=system_rows(tx, notes), audit=audit))


def next_row(last: SystemRow, at: int, note: SystemNote) -> SystemRow:
    row = SystemRow(last.number + 1, at, note.kind, note.subject, note.position, note.data, "")
    return row._replace(digest=row_digest(last, row))


def row_digest(before: SystemRow, row: SystemRow) -> str:
    """The digest that a row must carry. The first of a stream carries none: it is made by SQL, and
    the second is over what it says."""
    return digest_of((before.digest or digest_of(before[:-1]), *row[:-1]))


def stream(reader: Reader, after: int = 0) -> Iterator[SystemRow]:
    """All system events after this number, in order."""
    while rows := reader.records(SystemPage(after, PAGE)):
        yield from rows
        after = rows[-1].number


def standing_notes(reader: Reader) -> list[SystemNote]:
    """What the last event of every limit, circuit, token and of the lanes must say."""
    notes = [lanes_note(reader.lanes())]
    notes += [role_note(row) for row in reader.roles()]
    notes += [resource_note(row) for row in reader.resources()]
    notes += [circuit_note(row) for row in reader.circuits()]
    notes += [token_note(row) for row in reader.tokens()]
    notes += [tree_note(*row) for row in reader.records(TreeExtras())]
    return notes


def note_settings(store: Store, settings: Mapping[str, str]) -> bool:
    """Write down which settings decide, if they are others than before; whether they are."""
    note = SystemNote(SETTINGS, "", encode(dict(sorted(settings.items()))).decode())

    def change(tx: Tx) -> bool:
        last = tx.records(LastSystemEvent(SETTINGS))
        if last and last[0].data == note.data:
            return False
        tx.save(Changes(system=system_rows(tx, [note])))
        return True

    return store.write(change)


def adopt(store: Store) -> int:
    """Write what an earlier version has decided into the stream; how many events that took.

    Done once, right after the migration that made the stream.
    """

    def change(tx: Tx) -> int:
        last = last_event(tx)
        notes = standing_notes(tx) if last.kind == CHAINED else []
        notes = [note for note in notes if note.data != UNLESS_SAID.get(note.kind)]
        if notes:
            tx.save(Changes(system=system_rows(tx, notes, last)))
        return len(notes)

    return store.write(change)
