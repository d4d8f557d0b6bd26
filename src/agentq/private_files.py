"""Files and folders that only their owner may read: how they are made, and how they are found open.

What a queue holds (prompts, patches, keys, the ledger itself) is its user's and nobody else's,
whatever the umask says. A folder that only its owner may enter protects all that is below it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

FOLDER_MODE = 0o700
FILE_MODE = 0o600
#: Of a file that is never changed again.
FIXED_MODE = 0o400
#: What a mode gives to anybody but the owner.
OTHERS = 0o077
_MAY_ENTER = 0o011
_MAY_WRITE = 0o022


class Exposed(NamedTuple):
    """A path that another user could read or write."""

    path: str
    mode: int
    uid: int

    @property
    def words(self) -> str:
        """What others may do there: `read`, `write`, or both."""
        bits = {"read": 0o055, "write": _MAY_WRITE}
        return " and ".join(word for word, bit in bits.items() if self.mode & bit)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder for its owner alone, and those above it that are missing.

    One that is there stays as it is: it may be somebody's own, with other things in it.
    """
    folder = Path(path)
    try:
        folder.mkdir(FOLDER_MODE)
    except FileNotFoundError:
        make_folder(folder.parent)
        make_folder(folder)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        hold_mode(folder, FOLDER_MODE)


def create_file(path: str | os.PathLike[str]) -> int:
    """A descriptor for writing a new file that only its owner may read; it must not be there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, FILE_MODE)
    hold_mode(file, FILE_MODE)
    return file


def spool_folder() -> str:
    """The folder for large files that are needed for a moment: the one that TMPDIR names, else one
    on a disk. /tmp is memory on many machines, and a file of gigabytes must not be."""
    import tempfile

    chosen = tempfile.gettempdir()
    on_disk = "/var/tmp"  # noqa: S108 - its files have no name
    return on_disk if chosen == "/tmp" and os.access(on_disk, os.W_OK) else chosen  # noqa: S108


def hold_mode(file: int | str | os.PathLike[str], mode: int) -> None:
    """Give the owner what a strict umask has taken from something just made."""
    if stat.S_IMODE(os.stat(file).st_mode) & mode == mode:  # noqa: PTH116 - also a descriptor
        return
    with suppress(PermissionError):  # a file system that keeps no modes
        os.chmod(file, mode)  # noqa: PTH101 - also a descriptor


def exposed(paths: Iterable[str]) -> list[Exposed]:
    """Those of these paths that others than their owner could reach, and do something with.

    A path is out of reach if a folder above it lets only its owner in. Links are not followed, and
    what is not there exposes nothing.
    """
    found = []
    for path in paths:
        state = _state(path)
        if state is None or stat.S_ISLNK(state.st_mode):
            continue
        mode = stat.S_IMODE(state.st_mode)
        if (mode & OTHERS or _is_foreign(state.st_uid)) and _is_reachable(path):
            found.append(Exposed(path, mode, state.st_uid))
    return found


def _is_foreign(uid: int) -> bool:
    return uid not in (os.geteuid(), 0)  # root may do everything anyway


def _is_reachable(path: str) -> bool:
    above = (_state(str(folder)) for folder in Path(path).absolute().parents)
    return all(state is None or state.st_mode & _MAY_ENTER for state in above)


def changeable(path: str) -> list[Exposed]:
    """This path and the folders above it, as far as others could write something else there."""
    found = []
    for place in (Path(path).absolute(), *Path(path).absolute().parents):
        state = _state(str(place), follow=True)
        if state is None:
            continue
        mode = stat.S_IMODE(state.st_mode)
        # In a folder like /tmp nobody moves what is another's.
        shared = stat.S_ISDIR(state.st_mode) and mode & stat.S_ISVTX
        if _others_write(mode, state.st_gid) and not shared and _is_reachable(str(place)):
            found.append(Exposed(str(place), mode, state.st_uid))
    return found


def _others_write(mode: int, gid: int) -> bool:
    return bool(mode & 0o002) or bool(mode & 0o020 and not _is_own_group(gid))


def _is_own_group(gid: int) -> bool:
    """Whether nobody but this user is in the group: many systems give each user one."""
    import grp
    import pwd

    try:
        own = pwd.getpwuid(os.geteuid())
        members = set(grp.getgrgid(gid).gr_mem) - {own.pw_name}
    except KeyError:
        return False
    return own.pw_gid == gid and not members


def tighten(paths: Iterable[str]) -> list[str]:
    """Take from others what they may do with these paths, where this user owns them; which."""
    changed = []
    for each in exposed(paths):
        if each.uid != os.geteuid():
            continue
        with suppress(OSError):  # doctor names it
            os.chmod(each.path, each.mode & ~OTHERS)  # noqa: PTH101 - start-up: no pathlib
            changed.append(each.path)
    return changed


def _state(path: str, *, follow: bool = False) -> os.stat_result | None:
    try:
        return os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - a path or nothing
    except OSError:
        return None
