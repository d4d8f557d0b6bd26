"""`.agentq-task/` in the workspace: what an agent is given, and where it hands in.

    task.md        the prompt
    inputs/        what the tasks before this one left, one folder each
    artifacts/     for evidence
    result.md      for the result
    result.json    for a structured result, where one is wanted
    agentq         agentq as this attempt
    outbox/        requests by files, where connections are denied

It lies within the workspace because agent tools are confined to that, and is named to them by
literal relative paths, because they check commands before they run and cannot check a variable. A
`.gitignore` of its own keeps it out of the agent's work.

From the moment an agent runs, everything here is the agent's. The worker makes the folder anew for
each attempt, whatever lay in its place (a repository may bring a path of this name), and reads back
evidence alone, through a descriptor that no link can lead elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentq.core.errors import Unavailable
from agentq.core.reserved_names import TASK_FOLDER
from agentq.worker.folder_removal import remove_tree

RESULT, ARTIFACTS, INPUTS, TASK, LAUNCHER = "result.md", "artifacts", "inputs", "task.md", "agentq"
#: The structured result.
DATA = "result.json"

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TaskFolder:
    """The folder of one attempt, from `make` to `remove`."""

    def __init__(self, workspace: Path) -> None:
        self.path = workspace / TASK_FOLDER
        self.task = self.path / TASK
        self.result = self.path / RESULT
        self.artifacts = self.path / ARTIFACTS
        self.inputs = self.path / INPUTS

    @property
    def is_occupied(self) -> bool:
        """Whether something lies in its place: of the repository, or of an earlier attempt."""
        return os.path.lexists(self.path)

    def make(self) -> None:
        """Make it, empty but for its folders, in place of whatever is there."""
        problem = self.remove()
        try:
            if problem:
                raise OSError(problem)
            self.path.mkdir(mode=0o700)
            (self.path / ".gitignore").write_text("*\n", "utf-8")
            self.artifacts.mkdir(mode=0o700)
            self.inputs.mkdir(mode=0o700)
        except OSError as error:
            raise Unavailable(
                f"The worker cannot make {self.path}: {error.strerror or error}.",
                "Mend the owner and the mode of the workspace.",
            ) from error

    def write_task(self, prompt: str) -> None:
        self.task.write_text(prompt, "utf-8", errors="replace")

    @contextmanager
    def opened(self) -> Iterator[Path | None]:
        """The folder as it is now, under a name that leads nowhere else; None if it is no folder.

        The agent may have made it anew (`git clean` takes it away), or put a link in its place.
        """
        try:
            number = os.open(self.path, _OPEN_FOLDER)
        except OSError:
            yield None
            return
        try:
            yield Path(f"/proc/self/fd/{number}")
        finally:
            os.close(number)

    def remove(self) -> str:
        """Take the folder away, or what was put in its place; why it could not be, or ""."""
        try:
            if self.is_occupied and (self.path.is_symlink() or not self.path.is_dir()):
                self.path.unlink()
        except OSError as error:
            return f"what lies in its place cannot be removed ({error.strerror})"
        return remove_tree(self.path)
