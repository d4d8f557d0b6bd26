"""What a task changed, by the word of its workers, and where it can be had from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentq.core.errors import Invalid, NotFound, Refused
from agentq.core.states import State
from agentq.repository.fetching import Sources
from agentq.repository.snapshot_refs import (
    SNAPSHOT,
    SNAPSHOT_RECORD_BYTES_MAX,
    WorkSnapshot,
    read_record,
)
from agentq.settings.roles import RoleSettings, known_role

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import ArtifactInfo
    from agentq.core.task import Task


class TaskChange(msgspec.Struct, frozen=True):
    """The snapshot of one attempt at a task; `role` is None if the settings here know none."""

    task: Task
    snapshot: WorkSnapshot
    sources: Sources
    role: RoleSettings | None

    @property
    def is_accepted(self) -> bool:
        """Whether the task is complete by this very attempt."""
        report = self.task.details.report
        is_its = report is not None and report.epoch == self.snapshot.epoch
        return self.task.state is State.COMPLETE and is_its


def change_of(reader: QueueReader, ref: str) -> TaskChange:
    """The change of the attempt that was accepted, else of the newest that left one."""
    task = reader.task(ref)
    files = {(each.epoch, each.name): each for each in reader.artifact_list(task.id)}
    epochs = sorted((epoch for epoch, name in files if name == SNAPSHOT), reverse=True)
    report = task.details.report
    if report is not None and (report.epoch, SNAPSHOT) in files:
        epochs = [report.epoch]
    for epoch in epochs:
        snapshot = _read(reader, task, files[epoch, SNAPSHOT])
        if snapshot is None or snapshot.epoch != epoch:
            continue
        if snapshot.kind == "folder" or not snapshot.ref:
            break
        role = _role_of(reader, task)
        bundle = files.get((epoch, snapshot.artifact)) if snapshot.artifact else None
        sources = Sources(
            role.repo if role is not None else "",
            role.push if role is not None and snapshot.is_pushed else "",
            _download(reader, task, bundle) if bundle is not None else None,
        )
        return TaskChange(task, snapshot, sources, role)
    raise _without_change(task, [name for _, name in sorted(files)])


def _role_of(reader: QueueReader, task: Task) -> RoleSettings | None:
    """How the role of a task works, by agentq.toml or a profile; None if that is not known here."""
    try:
        return known_role(reader.installation.settings, task.to)
    except Invalid:  # its profile is being written; the change is there all the same
        return None


def _without_change(task: Task, names: list[str]) -> Refused | NotFound:
    if not task.epoch:
        return Refused(
            f"{task.id} is {task.state}: nobody has worked on it yet, so it has changed nothing.",
            f"`agentq explain {task.id}` says why.",
            code="not_complete",
        )
    listed = [name for name in dict.fromkeys(names) if not name.startswith("agentq/")]
    there = f" There are files: {', '.join(listed[:8])}." if listed else ""
    return NotFound(
        f"{task.id} left nothing to apply: its attempts changed no file of a repository, worked in"
        f" a plain folder, or without a worker.{there} Nothing was changed.",
        f'`agentq artifacts list {task.id}` shows what it left; a role with `workspace = "git"`'
        " leaves changes.",
        code="no_change",
    )


def _read(reader: QueueReader, task: Task, file: ArtifactInfo) -> WorkSnapshot | None:
    if file.size > SNAPSHOT_RECORD_BYTES_MAX:
        return None
    _, stream = reader.open_artifact(task.id, file.name, file.epoch)
    with stream:
        return read_record(stream.read())


def _download(reader: QueueReader, task: Task, file: ArtifactInfo) -> Callable[[Path], None]:
    def into(path: Path) -> None:
        import shutil

        _, stream = reader.open_artifact(task.id, file.name, file.epoch)
        with stream, path.open("xb") as target:
            shutil.copyfileobj(stream, target)

    return into
