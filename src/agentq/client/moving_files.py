"""The files of a move: contexts, evidence, results and logs, from one artifact store to another.

Everything is checked as it is read, and read back where it was written. Putting the same file again
is fine, so a move that was interrupted begins again from the front and finds most of it done.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from agentq.contracts.artifacts import ArtifactStore, Stored
from agentq.core.access import SYSTEM
from agentq.core.errors import Damaged, NotFound
from agentq.core.states import TERMINAL, State
from agentq.core.task import Spec, Task
from agentq.core.triggers import Edit, Submit

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import ArtifactInfo

#: Object stores answer late and many at once.
_THREADS = 8
_LOG_BYTES = 1 << 20
#: More than any live log: what was kept of one is kept whole.
_LOG_KEEP_BYTES = 1 << 30


def copy_files(source: ArtifactStore, target: ArtifactStore, service: Service) -> list[int]:
    """Copy the files of every task that this ledger knows; the sizes of contexts and artifacts."""

    def copy(recorded: tuple[Task, list[ArtifactInfo]]) -> list[int]:
        _copy_earlier_contexts(source, target, recorded[0], service)
        return list(_copy_task(source, target, *recorded))

    sizes: list[int] = []
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="agentq-move") as pool:
        page, after = service.task_files(SYSTEM)
        while page:
            for copied in pool.map(copy, page):
                sizes += copied
            page, after = service.task_files(SYSTEM, after)
    return sizes


def _copy_task(
    source: ArtifactStore, target: ArtifactStore, task: Task, artifacts: list[ArtifactInfo]
) -> Iterator[int]:
    if task.spec.context_sha256:
        edited = bool(task.edited_context)
        yield _copy_context(source, target, task.spec, edited=edited)
        target.publish_context(task.id, task.spec.context_sha256, edited=edited)
        # Reading it back checks it.
        target.context(task.id, task.spec.context_sha256, edited=edited)
    if task.state not in TERMINAL:
        for child in _children(task.spec):
            # Waits for its task: staged there as it is here, and not published yet.
            yield _copy_context(source, target, child)
    for artifact in artifacts:
        _copy_artifact(source, target, task.id, artifact)
        yield artifact.size
    report = task.details.report
    if task.state is State.COMPLETE and report is not None and report.result:
        target.publish_result(task.id, report.epoch, report.result, report.result_sha256)
    # Of attempts that died before their output became evidence: it is all there is of them.
    for epoch in range(1, task.epoch + 1):
        _copy_log(source, target, task.id, epoch)


def _copy_earlier_contexts(
    source: ArtifactStore, target: ArtifactStore, task: Task, service: Service
) -> None:
    """Copy what a task said before it was edited: an earlier attempt may have been given it."""
    if task.details.edited is None:
        return
    for entry in service.history(SYSTEM, task.id):
        trigger, sha256, edited = entry.event.trigger, "", False
        if isinstance(trigger, Submit):
            sha256 = trigger.spec.context_sha256
        elif isinstance(trigger, Edit):
            sha256, edited = trigger.context_sha256, True
        # One that never was at its place, as the store was away then, was given to nobody.
        with suppress(Damaged):
            if sha256:
                target.stage_context(task.id, source.context(task.id, sha256, edited=edited))
                target.publish_context(task.id, sha256, edited=edited)


def _children(spec: Spec) -> Iterator[Spec]:
    """The tasks that this one will submit when it completes, which have a context of their own."""
    for child in spec.next:
        if child.context_sha256:
            yield child
        yield from _children(child)


def _copy_context(
    source: ArtifactStore, target: ArtifactStore, spec: Spec, *, edited: bool = False
) -> int:
    data = source.context(spec.id, spec.context_sha256, edited=edited)
    if target.stage_context(spec.id, data).sha256 != spec.context_sha256:
        raise _altered(spec.id, "its context")
    return len(data)


def _copy_artifact(
    source: ArtifactStore, target: ArtifactStore, task_id: str, artifact: ArtifactInfo
) -> None:
    epoch, name, size, sha256 = artifact.epoch, artifact.name, artifact.size, artifact.sha256
    with source.open(task_id, epoch, name, Stored(name, size, sha256, artifact.media_type)) as file:
        stored = target.put(task_id, epoch, name, file)
    if (stored.sha256, stored.size) != (sha256, size):
        raise _altered(task_id, name)
    wrong = target.check(task_id, epoch, name, sha256, size)
    if wrong:
        raise Damaged(f"A file did not arrive as it was sent. {wrong}", "Move again.")


def _copy_log(source: ArtifactStore, target: ArtifactStore, task_id: str, epoch: int) -> None:
    position = 0
    while True:
        try:
            part = source.live_read(task_id, epoch, position, _LOG_BYTES)
        except NotFound:
            return
        if not part.data:
            return
        if not position:
            target.live_end(task_id, epoch)  # of a move that did not get to its end
        target.live_append(task_id, epoch, part.text, keep_bytes=_LOG_KEEP_BYTES)
        position = part.position


def _altered(task_id: str, what: str) -> Damaged:
    return Damaged(
        f"Task {task_id}: {what} was altered while it was copied.",
        "See that nobody writes to the files of the old ledger, then move again.",
    )
