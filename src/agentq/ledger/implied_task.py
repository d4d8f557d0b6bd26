"""All rows of one task as its log implies them, where that log is whole: for `agentq repair`.

A log is whole if its digests are those of what it says, its events have their places in order, and
replaying gives each of them. Nobody can see by a task's own log that its last event was taken away;
so its row must know the last event: by its digest, or, unless events are missing somewhere, by its
version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentq.contracts.rebuilt_rows import RebuiltTask
from agentq.contracts.store import ArtifactRow, EventRow, HotRow, Reader, TaskRow, Tx
from agentq.core.task import Spec, Task
from agentq.core.triggers import Event
from agentq.ledger.chain_proof import check_chain
from agentq.ledger.codec import decode_spec, encode_details, to_hot
from agentq.ledger.implied_budgets import inherited_roots
from agentq.ledger.implied_rows import implied_flags, implied_parents
from agentq.ledger.ledger import LEASE_MS_MAX
from agentq.ledger.log_codec import to_event
from agentq.ledger.proof_rows import Followed, Proved, RowsBeside, counts_of
from agentq.ledger.replay import check_positions, check_task, check_words, evidence_of, replay
from agentq.ledger.shared_budgets import begins_tree
from agentq.ledger.stream_proof import SystemStream

#: So many tasks of which a part is missing are looked for; with more than that nobody can tell.
ORPHANS_MAX = 10_000


class Trust(NamedTuple):
    """How far logs are believed: events after a position have digests; whether none is missing;
    and the keys of tasks of whose record a part is."""

    chained_after: int
    is_complete: bool
    orphans: frozenset[int]

    def covers(self, key: int) -> bool:
        """Whether certainly no event of a task is missing."""
        return self.is_complete and key not in self.orphans and len(self.orphans) < ORPHANS_MAX


class WholeLog(NamedTuple):
    """What a whole log gives. `hot` lacks what other rows decide: its flags are those stored."""

    hot: HotRow
    task: Task
    submitted: Spec
    events: Sequence[Event]
    followed: Followed


def trust_in(reader: Reader) -> Trust:
    """Whether the stream, the seals and the number of events all say that no event is missing."""
    system = SystemStream(reader)
    wrong = [*system.problems, *system.check_length(reader), *system.check_seals(reader)]
    orphans = frozenset(reader.orphan_rows(ORPHANS_MAX))
    return Trust(system.chained_after, not wrong, orphans)


def whole_log(reader: Reader, key: int, trust: Trust) -> WholeLog | None:
    """What the log of a task says; None if nobody can rely on it."""
    rows = reader.tasks([key])
    entries = reader.history(key)
    if not rows or not entries:
        return None
    row, last = rows[0], entries[-1].event
    if not _is_head(row.hot, last, is_sure=trust.covers(key)):
        return None
    followed = Followed()
    try:
        spec = decode_spec(row.spec.body)
        events = [to_event(entry.event, spec) for entry in entries]
        task = [each for _, each in replay(events)][-1]
        memo = encode_details(task.details)
        hot = to_hot(key, task, memo, row.hot.flags, last.digest)
        implied = TaskRow(hot, row.spec)
        wrong: list[object] = [*check_task(task, events, 0, followed)]
        wrong += check_words(implied, entries, task, events)
        wrong += check_positions(key, entries)
        wrong += check_chain(implied, entries, trust.chained_after)
        wrong += [name for name in entries if name.task_id != spec.id]
    except Exception:  # noqa: BLE001
        # Whatever a damaged log makes the rules do: nothing can be told by it.
        return None
    if wrong:
        return None
    if task.holder:
        hot = hot._replace(wake_at=_lease_end(row.hot, task, reader.now()))
    return WholeLog(hot, task, spec, events, followed)


def _is_head(hot: HotRow, last: EventRow, *, is_sure: bool) -> bool:
    """Whether a task's row says that this is its last event: by the digest, or where nothing is
    missing elsewhere by the version alone. Earlier versions of agentq wrote no digests."""
    same_version = hot.version == last.version
    if hot.digest == last.digest and last.digest:
        return True
    return same_version and (is_sure or hot.digest == last.digest)


def _lease_end(stored: HotRow, task: Task, now: int) -> int:
    """Heartbeats leave no event: what is stored counts, if they may have made it so."""
    latest = max(now, task.updated_at) + LEASE_MS_MAX
    return stored.wake_at if task.wake_at <= stored.wake_at <= latest else task.wake_at


def implied_task(tx: Tx, key: int, log: WholeLog, role: int, trust: Trust) -> RebuiltTask | None:
    """The row of a task and all that stands beside it, by its log and by the specs of those that it
    has to do with. None if the record of one of those is damaged: it would be taken for another."""
    beside = RowsBeside(tx, key, key, was_complete=counts_of(tx).is_complete)
    task = log.task
    proved = Proved(task, log.submitted, log.hot.flags, log.followed)
    if not all(_is_sound(tx, other, trust) for other in _neighbours(beside, key, log)):
        return None
    roots = inherited_roots(beside, key, proved)
    if roots is None:  # nobody can tell any more
        roots = {root for root, _ in beside.of("members", key)}
    roots = (roots | {key}) if begins_tree(task.spec) else (roots - {key})
    return RebuiltTask(
        log.hot._replace(flags=implied_flags(beside, key, proved, in_tree=bool(roots))),
        role,
        task.spec.priority.rank,
        tuple(sorted(implied_parents(beside, key, proved))),
        tuple(sorted(task.spec.resources)),
        _places(tx, beside, key, task),
        tuple(sorted(roots)),
        tuple(ArtifactRow(key, *each) for each in sorted(evidence_of(log.events))),
    )


def _neighbours(beside: RowsBeside, key: int, log: WholeLog) -> set[int]:
    """The keys of those whose specs decide what stands beside a task."""
    names = {log.submitted.parent, *log.followed.children} - {""}
    listed = {parent for parent, *_ in beside.of("edges", key)}
    return (listed | set(beside.reader.keys(names).values())) - {key}


def _is_sound(reader: Reader, key: int, trust: Trust) -> bool:
    """Whether the record of a task is whole, or nothing is left of it."""
    if not reader.tasks([key]):
        return key not in trust.orphans
    return whole_log(reader, key, trust) is not None


def _places(tx: Tx, beside: RowsBeside, key: int, task: Task) -> tuple[tuple[str, int], ...]:
    """The places of the resources that it holds: those that it has, else the first that is free.
    Without a free one it gets none: whoever has its place for no reason loses that first."""
    wanted = sorted(task.spec.resources) if task.holder else []
    if not wanted:
        return ()
    has = {name: place for name, place, _ in reversed(beside.of("holds", key))}
    places = []
    for row in tx.resources(wanted):
        taken = {place for place, holder in row.holders if holder != task.id}
        allowed = range(max(row.max_held, 1))
        free = [place for place in (has.get(row.name, 0), *allowed) if place not in taken]
        places += [(row.name, place) for place in free if place in allowed][:1]
    return tuple(places)
