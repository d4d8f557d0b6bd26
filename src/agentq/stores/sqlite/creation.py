"""How the file of an SQLite ledger comes to be: whole or not at all.

A file of 0 bytes is never the beginning of a ledger. It is what is left of one that was cut off, so
it is shown to a person instead of being filled with new tables.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from agentq import private_files
from agentq.core.errors import AgentqError, Conflict, Damaged, Unavailable

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)


def create_file(path: str, blank: Callable[[], bytes]) -> None:
    """Create the file of an empty ledger, with its folder, unless there is a file already."""
    file = Path(path)
    try:
        if file.exists():
            _check_is_ledger(file)
            return
        private_files.make_folder(file.parent)
        _write_whole(file, blank())
    except OSError as error:
        raise Unavailable(
            f"The ledger {path} cannot be created: {error.strerror or error}.",
            "Check the path, its permissions and the disk.",
        ) from error


def not_a_ledger(path: str) -> AgentqError:
    """The error of opening a database that holds no ledger."""
    if path == ":memory:":
        return Unavailable(
            "A ledger in memory is gone with the program that made it: there is none to open.",
            'Make a new one with `Queue.create("sqlite://:memory:")`.',
            code="no_ledger",
        )
    if _is_empty(Path(path)):
        return cut_off(path)
    return Unavailable(
        f"{path} is a database of something else: there is no ledger in it. Nothing was changed.",
        "Name another file; `agentq init` or `Queue.create(url)` makes a ledger where none is.",
        code="no_ledger",
    )


def _check_is_ledger(file: Path) -> None:
    """Refuse to create tables where something else is, or was."""
    if not file.is_file():
        raise Conflict(f"{file} is not a file. Nothing was created.", "Name a file.")
    if _is_empty(file):
        raise cut_off(str(file))


def _is_empty(file: Path) -> bool:
    return file.is_file() and file.stat().st_size == 0


def cut_off(path: str) -> Damaged:
    """The error of a ledger whose file is there and empty."""
    return Damaged(
        f"The ledger {path} is a file of 0 bytes: whatever it held is gone. Nothing was changed.",
        "Bring it back from a backup (`agentq db backup` makes them). If it never was a ledger,"
        " remove it, and `agentq init` or `Queue.create(url)` makes a new one.",
    )


def _write_whole(file: Path, content: bytes) -> None:
    """Write a file that appears complete and on disk, unless another process is first."""
    draft = file.with_name(f".{file.name}.{os.urandom(6).hex()}")
    try:
        _write_new(draft, content)
        os.link(draft, file)
    except FileExistsError:
        return  # another process was first, and made the same
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _write_new(file, content)  # a file system without links
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(file.parent)


def _write_new(file: Path, content: bytes) -> None:
    # SQLite gives what it keeps beside the file (-wal, -shm, -journal) the same mode.
    with open(private_files.create_file(file), "wb") as stream:  # noqa: PTH123 - a descriptor
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
