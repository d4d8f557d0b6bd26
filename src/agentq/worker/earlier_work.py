"""What earlier attempts at a task left, as their workers have written it down in the ledger.

A ref in a repository is no proof: an agent that may commit may also plant refs. So the worker of an
attempt stores the snapshot's commit among the attempt's evidence, under a name that only a worker
may use. Whoever goes on from it believes that record, and takes the commit from wherever it is: its
own repository, the remote that the role pushes to, or an artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentq.core.errors import AgentqError
from agentq.core.task import Task
from agentq.repository.snapshot_refs import (
    SNAPSHOT,
    SNAPSHOT_RECORD_BYTES_MAX,
    WorkSnapshot,
    read_record,
)

if TYPE_CHECKING:
    from agentq.client.artifacts import Artifact
    from agentq.client.client import Client
    from agentq.worker.base_work import BaseWork


class LeftWork(msgspec.Struct, frozen=True):
    """What one attempt left, and how its artifact comes into a file here."""

    snapshot: WorkSnapshot
    download: Callable[[Path], None] | None = None


class EarlierWork(msgspec.Struct, frozen=True):
    """What all earlier attempts left, the newest first."""

    submitted_at: int = 0
    left: Sequence[LeftWork] = ()
    #: Looks up the tasks whose work is started from where none of that can be had.
    bases: Callable[[], Sequence[BaseWork]] = tuple


NOTHING_EARLIER = EarlierWork()


def earlier_work(queue: Client, task: Task) -> EarlierWork:
    """What the attempts before this one have left, by the word of their workers."""
    if task.epoch <= 1:
        return EarlierWork(task.submitted_at)
    return EarlierWork(task.submitted_at, left_by(queue, task.id, range(task.epoch)))


def left_by(queue: Client, task_id: str, epochs: Container[int] | None = None) -> list[LeftWork]:
    """What these attempts at a task have left, or all, by the word of their workers; the newest
    first."""
    files = {(each.epoch, each.name): each for each in queue.artifacts_of(task_id)}
    left = []
    for (epoch, name), file in sorted(files.items(), reverse=True):
        if name != SNAPSHOT or (epochs is not None and epoch not in epochs):
            continue
        snapshot = _read(file)
        if snapshot is None or snapshot.epoch != epoch:
            continue
        artifact = files.get((epoch, snapshot.artifact)) if snapshot.artifact else None
        left.append(LeftWork(snapshot, _download(artifact) if artifact else None))
    return left


def _read(file: Artifact) -> WorkSnapshot | None:
    with suppress(AgentqError):  # a damaged one is as if it were not there
        if file.size <= SNAPSHOT_RECORD_BYTES_MAX:
            return read_record(file.read())
    return None


def _download(artifact: Artifact) -> Callable[[Path], None]:
    def into(path: Path) -> None:
        import shutil

        with artifact.open() as source, path.open("xb") as target:
            shutil.copyfileobj(source, target)

    return into


def told(
    epoch: int, holds: Sequence[int], problems: Sequence[str], *, is_git: bool, known: Sequence[int]
) -> str:
    """What the prompt says about the work of earlier attempts; "" if there were none.

    `known` are the attempts of which it is known that they left something.
    """
    if epoch <= 1:
        return ""
    here = sorted(each for each in holds if each < epoch)
    missing = sorted(each for each in known if each < epoch and each not in here)
    because = f" ({'; '.join(problems)})" if problems else ""
    if not here:
        return (
            "This workspace is fresh: nothing that earlier attempts wrote is in it"
            f"{because}. Do not rely on their work being here."
        )
    how = "; what they committed is in its history, the rest is uncommitted" if is_git else ""
    words = f"This workspace holds the work of {_attempts(here)}{how}. Look at it, and go on there."
    if missing:
        words += f" The work of {_attempts(missing)} is not in it{because}."
    return words


def _attempts(epochs: Sequence[int]) -> str:
    numbers = ", ".join(map(str, epochs))
    return f"attempt {numbers}" if len(epochs) == 1 else f"attempts {numbers}"
