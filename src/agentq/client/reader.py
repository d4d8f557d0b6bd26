"""`QueueReader`: everything a client may ask; nothing here changes a task.

Commands that only look import this and nothing else of the client, because they start often. What
is also a method of `Queue` or `Admin` is explained there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from agentq.client.principals import principal_of
from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.core import access
from agentq.core.errors import Invalid, TimedOut
from agentq.core.states import DEAD_LETTERS, TERMINAL, State
from agentq.core.task import Task
from agentq.core.values import replace
from agentq.protocol.envelope import iso, task_to_dict

if TYPE_CHECKING:
    from agentq.client.artifacts import Artifact, Result
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.delivery import DeadMessage
    from agentq.contracts.doorbell import Waiter
    from agentq.contracts.number_values import Numbers
    from agentq.contracts.overview_values import AwaitedDecisions, Overview, WorkerInfo
    from agentq.contracts.proof_values import Seal
    from agentq.contracts.service import Queries, Service
    from agentq.contracts.service_values import (
        ArtifactInfo,
        Circuit,
        Explanation,
        KeyStanding,
        Overhead,
        Page,
        Problem,
        Quality,
        Replayed,
        Stats,
        Wanted,
    )
    from agentq.core.access import Action, Principal
    from agentq.core.limits import RoleLimits
    from agentq.core.task import Usage
    from agentq.core.triggers import LogEntry
    from agentq.wiring import WiredInstallation

#: The safety net under the doorbell: how long a waiter sleeps at most before it looks again.
POLL_SECONDS = 5.0
_TICK_EVERY = 1.0
#: How many tasks are measured at once: as many as the ledger does by itself.
MEASURED_MAX = 10_000


class QueueReader:
    """Looks at a ledger and its artifacts. `Writer` and `Client` add what changes something.

    `who` is on whose behalf everything is asked; by default what the environment says: the attempt
    that a worker has started this process for, else a person.
    """

    def __init__(self, installation: WiredInstallation, who: Principal | None = None) -> None:
        self.installation = installation
        if who is not None:
            self.who = who
        self._ticked = 0.0
        self._ticking = threading.Lock()

    # Opened when first needed: a command that looks at one task pays for nothing else.

    @cached_property
    def who(self) -> Principal:
        return principal_of(self.installation.settings, self.installation.ledger_id)

    @property
    def service(self) -> Service:
        """Everything that may be asked of the ledger."""
        return self.installation.service

    @property
    def queries(self) -> Queries:
        """What of it changes nothing: it is there sooner."""
        return self.installation.queries

    @property
    def artifacts(self) -> ArtifactStore:
        return self.installation.artifacts

    def check_may(self, action: Action, about: str = "") -> None:
        """Raise `Refused` unless this principal may do that at all: for what concerns no task."""
        access.check(self.who, action, access.Relation.NONE, about)

    def close(self) -> None:
        """Let go of the database. Closing twice is fine."""
        self.installation.close()

    # -- tasks -----------------------------------------------------------------------------------

    def task(self, ref: str) -> Task:
        """The task of this id, or of the one id that starts with it."""
        return self.queries.task(self.who, ref)

    def tasks(self, wanted: Wanted | None = None) -> Page:
        """A page of tasks, newest first."""
        from agentq.contracts.service_values import Wanted

        return self.queries.list_tasks(self.who, wanted or Wanted())

    def dead_letters(self, limit: int = 50, role: str = "", cursor: int = 0) -> Page:
        from agentq.contracts.service_values import Wanted

        states = tuple(sorted(DEAD_LETTERS))
        return self.tasks(Wanted(states=states, role=role, limit=limit, cursor=cursor))

    @property
    def has_broker(self) -> bool:
        return bool(self.installation.settings.broker)

    def dead_messages(self, limit: int = 100, begins: str = "") -> list[DeadMessage]:
        """Messages of the broker that no reader could make sense of, the oldest first; those whose
        key begins so."""
        self.check_may(access.Action.READ, "messages of the broker")
        return self.installation.dead_messages(limit, begins) if self.has_broker else []

    def explain(self, ref: str) -> Explanation:
        return self.queries.explain(self.who, ref)

    def stats(self) -> Stats:
        return self.queries.stats(self.who)

    def overview(self) -> Overview:
        return self.queries.overview(self.who)

    def approvals(
        self, role: str = "", asked_of: str = "", limit: int = 50, *, with_reviewers: bool = False
    ) -> AwaitedDecisions:
        return self.queries.approvals(
            self.who, role, asked_of, limit, with_reviewers=with_reviewers
        )

    def workers(self) -> list[WorkerInfo]:
        return self.queries.workers(self.who)

    def limits(self) -> dict[str, RoleLimits]:
        return self.queries.limits(self.who)

    def key_limits(self, keys: Sequence[str] = ()) -> dict[str, KeyStanding]:
        return self.queries.key_limits(self.who, keys)

    def circuits(self) -> list[Circuit]:
        return self.queries.circuits(self.who)

    def costs(self, by: str = "role") -> dict[str, Usage]:
        return self.queries.costs(self.who, by)

    def every_task(self, wanted: Wanted | None = None, since: int = 0) -> Iterator[Task]:
        """All tasks that are wanted and were submitted at `since` or later, newest first."""
        from agentq.contracts.service_values import Wanted

        wanted = replace(wanted or Wanted(), limit=500)
        while True:
            page = self.tasks(wanted)
            for task in page.tasks:
                if task.submitted_at < since:
                    return  # the list is in the order of submission
                yield task
            if not page.cursor:
                return
            wanted = replace(wanted, cursor=page.cursor)

    def overhead(self, ids: Sequence[str], *, below: bool = False) -> Overhead:
        return self.queries.overhead(self.who, ids, below=below)

    def run_overhead(self, ref: str) -> Overhead:
        run = self.task(ref)
        if run.spec.type != "run":
            raise Invalid(
                f"{run.id} is no run: it is of type {run.spec.type!r}.",
                f"Measure it, and all below it, as a task: `agentq stats overhead {run.id}`.",
            )
        return self.overhead([run.id], below=True)

    def recent_overhead(self, since: int = 0, role: str = "") -> Overhead:
        """Of tasks that were submitted at `since` or later."""
        return self.queries.recent_overhead(self.who, since, role)

    def labelled_overhead(self, wanted: Wanted, since: int = 0) -> Overhead:
        """The same of those that are wanted, as many as are measured at once."""
        tasks = list(islice(self.every_task(wanted, since), MEASURED_MAX + 1))
        found = self.overhead([task.id for task in tasks[:MEASURED_MAX]])
        return replace(found, cut=found.cut or len(tasks) > MEASURED_MAX)

    def quality(self, since: int = 0, role: str = "") -> Quality:
        return self.queries.quality(self.who, since, role)

    def numbers(self, period: str = "24h", role: str = "") -> Numbers:
        """How work went in a period, as new as the log."""
        return self.queries.numbers(self.who, period, role)

    def ids(self, prefix: str, limit: int = 50) -> list[str]:
        """Ids that start with this, for completion."""
        return self.queries.ids(self.who, prefix, limit)

    def as_json(self, task: Task) -> dict[str, object]:
        """The one JSON shape of a task."""
        context = ""
        if task.spec.context_sha256:
            context = self.artifacts.context_ref(task.id, task.edited_context)
        report = task.details.report
        done = task.state is State.COMPLETE and report is not None and report.result
        result = self.artifacts.result_ref(task.id) if done else ""
        return task_to_dict(task, context_ref=context, result_ref=result)

    def context(self, task: Task) -> str:
        """The full text of a task: its context file, else its instructions."""
        if not task.spec.context_sha256:
            return task.spec.instructions
        return self.queries.context(self.who, task.id)

    # -- evidence --------------------------------------------------------------------------------

    def artifact_list(self, ref: str) -> list[ArtifactInfo]:
        return self.queries.artifacts(self.who, ref)

    def artifacts_of(self, ref: str) -> list[Artifact]:
        """The evidence of all attempts at a task, as objects that can be read."""
        from agentq.client.artifacts import Artifact

        task_id = self.task(ref).id
        return [Artifact.of(row, task_id, row.epoch, self) for row in self.artifact_list(task_id)]

    def open_artifact(self, ref: str, name: str, epoch: int = 0) -> tuple[ArtifactInfo, BinaryIO]:
        """A file of an attempt (the newest that has it), checked against its digest."""
        _, info, file = self.queries.open_artifact(self.who, ref, name, epoch)
        return info, file

    def result(self, ref: str) -> Result:
        """What a completed task gave: its result file, else its summary."""
        from agentq.client.artifacts import Result

        task, file = self.open_result(ref)
        report = task.details.report
        assert report is not None
        if file is None:
            return Result(task, "", "", report.summary.encode())
        with file:
            return Result(task, report.result, report.result_sha256, file.read())

    def open_result(self, ref: str) -> tuple[Task, BinaryIO | None]:
        """The result file of a completed task, checked, for reading a piece at a time; None if the
        task gave only its summary."""
        return self.queries.open_result(self.who, ref)

    # -- the log ---------------------------------------------------------------------------------

    def history(self, ref: str) -> list[LogEntry]:
        return self.queries.history(self.who, ref)

    def events(self, after: int = 0, limit: int = 500) -> list[LogEntry]:
        return self.queries.events_after(self.who, after, limit)

    def event_json(self, entry: LogEntry) -> dict[str, object]:
        """The one JSON shape of an event; `data` is what its trigger carried."""
        from agentq.core.triggers import trigger_name

        event = entry.event
        return {
            "position": entry.position,
            "task_id": entry.task_id,
            "version": event.version,
            "at": iso(event.at),
            "kind": event.kind,
            "trigger": trigger_name(event.trigger),
            "state": str(event.state),
            "epoch": event.epoch,
            "data": self.queries.event_data(entry),
        }

    def replay(self, ref: str) -> Replayed:
        return self.queries.replay(self.who, ref)

    def last_position(self) -> int:
        """The position of the newest event; 0 in an empty log."""
        return self.queries.last_position(self.who)

    def follow(self, after: int | None = None, timeout: float | None = None) -> Iterator[LogEntry]:
        """Events as they are committed, from `after` on (default: from now). Ends by timeout."""
        position = self.last_position() if after is None else after
        deadline = None if timeout is None else time.monotonic() + timeout
        with closing(self.installation.doorbell.listen((EVENTS_TOPIC,))) as waiter:
            while True:
                entries = self.events(position)
                for entry in entries:
                    position = entry.position
                    yield entry
                if entries:
                    continue
                pause = POLL_SECONDS
                if deadline is not None:
                    pause = min(pause, deadline - time.monotonic())
                    if pause <= 0:
                        return
                waiter.wait(pause)

    def wait(
        self, ref: str, timeout: float | None = None, until: Collection[State] = TERMINAL
    ) -> Task:
        """Sleep until the task is in one of these states (default: over)."""
        return self.wait_all([ref], timeout, until)[0]

    def wait_all(
        self,
        refs: Sequence[str],
        timeout: float | None = None,
        until: Collection[State] = TERMINAL,
        looked: Callable[[Sequence[Task], Mapping[str, Task]], None] | None = None,
    ) -> list[Task]:
        """Sleep until each of these tasks has been seen in one of these states; the tasks, in the
        order of `refs`. After each look `looked` is called with those that are waited for, and
        those that are there, by id."""
        there = self.queries.tasks_by_id(self.who, refs) if len(refs) > 1 else {}
        ids = [ref if ref in there else self.task(ref).id for ref in refs]
        reached: dict[str, Task] = {}
        waiting: list[Task] = []
        with closing(self.looks(timeout)) as looks:
            for _ in looks:
                waiting = self._not_yet(ids, reached, until)
                if looked is not None:
                    looked(waiting, reached)
                if not waiting:
                    return [reached[each] for each in ids]
        raise _timed_out(waiting, timeout or 0)

    def wait_gone(self, ref: str, timeout: float | None = None) -> Task:
        """Sleep until nobody holds a cancelled task: its agent has ended, or its lease."""
        task = self.task(ref)
        with closing(self.looks(timeout)) as looks:
            for _ in looks:
                task = self.task(task.id)
                if not task.holder:
                    return task
        raise TimedOut(
            f"{task.id} is {task.state}, but {task.holder} has not said that its agent is gone"
            f" after {timeout:g} s.",
            "It is told with every heartbeat; at the end of its lease it counts as gone.",
        )

    def _not_yet(
        self, ids: Sequence[str], reached: dict[str, Task], until: Collection[State]
    ) -> list[Task]:
        """Add tasks that are where they are waited for to `reached`; return the others."""
        waiting = [each for each in dict.fromkeys(ids) if each not in reached]
        # One task is asked for by itself: the error then says why it cannot be read.
        found = (
            {waiting[0]: self.task(waiting[0])}
            if len(waiting) == 1
            else self.queries.tasks_by_id(self.who, waiting)
        )
        reached.update((each, task) for each, task in found.items() if task.state in until)
        return [found.get(each) or self.task(each) for each in waiting if each not in reached]

    # -- time ------------------------------------------------------------------------------------

    def now(self) -> int:
        return self.queries.now()

    def tick(self) -> int:
        """Apply due timers: ended leases, backoffs, expiry. Whoever waits does this at times."""
        return self.service.tick(self.who)

    def looks(self, timeout: float | None) -> Generator[None]:
        """Yield whenever it is time to look: at once, then after each change; ends by timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with closing(self.installation.doorbell.listen((EVENTS_TOPIC,))) as waiter:
            while True:
                yield
                left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return
                self.wait_for_change(waiter, left)

    def wait_for_change(self, waiter: Waiter, left: float) -> None:
        """One sleep of a waiting loop: until a ring, the next timer, or the safety poll."""
        # Waiters that were rung together must not also poll together.
        pause = min(left, POLL_SECONDS * (0.8 + time.perf_counter_ns() % 200 / 1000))
        wake_at = self.next_wake()
        if wake_at:
            until_due = (wake_at - self.now()) / 1000
            if until_due <= 0:
                self.tick()
                return
            pause = min(pause, until_due)
        waiter.wait(pause)

    def next_wake(self) -> int:
        """The earliest moment at which time matters to a task; 0 if there is none."""
        return self.queries.next_wake(self.who)

    def tick_now_and_then(self) -> None:
        """Called by whoever claims: a single worker needs nobody else to end leases for it."""
        now = time.monotonic()
        with self._ticking:
            if now - self._ticked < _TICK_EVERY:
                return
            self._ticked = now
        self.tick()

    # -- proof -----------------------------------------------------------------------------------

    def verify(
        self, *, seal: str = "", since_seal: bool = False
    ) -> Iterator[tuple[int, list[Problem]]]:
        return self.queries.verify(self.who, seal=seal, since_seal=since_seal)

    def last_seal(self, *, signed: bool = False) -> Seal | None:
        return self.queries.last_seal(self.who, signed=signed)


def _timed_out(waiting: Sequence[Task], timeout: float) -> TimedOut:
    task, more = waiting[0], len(waiting) - 1
    others = f", and {more} more are not there either" if more else ""
    return TimedOut(
        f"{task.id} is still {task.state} after {timeout:g} s{others}.",
        f"`agentq explain {task.id}` says what it waits for.",
    )
