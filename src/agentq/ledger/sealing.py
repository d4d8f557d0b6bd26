"""Seals: a digest over all that the log says up to a position, to be kept where nobody can reach.

A seal is an event of the system stream, whose digest is over every system event before it, the seal
before included, and over the last event of each task that changed since that one. So whoever keeps
one digest can prove later that nothing up to it was changed, removed or added.
A task that is deleted leaves its part of each seal in the stream (`deleted_note`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from agentq.contracts.proof_values import Seal
from agentq.contracts.store import Changes, LogRow, Reader, SpecRow, Store, TaskRow, Tx
from agentq.contracts.system_rows import LastSystemEvent, SealsBetween, SystemRow
from agentq.ledger.chain import digest_of, first_digest, next_digest
from agentq.ledger.codec import decoder, encode
from agentq.ledger.system_log import SystemNote, last_event, stream, system_rows

SEAL, DELETED, SIGNATURE = "seal", "deleted", "signature"
#: The name of a seal's file, among the artifacts of `SEALS_ID`.
SEAL_FILE = "seal.json"
#: Events that one seal is over at most: more of them take several seals.
EVENTS_MAX = 10_000
_PAGE = 2000

#: The part of a task in a seal: its id, and the version and digest of its last event there.
Leaf: TypeAlias = tuple[str, int, str]


class SealData(NamedTuple):
    """What a seal says: how many tasks and events it is over, and the digest of their last ones."""

    tasks: int
    events: int
    heads: str


class DeletedTask(NamedTuple):
    """What is kept of a deleted task: its last event, how many of its events had a position in the
    log, and its part in each seal, with the number of its events there: (seal, version, digest,
    events)."""

    id: str
    state: int
    version: int
    digest: str
    events: int
    sealed: tuple[tuple[int, int, str, int], ...]


class Heads:
    """The last events of tasks, within one range of the log."""

    def __init__(self) -> None:
        self._leaves: dict[int, Leaf] = {}
        self._unchained: set[int] = set()
        self.events = 0

    def add(self, row: LogRow, specs: Mapping[int, SpecRow]) -> None:
        """The next event; `specs` has those of first events that carry no digest."""
        event = row.event
        before = self._leaves[event.key][2] if event.key in self._leaves else ""
        digest = event.digest
        if not digest:
            self._unchained.add(event.key)
            digest = next_digest(before, event)
            if event.version == 1:
                spec = specs[event.key]
                said = (event.at, event.kind, event.state, event.data)
                digest = first_digest(*said, spec.submitted_at, spec.body)
        elif event.key in self._unchained:
            digest = digest_of((before, digest))  # which is not over those that carry none
        self._leaves[event.key] = (row.task_id, event.version, digest)
        self.events += 1

    def leaves(self) -> dict[int, Leaf]:
        return self._leaves


def seal_data(leaves: Iterable[Leaf], events: int) -> SealData:
    ordered = sorted(leaves)
    return SealData(len(ordered), events, digest_of(tuple(ordered)))


def read_seal(row: SystemRow) -> SealData:
    data: SealData = decoder(SealData).decode(row.data)
    return data


def unchained_specs(reader: Reader, rows: Iterable[LogRow]) -> dict[int, SpecRow]:
    """The specs of tasks among these that were submitted before there were digests."""
    keys = [row.event.key for row in rows if row.event.version == 1 and not row.event.digest]
    return {row.spec.key: row.spec for row in reader.tasks(keys)} if keys else {}


def pages(reader: Reader, after: int, upto: int = 0) -> Iterator[list[LogRow]]:
    """The log after a position, up to another one (0: to its end), page by page."""
    while not upto or after < upto:
        rows = reader.events_after(after, min(_PAGE, upto - after) if upto else _PAGE)
        rows = [row for row in rows if not upto or row.position <= upto]
        if not rows:
            return
        yield rows
        after = rows[-1].position


# -- making one ------------------------------------------------------------------------------------


def last_seal(reader: Reader) -> SystemRow | None:
    """The newest seal of the ledger; None if there is none yet."""
    return next(iter(reader.records(LastSystemEvent(SEAL))), None)


def last_signed(reader: Reader) -> SystemRow | None:
    """The newest seal that somebody has signed; None if there is none."""
    for signature in reader.records(LastSystemEvent(SIGNATURE)):
        seals = reader.records(SealsBetween(signature.position, signature.position))
        return next((row for row in seals if row.digest == signature.subject), None)
    return None


def seal(store: Store, *, always: bool = True) -> SystemRow | None:
    """Seal the log to its end; the last seal, or None where there was nothing to seal.

    With `always` there is a new seal even if no event came since the last one.
    """
    made: SystemRow | None = None
    while True:
        store.number_events()
        row, is_end = store.write(partial(_seal_once, must=always and made is None))
        made = row or made
        if is_end:
            return made


def _seal_once(tx: Tx, *, must: bool) -> tuple[SystemRow | None, bool]:
    """The next seal if there is one to make, and whether that is the last."""
    last, before = last_event(tx), last_seal(tx)
    position, heads = (before.position if before else 0), Heads()
    for rows in pages(tx, position):
        specs = unchained_specs(tx, rows)
        for row in rows:
            heads.add(row, specs)
        position = rows[-1].position
        if heads.events >= EVENTS_MAX:
            break
    if not heads.events and not must:
        return None, True
    data = encode(seal_data(heads.leaves().values(), heads.events)).decode()
    (made,) = system_rows(tx, [SystemNote(SEAL, "", data, position)], last)
    tx.save(Changes(system=(made,)))
    return made, heads.events < EVENTS_MAX


def seals_from(reader: Reader, number: int) -> list[SystemRow]:
    """The seals from this number on."""
    return [row for row in stream(reader, number - 1) if row.kind == SEAL]


def signatures_of(reader: Reader, seal: SystemRow) -> tuple[str, ...]:
    """What people have signed of a seal, in the order in which they did."""
    rows = stream(reader, seal.number)
    return tuple(row.data for row in rows if row.kind == SIGNATURE and row.subject == seal.digest)


def seal_of(reader: Reader, row: SystemRow) -> Seal:
    """The row as the service answers with it."""
    data, given = read_seal(row), signatures_of(reader, row)
    said = (row.number, row.at, row.position, data.tasks, data.events, row.digest)
    return Seal(*said, reader.ledger_id(), given)


def seal_file(row: SystemRow) -> bytes:
    """What stands of a seal beside the artifacts: always the same for the same row."""
    data = read_seal(row)
    said = {
        "seal": row.digest,
        "number": row.number,
        "at": row.at,
        "position": row.position,
        "tasks": data.tasks,
        "events": data.events,
        "heads": data.heads,
    }
    return encode(said) + b"\n"


# -- what deleted tasks leave ----------------------------------------------------------------------


def deleted_note(tx: Tx, tasks: Sequence[TaskRow], log: Iterable[LogRow]) -> SystemNote:
    """What the stream keeps of these tasks, which are deleted in this transaction; `log` has all
    their events, and each of these has its position."""
    ranges: dict[int, dict[int, Heads]] = defaultdict(lambda: defaultdict(Heads))
    specs = {task.spec.key: task.spec for task in tasks}
    rows = [row for row in log if row.event.key in specs]
    positions = [row.position for row in rows]
    seals = tx.records(SealsBetween(min(positions), max(positions))) if positions else []
    ends = [each.position for each in seals]
    names, placed = {}, dict.fromkeys(specs, 0)
    for row in rows:
        key = row.event.key
        names[key] = row.task_id
        placed[key] += 1
        number = bisect_left(ends, row.position)
        if number < len(seals):
            ranges[key][seals[number].number].add(row, specs)
    entries = []
    for task in tasks:
        key = task.hot.key
        sealed = tuple(
            (number, *heads.leaves()[key][1:], heads.events)
            for number, heads in sorted(ranges[key].items())
        )
        entries.append(
            DeletedTask(names.get(key, ""), *task.hot[1:3], task.hot.digest, placed[key], sealed)
        )
    return SystemNote(DELETED, "", encode(entries).decode())


def read_deleted(row: SystemRow) -> list[DeletedTask]:
    tasks: list[DeletedTask] = decoder(list[DeletedTask]).decode(row.data)
    return tasks
