"""Proves the system stream, what follows from it, and the seals.

The stream must be whole and chained. Limits, circuits, tokens and lanes must say what its last
event about them says. Each seal is computed again, from the events that are there and from what
deleted tasks have left. And no event may be missing that no task has taken along: positions have no
gaps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from agentq.contracts.service_values import Problem
from agentq.contracts.store import Reader
from agentq.contracts.system_rows import LogLength, SystemRow
from agentq.ledger.proof_rows import LOGGED, UNREADABLE, Finding
from agentq.ledger.sealing import (
    DELETED,
    SEAL,
    Heads,
    Leaf,
    pages,
    read_deleted,
    read_seal,
    seal_data,
    unchained_specs,
)
from agentq.ledger.system_log import (
    CHAINED,
    STANDING,
    UNLESS_SAID,
    row_digest,
    standing_notes,
    stream,
)

#: What a finding is about that concerns no task.
SUBJECT = "the system stream"


class SystemStream:
    """What the system stream says, read once from its beginning."""

    def __init__(self, reader: Reader) -> None:
        self.problems: list[Problem] = []
        self.seals: list[SystemRow] = []
        #: Positions up to this one were written before there were digests.
        self.chained_after = 0
        self._gone_events = 0
        self._ledger_id = ""
        #: By kind and subject, what the last event of each says that stands somewhere.
        self.last: dict[tuple[str, str], str] = {}
        self._gone: dict[int, list[Leaf]] = defaultdict(list)
        self._gone_of_seals: dict[int, int] = defaultdict(int)
        before: SystemRow | None = None
        for row in stream(reader):
            try:
                self._take(before, row)
            except ValueError as error:
                self._found(f"event {row.number} ({row.kind}) cannot be read: {error}", row.number)
            before = row
        if before is None:
            self._found("its first event is gone", 1, CHAINED)

    def _found(self, what: str, number: int, expected: object = "", found: object = "") -> None:
        where = f"system_events, number {number}"
        self.problems.append(Finding(where, what, expected, found, LOGGED).of(SUBJECT))

    def _take(self, before: SystemRow | None, row: SystemRow) -> None:
        expected = before.number + 1 if before else 1
        if row.number != expected:
            what = f"event {expected} is gone: the next is {row.number}"
            self._found(what, expected, expected, row.number)
        if before is None:
            if row.kind != CHAINED or row.digest:
                what = f"its first event is of kind {row.kind!r}, not {CHAINED!r}"
                self._found(what, row.number, CHAINED, row.kind)
            self.chained_after, self._ledger_id = row.position, row.subject
            self._gone_events = int(row.data)
            return
        if row.digest != (digest := row_digest(before, row)):
            what = f"event {row.number} ({row.kind} {row.subject}".rstrip()
            what += ") or the one before was changed: its digest is not that of what it says"
            self._found(what, row.number, digest, row.digest)
        if row.kind == SEAL:
            self.seals.append(row)
        elif row.kind == DELETED:
            for task in read_deleted(row):
                self._gone_events += task.events
                for number, version, digest, events in task.sealed:
                    self._gone[number].append((task.id, version, digest))
                    self._gone_of_seals[number] += events
        elif row.kind in STANDING:
            self.last[row.kind, row.subject] = row.data

    # -- what follows from it --------------------------------------------------------------------

    def differing(self, reader: Reader) -> Iterator[tuple[tuple[str, str], str, str]]:
        """Limits, circuits, tokens, lanes and what was added to budgets that do not stand as the
        last event about each says: kind and subject, what is found, what is expected. A budget goes
        with the last task that shares it."""
        there = {(note.kind, note.subject): note.data for note in standing_notes(reader)}
        for about in sorted(there.keys() | self.last.keys()):
            if about[0] == "tree" and about not in there:
                continue
            found, expected = (
                known.get(about, UNLESS_SAID.get(about[0], "")) for known in (there, self.last)
            )
            if found != expected:
                yield about, found, expected

    def check_standing(self, reader: Reader) -> Iterator[Problem]:
        """What does not stand as the last event about it says."""
        for about, found, expected in self.differing(reader):
            name = " ".join(about).rstrip()
            what = f"it stands at {found or 'nothing'}, the system stream says"
            what = f"{what} {expected or 'nothing'}"
            yield Finding(f"the row of {name}", what, expected, found).of(name)
        if self._ledger_id != reader.ledger_id():
            found, expected = reader.ledger_id(), self._ledger_id
            what = f"the ledger is called {found!r}, the system stream says {expected!r}"
            yield Finding("head.ledger_id", what, expected, found).of("ledger_id")

    def check_length(self, reader: Reader) -> Iterator[Problem]:
        """Every position of the log has an event, or one that a deleted task took along."""
        ((last, events),) = reader.records(LogLength())
        if last != events + self._gone_events:
            known = events + self._gone_events
            what = f"it has {events} events up to position {last}, and tasks that were deleted had"
            what += f" {self._gone_events}: {abs(last - known)} "
            what += "are gone" if last > known else "were added"
            yield Finding("positions of events", what, last, known, LOGGED).of("the log")

    # -- seals -----------------------------------------------------------------------------------

    def check_seals(self, reader: Reader, first: int = 0) -> Iterator[Problem]:
        """Compute each seal again, from this index on."""
        position = self.seals[first - 1].position if first else 0
        for seal in self.seals[first:]:
            heads = Heads()
            for rows in pages(reader, position, seal.position):
                specs = unchained_specs(reader, rows)
                for row in rows:
                    heads.add(row, specs)
            leaves = [*heads.leaves().values(), *self._gone[seal.number]]
            found = seal_data(leaves, heads.events + self._gone_of_seals[seal.number])
            said = read_seal(seal)
            if found != said:
                what = (
                    f"between position {position} and {seal.position} it is over {said.tasks} tasks"
                    f" with {said.events} events; what is there now ({found.tasks} tasks,"
                    f" {found.events} events) is not what was sealed"
                )
                where = f"events {position + 1} to {seal.position}"
                finding = Finding(where, what, said.heads, found.heads, LOGGED)
                yield finding.of(f"seal {seal.number}")
            position = seal.position

    def check_kept(self, digest: str) -> Iterator[Problem]:
        """Whether a digest that somebody has kept elsewhere is that of one of the seals."""
        if any(row.digest == digest for row in self.seals):
            return
        newest = self.seals[-1].digest if self.seals else "none"
        what = (
            f"no seal of this ledger has that digest (the newest: {newest}): what was sealed with"
            " it was rewritten, or it is a seal of another ledger"
        )
        yield Finding("system_events", what, digest, newest, LOGGED).of(f"seal {digest}")


def check_system(
    reader: Reader, seal: str = "", *, since_seal: bool = False
) -> tuple[SystemStream, list[Problem]]:
    """The system stream, and what is wrong with all that is about no task.

    With `since_seal` the newest seal alone is computed again.
    """
    system = SystemStream(reader)
    first = max(len(system.seals) - 1, 0) if since_seal else 0
    problems = list(system.problems)
    for check in (
        system.check_kept(seal) if seal else (),
        system.check_standing(reader),
        system.check_length(reader),
        system.check_seals(reader, first),
    ):
        try:
            problems += check
        except UNREADABLE as error:
            what = f"what is about no task cannot be read: {error}"
            problems.append(Finding("head and system_events", what, advice=LOGGED).of("-"))
    return system, problems
