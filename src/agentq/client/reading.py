"""The half of the queue that looks: tasks, the log, evidence, waiting for what will happen."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.contracts.service_values import Page, Stats, Wanted
from agentq.core.envelope import iso, task_to_dict
from agentq.core.errors import Damaged, NotFound, Refused, TimedOut
from agentq.core.states import DEAD_LETTERS, TERMINAL, State
from agentq.core.task import Task
from agentq.ledger.views import Views

if TYPE_CHECKING:
    from agentq.contracts.artifacts import ArtifactStore
    from agentq.contracts.delivery import DeadMessage
    from agentq.contracts.doorbell import Waiter
    from agentq.contracts.service_values import Explanation, Problem
    from agentq.contracts.store import ArtifactRow, CircuitRow, Store
    from agentq.core.limits import RoleLimits
    from agentq.core.task import Amounts, Reported
    from agentq.core.triggers import Entry
    from agentq.ledger.ledger import Ledger
    from agentq.wiring import Parts

#: The safety net under the doorbell: how long a waiter sleeps at most before it looks again.
POLL_SECONDS = 5.0
_TICK_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class Result:
    """The accepted result of a completed task. Reading checks it against its digest."""

    task: Task
    name: str
    sha256: str
    content: bytes

    @property
    def summary(self) -> str:
        return self.task.summary

    def bytes(self) -> bytes:
        return self.content

    def text(self) -> str:
        return self.content.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Replayed:
    """Each event with the task it left, and what does not add up (nothing: it is proved)."""

    task: Task
    steps: tuple[tuple[Entry, Task], ...]
    problems: tuple[Problem, ...]


class Reading:
    """Looks at a ledger and its artifacts. `Queue` adds everything that changes something."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._ticked = 0.0
        self._ticking = threading.Lock()

    # Opened when first needed: a command that looks at one task pays for nothing else.

    @property
    def store(self) -> Store:
        return self.parts.store

    @property
    def views(self) -> Views:
        return self.parts.views

    @property
    def ledger(self) -> Ledger:
        return self.parts.ledger

    @property
    def artifacts(self) -> ArtifactStore:
        return self.parts.artifacts

    def close(self) -> None:
        """Let go of the database. Closing twice is fine."""
        self.parts.close()

    # -- tasks -----------------------------------------------------------------------------------

    def task(self, ref: str) -> Task:
        """The task of this id, or of the one id that starts with it."""
        return self.views.find(ref)[1]

    def key(self, ref: str) -> int:
        return self.views.find(ref)[0]

    def tasks(self, wanted: Wanted | None = None) -> Page:
        """A page of tasks, newest first."""
        return self.views.list_tasks(wanted or Wanted())

    def dead_letters(self, limit: int = 50, role: str = "", cursor: int = 0) -> Page:
        states = tuple(sorted(DEAD_LETTERS))
        return self.tasks(Wanted(states=states, role=role, limit=limit, cursor=cursor))

    @property
    def has_broker(self) -> bool:
        return bool(self.parts.settings.broker)

    def dead_messages(self, limit: int = 100, begins: str = "") -> list[DeadMessage]:
        """Messages of the broker that no reader could make sense of, the oldest first; those whose
        key begins so."""
        return self.parts.dead_messages(limit, begins) if self.has_broker else []

    def explain(self, ref: str) -> Explanation:
        """Why this task is not running, or what it is doing."""
        return self.views.explain(self.key(ref))

    def stats(self) -> Stats:
        return self.views.stats()

    def limits(self) -> dict[str, RoleLimits]:
        """The limits of every role that the ledger has heard of."""
        return self.views.limits()

    def circuits(self) -> list[CircuitRow]:
        """The providers that are out of quota now, and until when."""
        return self.views.circuits()

    def costs(self, by: str = "role") -> dict[str, Amounts]:
        """What was spent, summed up by `role`, `label` or `day`."""
        return self.views.costs(by)

    def ids(self, prefix: str, limit: int = 50) -> list[str]:
        """Ids that start with this, for completion."""
        return self.store.read(lambda reader: reader.ids_starting(prefix, limit))

    def as_json(self, task: Task) -> dict[str, object]:
        """The one JSON shape of a task."""
        context = self.artifacts.context_ref(task.id) if task.spec.context_sha256 else ""
        report = task.memo.report
        done = task.state is State.COMPLETE and report is not None and report.result
        result = self.artifacts.result_ref(task.id) if done else ""
        return task_to_dict(task, context_ref=context, result_ref=result)

    def context(self, task: Task) -> str:
        """The full text of a task: its context file, else its instructions."""
        if not task.spec.context_sha256:
            return task.spec.instructions
        data = self.artifacts.context(task.id, task.spec.context_sha256)
        return data.decode("utf-8", "replace")

    # -- evidence --------------------------------------------------------------------------------

    def artifact_list(self, ref: str) -> list[ArtifactRow]:
        return self.views.artifacts(self.key(ref))

    def open_artifact(self, ref: str, name: str, epoch: int = 0) -> tuple[ArtifactRow, BinaryIO]:
        """A file of an attempt (the newest that has it), checked against its digest."""
        task = self.task(ref)
        rows = [
            row
            for row in self.artifact_list(task.id)
            if row.name == name and (not epoch or row.epoch == epoch)
        ]
        if not rows:
            raise NotFound(
                f"{task.id} has no artifact {name!r}" + (f" in attempt {epoch}." if epoch else "."),
                f"`agentq artifacts ls {task.id}` shows what there is.",
            )
        from agentq.contracts.artifacts import Stored

        row = rows[-1]
        stored = Stored(row.name, row.size, row.sha256, row.media_type)
        return row, self.artifacts.open(task.id, row.epoch, row.name, stored)

    def result(self, ref: str) -> Result:
        """What a completed task gave: its result file, else its summary."""
        task, report = self._report_of(ref)
        if not report.result:
            return Result(task, "", "", report.summary.encode())
        content = self.artifacts.result(task.id, report.result_sha256)
        return Result(task, report.result, report.result_sha256, content)

    def open_result(self, ref: str) -> tuple[Task, BinaryIO | None]:
        """The result file of a completed task, checked, for reading a piece at a time; None if the
        task gave only its summary."""
        task, report = self._report_of(ref)
        if not report.result:
            return task, None
        return task, self.artifacts.open_result(task.id, report.result_sha256)

    def _report_of(self, ref: str) -> tuple[Task, Reported]:
        """A complete task and what it reported; its result is published then."""
        task = self.task(ref)
        report = task.memo.report
        if task.state is not State.COMPLETE or report is None:
            raise Refused(
                f"{task.id} is {task.state}; only a complete task has a result.",
                f"`agentq wait {task.id}` waits for it, `agentq explain {task.id}` says why.",
                code="no_result",
            )
        if report.result:
            # Publishing again is free, and mends a crash between the commit and the publishing.
            self.artifacts.publish_result(
                task.id, report.epoch, report.result, report.result_sha256
            )
        return task, report

    # -- the log ---------------------------------------------------------------------------------

    def history(self, ref: str) -> list[Entry]:
        return self.views.history(self.key(ref))

    def events(self, after: int = 0, limit: int = 500) -> list[Entry]:
        """Committed events after a position, in the order of commits."""
        return self.views.events_after(after, limit)

    def event_json(self, entry: Entry) -> dict[str, object]:
        """The one JSON shape of an event; `data` is what its trigger carried."""
        from agentq.ledger.log_codec import trigger_data

        event = entry.event
        return {
            "position": entry.position,
            "task_id": entry.task_id,
            "version": event.version,
            "at": iso(event.at),
            "kind": event.kind,
            "trigger": type(event.trigger).__name__,
            "state": str(event.state),
            "epoch": event.epoch,
            "data": trigger_data(event.trigger),
        }

    def replay(self, ref: str) -> Replayed:
        """Decide one task's life anew from its log, and say whether that gives what is stored."""
        from agentq.ledger.replay import check_task, replay

        task = self.task(ref)
        # The log may have grown since the task was read; what it held then has not changed.
        entries = self.history(task.id)[: task.version]
        events = [entry.event for entry in entries]
        problems = check_task(task, events)
        steps: list[tuple[Entry, Task]] = []
        with contextlib.suppress(Exception):  # a log that cannot be replayed is a problem above
            for entry, (_, left) in zip(entries, replay(events), strict=False):
                steps.append((entry, left))
        return Replayed(task, tuple(steps), tuple(problems))

    def follow(self, after: int | None = None, timeout: float | None = None) -> Iterator[Entry]:
        """Events as they are committed, from `after` on (default: from now). Ends by timeout."""
        position = self.views.last_position() if after is None else after
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter = self.parts.bell.listen((EVENTS_TOPIC,))
        try:
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
        finally:
            waiter.close()

    def wait(
        self,
        ref: str,
        timeout: float | None = None,
        until: Collection[State] = TERMINAL,
    ) -> Task:
        """Sleep until the task is in one of these states (default: over)."""
        key, task = self.views.find(ref)
        deadline = None if timeout is None else time.monotonic() + timeout
        waiter = self.parts.bell.listen((EVENTS_TOPIC,))
        try:
            while True:
                task = self.views.get_many([key])[key]
                if task.state in until:
                    return task
                left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise TimedOut(
                        f"{task.id} is still {task.state} after {timeout:g} s.",
                        f"`agentq explain {task.id}` says what it waits for.",
                    )
                self.nap(waiter, left)
        finally:
            waiter.close()

    # -- time ------------------------------------------------------------------------------------

    def tick(self) -> int:
        """Apply due timers: ended leases, backoffs, expiry. Whoever waits does this at times."""
        return self.ledger.tick()

    def nap(self, waiter: Waiter, left: float) -> None:
        """One sleep of a waiting loop: until a ring, the next timer, or the safety poll."""
        # Waiters that were rung together must not also poll together.
        pause = min(left, POLL_SECONDS * (0.8 + time.perf_counter_ns() % 200 / 1000))
        wake_at = self.views.next_wake()
        if wake_at:
            until_due = (wake_at - self.store.now()) / 1000
            if until_due <= 0:
                self.tick()
                return
            pause = min(pause, until_due)
        waiter.wait(pause)

    def tick_now_and_then(self) -> None:
        """Called by whoever claims: a single worker needs nobody else to end leases for it."""
        now = time.monotonic()
        with self._ticking:
            if now - self._ticked < _TICK_EVERY:
                return
            self._ticked = now
        self.tick()

    # -- proof -----------------------------------------------------------------------------------

    def verify(self) -> Iterator[tuple[int, list[Problem]]]:
        """Replay every task's log and check every file: (looked at so far, problems found)."""
        return self.views.verify(self._check_files)

    def _check_files(self, task: Task, rows: list[ArtifactRow]) -> list[str]:
        wrong = []
        for row in rows:
            found = self.artifacts.check(task.id, row.epoch, row.name, row.sha256, row.size)
            if found:
                wrong.append(found)
        if task.spec.context_sha256:
            try:
                self.artifacts.context(task.id, task.spec.context_sha256)
            except Damaged as error:
                wrong.append(error.cause)
        return wrong
