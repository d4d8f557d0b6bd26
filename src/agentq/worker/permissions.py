"""What the permissions of a role mean for the process of an attempt: its job, files and sandbox.

How each tool is told is in `agents/permissions.py` and the files beside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentq.contracts.agent import Job, Launch
from agentq.contracts.permissions import Permissions
from agentq.core.reserved_names import TASK_FOLDER
from agentq.core.values import replace
from agentq.settings.roles import RoleSettings, commands_of, permissions_of


def told(job: Job, role: RoleSettings, name: str, version: str = "") -> Job:
    """Return the job with what its role says an agent may do, for this release of the tool."""
    return replace(
        job,
        version=version,
        permissions=permissions_of(role, name, job.task.spec.type),
        commands=commands_of(role),
        sandboxed=role.sandbox == "bwrap",
    )


def unconfined(job: Job) -> Job:
    """The job for a command of the role's own settings: the word is about its agents."""
    return replace(job, permissions=None)


def read_only(job: Job) -> bool:
    """Whether a sandbox keeps the workspace from being changed."""
    return job.permissions is Permissions.READ


def writable(job: Job, others: Sequence[Path]) -> tuple[Path, ...]:
    """What of its workspace and repository an agent in a sandbox may write."""
    return (job.workspace / TASK_FOLDER,) if read_only(job) else tuple(others)


def write_files(launch: Launch) -> None:
    """Write what a tool is told by file, before it starts.

    The agent of an earlier run may have put a link there, or in the place of the folder.
    """
    for path, content in launch.files.items():
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path.name, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(path.name, flags, 0o600, dir_fd=folder), "w") as file:
                file.write(content)
        finally:
            os.close(folder)
