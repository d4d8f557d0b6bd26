"""The lock of a workspace: held by whoever works there, until the last process of it is gone.

It is a `flock` of a file beside the workspaces. Such a lock belongs to the open file, not to a
process: the worker takes it and gives the file on to the process that owns the agent's tree
(`agentq.worker.supervisor`), and to every call of git that writes to the tree. So it is held also
after `kill -9` of the worker, until nothing is left that could write there. The agent itself never
gets the file.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from agentq.private_files import make_folder

FOLDER = ".locks"
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkspaceLock:
    """A lock that is held until it is closed here and wherever its file was given on to."""

    def __init__(self, file: int) -> None:
        self._file = file

    @classmethod
    def acquire(cls, root: Path, name: str) -> Self | None:
        """Take the lock of the workspace of this name; None if somebody has it, or if it cannot be
        had on this disk."""
        folder = root / FOLDER
        try:
            make_folder(folder)
            while True:
                file = os.open(folder / name, _FLAGS, 0o600)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if _is_at(file, folder / name):
                        return cls(file)
                except BaseException:
                    os.close(file)
                    raise
                os.close(file)  # whoever had it has removed the file meanwhile: the next is new
        except OSError:
            return None

    @property
    def file(self) -> int:
        """The open file, to give on; -1 once it is closed."""
        return self._file

    def close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def remove(self, root: Path, name: str) -> None:
        """Remove its file with the workspace, while it is held, and let it go."""
        if self._file >= 0 and _is_at(self._file, root / FOLDER / name):
            (root / FOLDER / name).unlink(missing_ok=True)
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_at(file: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    ours = os.fstat(file)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)
