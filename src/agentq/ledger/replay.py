"""Proof: the log of every task, replayed through `transition`, gives the state that is stored.

Whatever state the rows are in, a damaged one is a finding that names its task, never a crash of the
checker, and does not hide the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol

from agentq.contracts.implied_rows import KEY_MAX, KEY_MIN, LostNames
from agentq.contracts.service_values import Problem
from agentq.contracts.store import ArtifactRow, LogRow, Reader, Store, TaskRow
from agentq.contracts.system_rows import SystemPage
from agentq.contracts.task_filter import Filter, Order
from agentq.core.errors import AgentqError
from agentq.core.schedule import expected_wake
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.transition import transition
from agentq.core.triggers import (
    AddArtifact,
    BlockTask,
    ChildrenSubmitted,
    Edit,
    Event,
    FailAttempt,
    Release,
    Report,
    Requeue,
    Submit,
    Yield,
)
from agentq.core.values import fields_of, replace
from agentq.ledger.chain_proof import check_chain
from agentq.ledger.codec import (
    decode_plain,
    decode_spec,
    encode_details,
    encode_spec,
    to_task,
)
from agentq.ledger.implied_budgets import Spending, lone_tree_findings
from agentq.ledger.implied_rows import findings, findings_of_nobody
from agentq.ledger.ledger import LEASE_MS_MAX
from agentq.ledger.log_codec import encode_trigger, to_event
from agentq.ledger.proof_rows import (
    DERIVED,
    LOGGED,
    UNKNOWN,
    UNREADABLE,
    Finding,
    Followed,
    Proved,
    RowsBeside,
    counts_of,
)
from agentq.ledger.stream_proof import SystemStream, check_system
from agentq.ledger.submit import DEDUP_MS

#: Tasks looked at per read.
_PAGE = 500
#: Keys of tasks no farther apart than this are looked at together.
_NEAR = 100
#: Findings of one kind that are named, at most, where one accident gives very many.
_NAMED_MAX = 100

#: What a holder says when it leaves.
_LAST_WORDS = (Report, FailAttempt, BlockTask, Yield, Release)


class CheckFiles(Protocol):
    """Compares the files of tasks with what their logs say of them."""

    def look_ahead(self, recorded: Iterable[tuple[str, ArtifactRow]]) -> None:
        """Begin to read what is recorded of some tasks, by id."""

    def findings(
        self, proved: Proved, rows: Sequence[ArtifactRow], *, is_waiting: bool
    ) -> Iterable[Finding]:
        """What is wrong with the files of one task; its result may wait to be published."""

    def findings_of_nobody(self, reader: Reader) -> Iterable[tuple[str, Finding]]:
        """Files of tasks that nobody has asked for: (task id, what is wrong)."""


def replay(events: Sequence[Event]) -> Iterator[tuple[Event, Task]]:
    """Each event with the task it leaves, decided anew from nothing but the log."""
    task: Task | None = None
    for event in events:
        decision = transition(task, event.trigger, event.at)
        task = decision.task
        yield event, task


def check_task(
    stored: Task, events: Sequence[Event], now: int = 0, followed: Followed | None = None
) -> list[Problem]:
    """What is wrong with a task, by its log; empty if everything is proved. Without `now` nobody
    asks whether its lease ends too late. `followed` receives what followed from the events."""
    versions = [event.version for event in events]
    if versions != list(range(1, len(events) + 1)):
        what = f"the log has versions {versions[:5]}… instead of 1 to {stored.version}"
        found = [Finding("events.version", what, f"1 to {stored.version}", versions, LOGGED)]
    elif not events or not isinstance(events[0].trigger, Submit):
        what = "the log does not begin with a submission"
        found = [Finding("events of version 1", what, "Submit", "", LOGGED)]
    else:
        found = _compare(stored, events, now, followed or Followed())
    return [each.of(stored.id) for each in found]


def _in_words(event: Event) -> str:
    return f"{event.kind}, {event.state}, attempt {event.epoch}"


def _compare(stored: Task, events: Sequence[Event], now: int, followed: Followed) -> list[Finding]:
    found: list[Finding] = []
    task: Task | None = None
    try:
        for event in events:
            before = task
            decision = transition(task, event.trigger, event.at)
            task = decision.task
            _follow(followed, before, event, task)
            if decision.effects:
                followed.effects[event.version] = (task, decision.effects)
            if decision.events != (event,):
                said, given = _in_words(event), "nothing"
                if decision.events:
                    given = _in_words(decision.events[0])
                what = f"event {event.version} says {said}; replaying gives {given}"
                found.append(Finding(f"events, version {event.version}", what, given, said, LOGGED))
    except Exception as error:  # noqa: BLE001
        # Whatever a damaged log makes the rules do, it is a finding, not a crash of the checker.
        version = task.version if task else 0
        what = f"replaying stops after version {version}: {error}"
        return [Finding(f"events, version {version + 1}", what, "", str(error), LOGGED)]
    assert task is not None
    found += _compare_custody(stored, task, now)
    if task.holder:
        task = replace(task, wake_at=stored.wake_at)
    if task != stored:
        names = [each.name for each in fields_of(Task)]
        different = [name for name in names if getattr(task, name) != getattr(stored, name)]
        what = f"the log does not give the stored {', '.join(different)}"
        expected = ", ".join(f"{name} {getattr(task, name)!r}" for name in different)
        is_ = ", ".join(f"{name} {getattr(stored, name)!r}" for name in different)
        found.append(Finding(f"tasks or specs, {', '.join(different)}", what, expected, is_))
    return found


def _follow(followed: Followed, before: Task | None, event: Event, task: Task) -> None:
    trigger = event.trigger
    followed.states.add(task.state)
    if before is not None and task.details.spent != before.details.spent:
        followed.costs.append((task.spec, trigger.cost, event.at))  # type: ignore[union-attr]
    if isinstance(trigger, _LAST_WORDS) and before is not None and before.holder != task.holder:
        followed.ended.add(trigger.epoch)
    if isinstance(trigger, Edit) and trigger.context_sha256:
        followed.contexts.add(trigger.context_sha256)
    if isinstance(trigger, (Submit, ChildrenSubmitted, Requeue)):
        followed.children |= dict.fromkeys(trigger.children, event.at)
    if isinstance(trigger, Submit):
        followed.is_refused = bool(trigger.refused)
        followed.has_lost = any(each not in trigger.spec.after for each, _ in trigger.ended)


def _compare_custody(stored: Task, task: Task, now: int) -> Iterator[Finding]:
    """Who holds it, and when time matters to it next."""
    wake_at, where = stored.wake_at, "tasks.wake_at"
    if task.holder:
        # Heartbeats move the end of the lease without an event, and never back.
        if wake_at < task.wake_at:
            what = f"its lease ends at {wake_at}, before the log says it may"
            yield Finding(where, what, f"at least {task.wake_at}", wake_at)
        latest = max(now, stored.updated_at) + LEASE_MS_MAX
        if now and wake_at > latest:
            what = f"its lease ends at {wake_at}, later than anybody may renew it for"
            yield Finding(where, what, f"at most {latest}", wake_at)
    elif wake_at != (implied := expected_wake(stored)):
        what = f"wake_at is {wake_at}, its fields call for {implied}"
        yield Finding(where, what, implied, wake_at)
    if stored.holder and stored.state not in (State.IN_PROGRESS, State.CANCELLED):
        what = f"it is {stored.state} and yet held by {stored.holder}"
        yield Finding("tasks.holder", what, "", stored.holder)


# -- all tasks, page by page ---------------------------------------------------------------------


def verify(
    store: Store,
    check_files: CheckFiles | None = None,
    dedup_ms: int = DEDUP_MS,
    *,
    seal: str = "",
    since_seal: bool = False,
) -> Iterator[tuple[int, list[Problem]]]:
    """(tasks looked at so far, problems found on this page), until everything was looked at.

    With the digest of a `seal`, whether the ledger has it; with `since_seal`, of seals and tasks
    only what came after the newest.
    """
    unplaced = _give_positions(store)
    system, problems = store.read(partial(check_system, seal=seal, since_seal=since_seal))
    if unplaced or problems:
        yield 0, unplaced + problems
    chained_after = system.chained_after
    proof = store.read(lambda reader: _Proof(reader, chained_after, check_files, dedup_ms))
    if since_seal:
        yield from _changed_since(store, system, proof)
        return
    seen, after = 0, KEY_MIN
    while after < KEY_MAX:
        after, looked_at, problems = store.read(partial(proof.page, after=after))
        seen += looked_at
        if looked_at or problems:
            yield seen, problems
    problems = store.read(proof.whole)
    if problems:
        yield seen, problems


def _give_positions(store: Store) -> list[Problem]:
    """Give every event its position in the log; where that cannot be done, that is a finding. A
    database that is away says so when it is next asked."""
    try:
        store.number_events()
    except (AgentqError, *UNREADABLE) as error:
        what = f"events cannot be given their positions in the log: {error}"
        return [Finding("events.position", what, advice=LOGGED).of("-")]
    return []


def _changed_since(
    store: Store, system: SystemStream, proof: _Proof
) -> Iterator[tuple[int, list[Problem]]]:
    """Of all tasks those that have events after the newest seal."""
    position = system.seals[-1].position if system.seals else 0
    seen: set[int] = set()
    while entries := store.read(partial(_events_after, position=position)):
        keys = sorted({entry.event.key for entry in entries} - seen)
        seen |= set(keys)
        if keys:
            yield len(seen), store.read(partial(proof.tasks, keys=keys))
        position = entries[-1].position


def _events_after(reader: Reader, position: int) -> list[LogRow]:
    return reader.events_after(position, _PAGE)


def prove_task(reader: Reader, key: int) -> list[Problem]:
    """What is wrong with one task, by its log and its digests; its files are not looked at."""
    chained_after = next((row.position for row in reader.records(SystemPage(0, 1))), 0)
    return _Proof(reader, chained_after, None, DEDUP_MS).tasks(reader, [key])


class _Proof:
    """A proof of everything that is stored, while it goes on."""

    def __init__(
        self, reader: Reader, chained_after: int, check_files: CheckFiles | None, dedup_ms: int
    ) -> None:
        """Events after the position `chained_after` must have digests."""
        self._spending = Spending(reader)
        self._chained_after = chained_after
        self._check_files = check_files
        self._dedup_ms = dedup_ms
        self._was_complete = counts_of(reader).is_complete
        #: Keys of tasks that something is wrong with.
        self._named: set[int] = set()
        #: Whether every log could be read: else nobody knows what they come to together.
        self._all_read = True

    def page(self, reader: Reader, after: int) -> tuple[int, int, list[Problem]]:
        """The last key that was looked at, how many tasks there were, and what is wrong."""
        rows = reader.list_tasks(Filter(order=Order.OLDEST, key=max(after, 0), limit=_PAGE))
        keys = [row.hot.key for row in rows]
        # Beyond the last task of the last page there must be nothing at all.
        last = keys[-1] if len(keys) == _PAGE else KEY_MAX
        beside = RowsBeside(reader, after + 1, last, was_complete=self._was_complete)
        problems, there = self._each(reader, rows, beside), set(keys)
        try:
            for unowned in (findings_of_nobody(beside, there), lone_tree_findings(beside, there)):
                problems += [each.of(f"key {key}") for key, each in unowned]
        except UNREADABLE as error:
            problems.append(Problem("-", f"what belongs to no task cannot be read: {error}"))
        return last, len(rows), problems

    def tasks(self, reader: Reader, keys: Sequence[int]) -> list[Problem]:
        """What is wrong with these tasks; what belongs to no task is not looked at."""
        problems: list[Problem] = []
        for near in _near(keys):
            beside = RowsBeside(reader, near[0], near[-1], was_complete=self._was_complete)
            problems += self._each(reader, reader.tasks(near), beside)
        return problems

    def _each(self, reader: Reader, rows: Sequence[TaskRow], beside: RowsBeside) -> list[Problem]:
        histories: dict[int, list[LogRow]] = defaultdict(list)
        for entry in reader.history(*(row.hot.key for row in rows)) if rows else ():
            histories[entry.event.key].append(entry)
        if self._check_files is not None:
            self._check_files.look_ahead(
                (entries[0].task_id, ArtifactRow(key, *each))
                for key, entries in histories.items()
                for each in beside.of("artifacts", key)
            )
        problems: list[Problem] = []
        for row in rows:
            found = self._task(row, histories[row.hot.key], beside)
            if found:
                self._named.add(row.hot.key)
                problems += found
        return problems

    def _task(self, row: TaskRow, entries: Sequence[LogRow], beside: RowsBeside) -> list[Problem]:
        key, followed = row.hot.key, Followed()
        name = entries[0].task_id if entries else ""
        try:
            # Not from the cache of specs: what is stored now is what must be proved.
            spec = decode_spec(row.spec.body)
            name = spec.id
            task = to_task(row.hot, spec, row.spec.submitted_at)
            events = [to_event(entry.event, spec) for entry in entries]
            problems = check_task(task, events, beside.now, followed)
            artifacts = [ArtifactRow(key, *each) for each in beside.of("artifacts", key)]
            found = [*check_words(row, entries, task, events), *check_positions(key, entries)]
            found += check_chain(row, entries, self._chained_after)
            found += _check_evidence(events, artifacts)
            proved = Proved(task, spec, row.hot.flags, followed)
            found += findings(beside, key, proved, self._dedup_ms)
            if self._check_files is not None:
                waits = any(lane == "results" for _, _, lane, _ in beside.of("outbox", key))
                found += self._check_files.findings(proved, artifacts, is_waiting=waits)
        except UNREADABLE as error:
            self._all_read = False
            what = f"its record cannot be read: {error}"
            return [Finding(f"rows of key {key}", what, advice=LOGGED).of(name or f"key {key}")]
        self._all_read = self._all_read and not problems
        self._spending.add(followed.costs)
        return problems + [each.of(task.id) for each in found]

    def whole(self, reader: Reader) -> list[Problem]:
        """What is wrong with the ledger as a whole."""
        gone = reader.orphan_rows(_NAMED_MAX)
        part = Finding("tasks, specs and events", "a part of this task's record is gone")
        problems = [
            part._replace(advice=LOGGED).of(f"key {key}") for key in gone if key not in self._named
        ]
        if self._check_files is not None:
            found = self._check_files.findings_of_nobody(reader)
            problems += [each.of(task_id) for task_id, each in found]
        if self._all_read and not gone:
            try:
                problems += [each.of("-") for each in self._totals(reader)]
            except UNREADABLE as error:
                problems.append(Problem("-", f"what belongs to no task cannot be read: {error}"))
        return problems

    def _totals(self, reader: Reader) -> Iterator[Finding]:
        counts = counts_of(reader)
        if counts.last_key < 0:
            yield Finding("head", "the ledger's own row is gone", "one row", "none", LOGGED)
        yield from self._spending.findings(reader, counts)
        if not counts.is_complete:
            return
        if not counts.deferred:
            for name, task_id in reader.records(LostNames(_NAMED_MAX)):
                what = f"the name {name!r} stands for {task_id}, which never was"
                yield Finding(f"dedup {name}", what, "", task_id, UNKNOWN)


def _near(keys: Sequence[int]) -> Iterator[list[int]]:
    """Keys in order, at least one, cut where the next is far: what stands beside is read by ranges
    of keys."""
    near: list[int] = []
    for key in sorted(keys):
        if near and key > near[-1] + _NEAR:
            yield near
            near = []
        near.append(key)
    yield near


def check_words(
    row: TaskRow, entries: Sequence[LogRow], task: Task, events: Sequence[Event]
) -> Iterator[Finding]:
    """What is stored as JSON says what was read of it and nothing else."""
    written = [("specs.body", row.spec.body, encode_spec(decode_spec(row.spec.body)))]
    written.append(("tasks.memo", row.hot.memo, encode_details(task.details)))
    for entry, event in zip(entries, events, strict=True):
        column = f"events.data of version {event.version}"
        written.append((column, entry.event.data, encode_trigger(event.trigger)))
    for where, stored, again in written:
        if stored != again and _plain(stored) != _plain(again):
            what = f"{where} says {stored[:200]!r}, of which the ledger would write {again[:200]!r}"
            yield Finding(where, what, again, stored, LOGGED)


def _plain(text: str) -> object:
    return decode_plain(text) if text else {}


def check_positions(key: int, entries: Sequence[LogRow]) -> Iterator[Finding]:
    """Its events have places in the log in the order in which they happened."""
    places = [entry.position for entry in entries if entry.position]
    if places != sorted(set(places)):
        what = f"its events stand in the log at {places}, which is another order"
        yield Finding(f"positions of key {key}", what, sorted(set(places)), places, LOGGED)


def evidence_of(events: Sequence[Event]) -> set[tuple[int, str, int, str, str, int]]:
    """What the log says was added, as it stands in `artifacts` beside the key."""
    return {
        (added.epoch, added.name, added.size, added.sha256, added.media_type, each.at)
        for each in events
        if isinstance(added := each.trigger, AddArtifact)
    }


def _check_evidence(events: Sequence[Event], rows: Sequence[ArtifactRow]) -> Iterator[Finding]:
    """The record of an artifact must be what the log says was added, no more and no less."""
    added = evidence_of(events)
    recorded = {tuple(row[1:]) for row in rows}
    for epoch, name in sorted({each[:2] for each in added ^ recorded}):
        what = f"its log and its record of evidence differ: {name} of attempt {epoch}"
        expected, found = (
            next((each for each in both if each[:2] == (epoch, name)), "")
            for both in (added, recorded)
        )
        yield Finding(f"artifacts, {name} of attempt {epoch}", what, expected, found, DERIVED)
