"""The queries of the service interface, answered by `LedgerQueries`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from agentq.core.access import ALL, Action, Principal, allowed
from agentq.core.errors import Damaged, NotFound, Refused
from agentq.core.states import State
from agentq.ledger.service_access import ServiceAccess, has_deferred

if TYPE_CHECKING:
    from agentq.contracts.service_values import (
        ArtifactInfo,
        Circuit,
        Explanation,
        Overhead,
        Page,
        Problem,
        Replayed,
        Stats,
        Wanted,
    )
    from agentq.contracts.store import ArtifactRow
    from agentq.core.limits import RoleLimits
    from agentq.core.task import Task, Usage
    from agentq.core.triggers import LogEntry


class QueryService(ServiceAccess):
    """Answers queries and changes nothing."""

    def now(self) -> int:
        return self._store.now()

    def next_wake(self, who: Principal) -> int:
        self._check(who, Action.TICK)
        # Submissions that can be decided are due: whoever waits for a moment to come ticks then.
        return 1 if self._store.read(has_deferred) else self._queries.next_wake()

    # -- tasks -----------------------------------------------------------------------------------

    def task(self, who: Principal, ref: str) -> Task:
        return self._find(who, Action.READ, ref)[1]

    def tasks_by_id(self, who: Principal, ids: Sequence[str]) -> dict[str, Task]:
        found = self._queries.by_id(list(ids))
        if len(found) < len(set(ids)) and self._decide_deferred():
            found = self._queries.by_id(list(ids))
        if allowed(who, Action.READ) is not ALL:
            for task in found.values():
                self._check_task(who, Action.READ, task)
        return found

    def list_tasks(self, who: Principal, wanted: Wanted) -> Page:
        self._check(who, Action.READ, "the list of tasks")
        self._decide_deferred()
        return self._queries.list_tasks(wanted)

    def ids(self, who: Principal, prefix: str, limit: int = 50) -> list[str]:
        self._check(who, Action.READ, "the list of tasks")
        return self._store.read(lambda reader: reader.ids_starting(prefix, limit))

    def explain(self, who: Principal, ref: str) -> Explanation:
        key, _ = self._find(who, Action.READ, ref)
        return self._queries.explain(key, four_eyes=self._resources.four_eyes)

    def stats(self, who: Principal) -> Stats:
        self._check(who, Action.READ, "the counts of all tasks")
        self._decide_deferred()
        return self._queries.stats()

    def costs(self, who: Principal, by: str) -> dict[str, Usage]:
        self._check(who, Action.READ, "what all tasks cost")
        return self._queries.costs(by)

    def limits(self, who: Principal) -> dict[str, RoleLimits]:
        self._check(who, Action.READ, "the limits of roles")
        return self._queries.limits()

    def circuits(self, who: Principal) -> list[Circuit]:
        from agentq.contracts.service_values import Circuit

        self._check(who, Action.READ, "the circuits of providers")
        return [Circuit(*row) for row in self._queries.circuits()]

    # -- the log ---------------------------------------------------------------------------------

    def history(self, who: Principal, ref: str) -> list[LogEntry]:
        return self._queries.history(self._find(who, Action.READ, ref)[0])

    def events_after(self, who: Principal, position: int, limit: int = 500) -> list[LogEntry]:
        self._check(who, Action.READ, "the events of all tasks")
        return self._queries.events_after(position, limit)

    def last_position(self, who: Principal) -> int:
        self._check(who, Action.READ, "the events of all tasks")
        return self._queries.last_position()

    def event_data(self, entry: LogEntry) -> dict[str, object]:
        from agentq.ledger.log_codec import trigger_data

        return trigger_data(entry.event.trigger)

    def replay(self, who: Principal, ref: str) -> Replayed:
        from agentq.contracts.service_values import Replayed
        from agentq.ledger.replay import check_task, replay

        key, task = self._find(who, Action.READ, ref)
        # The log may have grown since the task was read; what it held then has not changed.
        entries = self._queries.history(key)[: task.version]
        events = [entry.event for entry in entries]
        problems = check_task(task, events)
        steps: list[tuple[LogEntry, Task]] = []
        with contextlib.suppress(Exception):  # a log that cannot be replayed is a problem above
            for entry, (_, left) in zip(entries, replay(events), strict=False):
                steps.append((entry, left))
        return Replayed(task, tuple(steps), tuple(problems))

    def verify(self, who: Principal, *, files: bool = True) -> Iterator[tuple[int, list[Problem]]]:
        self._check(who, Action.READ, "every task")
        return self._queries.verify(self._check_files if files else None)

    def overhead(self, who: Principal, ids: Sequence[str]) -> Overhead:
        from agentq.ledger.overhead import measured

        return measured(self._queries, self.tasks_by_id(who, ids).values(), self.now())

    def _check_files(self, task: Task, rows: list[ArtifactRow]) -> list[str]:
        artifacts, wrong = self._artifacts, []
        for row in rows:
            found = artifacts.check(task.id, row.epoch, row.name, row.sha256, row.size)
            if found:
                wrong.append(found)
        if task.spec.context_sha256:
            try:
                artifacts.context(task.id, task.spec.context_sha256)
            except Damaged as error:
                wrong.append(error.cause)
        return wrong

    # -- evidence --------------------------------------------------------------------------------

    def context(self, who: Principal, ref: str) -> str:
        task = self.task(who, ref)
        if not task.spec.context_sha256:
            return task.spec.instructions
        data = self._artifacts.context(task.id, task.spec.context_sha256)
        return data.decode("utf-8", "replace")

    def artifacts(self, who: Principal, ref: str) -> list[ArtifactInfo]:
        return recorded(self._queries.artifacts(self._find(who, Action.READ, ref)[0]))

    def open_artifact(
        self, who: Principal, ref: str, name: str, epoch: int = 0
    ) -> tuple[Task, ArtifactInfo, BinaryIO]:
        from agentq.contracts.artifacts import Stored

        key, task = self._find(who, Action.READ, ref)
        rows = [
            row
            for row in recorded(self._queries.artifacts(key))
            if row.name == name and (not epoch or row.epoch == epoch)
        ]
        if not rows:
            raise NotFound(
                f"{task.id} has no artifact {name!r}" + (f" in attempt {epoch}." if epoch else "."),
                f"`agentq artifacts ls {task.id}` shows what there is.",
            )
        row = rows[-1]
        stored = Stored(row.name, row.size, row.sha256, row.media_type)
        return task, row, self._artifacts.open(task.id, row.epoch, row.name, stored)

    def open_result(self, who: Principal, ref: str) -> tuple[Task, BinaryIO | None]:
        task = self.task(who, ref)
        report = task.details.report
        if task.state is not State.COMPLETE or report is None:
            raise Refused(
                f"{task.id} is {task.state}; only a complete task has a result.",
                f"`agentq wait {task.id}` waits for it, `agentq explain {task.id}` says why.",
                code="no_result",
            )
        if not report.result:
            return task, None
        self._publish(task.id, report.epoch, report.result, report.result_sha256)
        return task, self._artifacts.open_result(task.id, report.result_sha256)

    def _publish(self, task_id: str, epoch: int, name: str, sha256: str) -> None:
        """Make an attempt's file the result of its task: the one place that does. Again is free,
        and mends a crash between the commit and the publishing."""
        self._artifacts.publish_result(task_id, epoch, name, sha256)


def recorded(rows: Sequence[ArtifactRow]) -> list[ArtifactInfo]:
    """What is recorded of files, without the key that only the ledger knows."""
    from agentq.contracts.service_values import ArtifactInfo

    return [ArtifactInfo(*row[1:]) for row in rows]
