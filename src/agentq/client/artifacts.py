"""What attempts left behind, as objects: artifacts and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from agentq.contracts.artifacts import Stored
from agentq.core.task import Task

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader
    from agentq.contracts.service_values import ArtifactInfo


@dataclass(frozen=True, slots=True)
class Artifact(Stored):
    """A named file of one attempt. Opening it checks it against its digest."""

    task_id: str
    epoch: int
    _reader: QueueReader = field(repr=False, compare=False)

    @classmethod
    def of(
        cls, stored: Stored | ArtifactInfo, task_id: str, epoch: int, reader: QueueReader
    ) -> Artifact:
        size, sha256, media_type = stored.size, stored.sha256, stored.media_type
        return cls(stored.name, size, sha256, media_type, task_id, epoch, reader)

    def open(self) -> BinaryIO:
        """Open the file for reading a piece at a time; the caller closes it."""
        return self._reader.open_artifact(self.task_id, self.name, self.epoch)[1]

    def read(self) -> bytes:
        """Return the whole content."""
        with self.open() as file:
            return file.read()

    def text(self) -> str:
        """Return the whole content as text; what is not UTF-8 is replaced."""
        return self.read().decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Result:
    """The accepted result of a completed task: its result file, else its summary."""

    task: Task
    #: The name of the result file among the artifacts; "" if the task gave only its summary.
    name: str
    sha256: str
    content: bytes = field(repr=False)

    @property
    def summary(self) -> str:
        return self.task.summary

    def read(self) -> bytes:
        """Return the whole content."""
        return self.content

    def text(self) -> str:
        """Return the whole content as text; what is not UTF-8 is replaced."""
        return self.content.decode("utf-8", "replace")
