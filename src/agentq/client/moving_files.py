"""The files of a move: contexts, evidence, results and logs, from one artifact store to another.

Everything is checked as it is read, and read back where it was written. Putting the same file again
is fine, so a move that was interrupted begins again from the front and finds most of it done.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from agentq.contracts.artifacts import ArtifactStore, Stored
from agentq.core.access import SYSTEM
from agentq.core.errors import Damaged, NotFound
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec, Task

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import ArtifactInfo

#: Object stores answer late and many at once.
_THREADS = 8
_LOG_BYTES = 1 << 20
#: More than any live log: what was kept of one is kept whole.
_LOG_KEEP_BYTES = 1 << 30


class Files:
    """Copies the files of all tasks from one artifact store to another."""

    def __init__(self, source: ArtifactStore, target: ArtifactStore) -> None:
        self._source = source
        self._target = target
        self._guard = threading.Lock()
        self.count = 0
        self.size = 0

    def copy_all(self, service: Service) -> None:
        """The files of every task that this ledger knows."""
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="agentq-move") as pool:
            page, after = service.task_files(SYSTEM)
            while page:
                for _ in pool.map(self._copy, page):
                    continue
                page, after = service.task_files(SYSTEM, after)

    def _copy(self, recorded: tuple[Task, list[ArtifactInfo]]) -> None:
        task, rows = recorded
        if task.spec.context_sha256:
            self._copy_context(task.id, task.spec.context_sha256, publish=True)
        if task.state not in TERMINAL:
            for child in children(task.spec):
                # Waits for its task: staged there as it is here, and not to be seen yet.
                self._copy_context(child.id, child.context_sha256, publish=False)
        for row in rows:
            self._copy_evidence(task.id, row)
        report = task.details.report
        if task.state is State.COMPLETE and report is not None and report.result:
            self._target.publish_result(task.id, report.epoch, report.result, report.result_sha256)
        # Of attempts that died before their output became evidence: it is all there is of them.
        for epoch in range(1, task.epoch + 1):
            self._copy_log(task.id, epoch)

    def _copy_log(self, task_id: str, epoch: int) -> None:
        position = 0
        while True:
            try:
                part = self._source.live_read(task_id, epoch, position, _LOG_BYTES)
            except NotFound:
                return
            if not part.data:
                return
            if not position:
                self._target.live_end(task_id, epoch)  # of a move that did not get to its end
            self._target.live_append(task_id, epoch, part.text, keep_bytes=_LOG_KEEP_BYTES)
            position = part.position

    def _count(self, size: int) -> None:
        with self._guard:
            self.count += 1
            self.size += size

    def _copy_context(self, task_id: str, sha256: str, *, publish: bool) -> None:
        data = self._source.context(task_id, sha256)
        stored = self._target.stage_context(task_id, data)
        if stored.sha256 != sha256:
            raise _altered(task_id, "its context")
        if publish:
            self._target.publish_context(task_id, sha256)
            self._target.context(task_id, sha256)
        self._count(len(data))

    def _copy_evidence(self, task_id: str, row: ArtifactInfo) -> None:
        expected = Stored(row.name, row.size, row.sha256, row.media_type)
        with self._source.open(task_id, row.epoch, row.name, expected) as file:
            stored = self._target.put(task_id, row.epoch, row.name, file)
        if (stored.sha256, stored.size) != (row.sha256, row.size):
            raise _altered(task_id, row.name)
        wrong = self._target.check(task_id, row.epoch, row.name, row.sha256, row.size)
        if wrong:
            raise Damaged(f"A file did not arrive as it was sent. {wrong}", "Move again.")
        self._count(row.size)


def _altered(task_id: str, what: str) -> Damaged:
    return Damaged(
        f"Task {task_id}: {what} was altered while it was copied.",
        "See that nobody writes to the files of the old ledger, then move again.",
    )


def children(spec: Spec) -> Iterator[Spec]:
    """The tasks that this one will submit when it completes, which have a context of their own."""
    for child in spec.next:
        if child.context_sha256:
            yield child
        yield from children(child)
