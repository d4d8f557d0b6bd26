"""Which process uses a folder, and removing one without following links or leaving its disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def user_of(folder: Path) -> str:
    """A process that works in this folder or has a file open there, in words; "" if none is seen.

    Processes of other users are seen only by a worker that may look at them.
    """
    place = os.path.realpath(folder)
    below = f"{place}/"
    with os.scandir("/proc") as processes:
        for process in processes:
            if process.name.isdigit():
                for used in _used_by(process.path):
                    if used == place or used.startswith(below):
                        return f"process {process.name}{_named(process.path)}"
    return ""


def _used_by(process: str) -> Iterator[str]:
    for name in ("cwd", "root", "exe"):
        yield _target(f"{process}/{name}")
    try:
        files = os.scandir(f"{process}/fd")
    except OSError:
        return  # it has ended, or it is not ours to see
    with files, suppress(OSError):
        for file in files:
            yield _target(file.path)


def _target(link: str) -> str:
    try:
        return os.readlink(link)  # noqa: PTH115 - thousands of them: no pathlib here
    except OSError:
        return ""  # as above


def _named(process: str) -> str:
    with suppress(OSError):
        name = Path(f"{process}/comm").read_text("utf-8", errors="replace").strip()
        return f" ({name})"
    return ""


def remove_tree(folder: Path) -> str:
    """Remove a folder, however deep; why it could not be removed, or "". Nothing there is fine."""
    try:
        top = _open(str(folder))
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"it is not a folder that can be removed ({error.strerror})"
    try:
        _empty(top)
        folder.rmdir()
    except OSError as error:
        return f"{error.filename or 'something in it'} cannot be removed ({error.strerror})"
    finally:
        os.close(top)
    return ""


def _empty(folder: int) -> None:
    # One folder at a time, no recursion: an agent may have made them deeper than our stack. A
    # folder is emptied by moving what is in it up, which no mounted disk lets us do.
    while names := os.listdir(folder):
        for name in names:
            with suppress(FileNotFoundError):
                if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    _lift_out(folder, name)
                else:
                    os.unlink(name, dir_fd=folder)


def _lift_out(folder: int, name: str) -> None:
    child = _open(name, folder)
    try:
        for inner in os.listdir(child):  # noqa: PTH208 - a descriptor, not a path
            os.rename(inner, f".gone-{os.urandom(8).hex()}", src_dir_fd=child, dst_dir_fd=folder)
    finally:
        os.close(child)
    os.rmdir(name, dir_fd=folder)


def _open(name: str, within: int | None = None) -> int:
    """A folder, opened so that it can be emptied: whoever made it may have closed it to us."""
    place = os.open(name, _FOLDER | os.O_PATH, dir_fd=within)
    try:
        held = f"/proc/self/fd/{place}"  # which no link can lead elsewhere
        if os.fstat(place).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(held, stat.S_IRWXU)  # noqa: PTH101 - as above
        return os.open(held, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(place)
