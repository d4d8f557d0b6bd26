"""Answers that are more than one value and have no type of their own elsewhere."""

from __future__ import annotations

import msgspec

from agentq.contracts.artifacts import Stored
from agentq.contracts.service_values import ArtifactInfo
from agentq.core.task import Task


class StoredFiles(msgspec.Struct):
    """What was stored."""

    value: list[Stored]


class TaskFiles(msgspec.Struct):
    """A task, and what is recorded of its files."""

    task: Task
    artifacts: list[ArtifactInfo]


class FilesPage(msgspec.Struct):
    """Tasks with their files, and what to go on after."""

    tasks: list[TaskFiles]
    after: int
