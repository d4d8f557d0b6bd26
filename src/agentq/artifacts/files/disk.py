"""Folders and files reached step by step through descriptors, and written so that they last.

No path longer than one name is ever opened below the root: each folder is opened inside the one
before it, and links are not followed. A link that somebody puts in the way, even in between two
steps, is refused by the kernel; there is nothing to compare and nothing to race.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

from agentq.artifacts.digests import sha256_of
from agentq.core.errors import Conflict, Unavailable
from agentq.private_files import FIXED_MODE, FOLDER_MODE, hold_mode, make_folder

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: Not blocking, so that a named pipe in the place of a file cannot hold us up.
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

CHUNK_BYTES = 1 << 20

#: What opening gives for a link, a folder, a socket or a file in the place of something else.
NOT_WHAT_IT_SHOULD_BE = {errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO}
#: What linking gives where the file system, or the host's rules for other people's files, say no.
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}

_REASONS = {
    errno.ENOSPC: ("the disk is full", "Free some space, then try again."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space, then try again."),
    errno.EROFS: ("the disk is read-only", "Make it writable, or choose another artifact folder."),
    errno.EACCES: ("permission denied", "Check who owns the artifact folder and its mode."),
    errno.EPERM: ("permission denied", "Check who owns the artifact folder and its mode."),
    errno.EFBIG: ("the file is larger than this host allows", "Raise the limit (ulimit -f)."),
    errno.EMFILE: ("too many open files", "Raise the limit (ulimit -n)."),
    errno.ENOTDIR: ("it is not a folder", "Choose another artifact folder."),
    errno.EIO: ("the disk reports an error", "Check the disk; `agentq verify` shows what is lost."),
}


@contextmanager
def open_folder(root: str, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Yield a descriptor of the folder `parts` below `root`.

    Folders made on the way are on disk when the block has ended well. Syncing them only then is
    much cheaper: what the block itself syncs has mostly carried them along.
    """
    folder = _open_root(root, create=create)
    opened, grown = [folder], []
    try:
        for part in parts:
            try:
                child = _open_child(folder, part)
            except FileNotFoundError:
                if not create:
                    raise
                with suppress(FileExistsError):  # somebody else was faster
                    os.mkdir(part, FOLDER_MODE, dir_fd=folder)
                child = _open_child(folder, part)
                hold_mode(child, FOLDER_MODE)
                grown.append(folder)
            opened.append(child)
            folder = child
        yield folder
        for parent in grown:
            os.fsync(parent)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _open_root(root: str, *, create: bool) -> int:
    # The root is the owner's choice and may be reached through links; nothing below it may.
    try:
        return os.open(root, _FOLDER_FLAGS)
    except NotADirectoryError as error:
        raise unavailable(error, f"use the artifact folder {root}") from error
    except FileNotFoundError:
        if not create:
            raise
    make_folder(root)
    parent = os.open(os.path.dirname(root), _FOLDER_FLAGS)  # noqa: PTH120
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
    return os.open(root, _FOLDER_FLAGS)


def _open_child(folder: int, name: str) -> int:
    return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)


@contextmanager
def open_below(parent: int, name: str) -> Iterator[int]:
    folder = _open_child(parent, name)
    try:
        yield folder
    finally:
        os.close(folder)


def open_plain(folder: int, name: str) -> int:
    """Return a descriptor for reading; anything but a plain file is an `OSError`."""
    file = os.open(name, _READ_FLAGS, dir_fd=folder)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(errno.EISDIR, "not a plain file", name)


def exists(folder: int, name: str) -> bool:
    """Whether anything at all has this name."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def chunks_of(file: int) -> Iterator[bytes]:
    """Yield the content of an open file from its beginning."""
    os.lseek(file, 0, os.SEEK_SET)
    while chunk := os.read(file, CHUNK_BYTES):
        yield chunk


def digest_of(file: int) -> str:
    return sha256_of(chunks_of(file))


def has_digest(folder: int, name: str, sha256: str) -> bool:
    """Whether a file in an open folder has this content."""
    file = open_plain(folder, name)
    try:
        return digest_of(file) == sha256
    finally:
        os.close(file)


def write_new(folder: int, name: str, chunks: Iterable[bytes]) -> None:
    """Write a new read-only file that is on disk when this returns, and gone when it fails.

    The folder's own entry for it still has to be synced.
    """
    # Read-only from the start, and for the owner alone.
    file = os.open(name, _WRITE_FLAGS, FIXED_MODE, dir_fd=folder)
    try:
        hold_mode(file, FIXED_MODE)
        try:
            for chunk in chunks:
                write_fully(file, chunk)
            os.fsync(file)
        finally:
            os.close(file)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise


def write_fully(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def link_unless_taken(folder: int, temporary: str, name: str) -> bool:
    """Give a finished temporary file its name unless something has it; the temporary is gone then.

    Returns whether it got the name. Durable once the folder is synced.
    """
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_unless_taken(folder, temporary, name)
    finally:
        with suppress(FileNotFoundError):  # renamed
            os.unlink(temporary, dir_fd=folder)
    return True


def _rename_unless_taken(folder: int, temporary: str, name: str) -> bool:
    import fcntl

    # Renaming would replace; with the folder locked nobody can take the name in between.
    fcntl.flock(folder, fcntl.LOCK_EX)
    try:
        if exists(folder, name):
            return False
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def copy_by_link(file: int, source: int, name: str, target: int, temporary: str) -> bool:
    """Link the open `file`, called `name` in the folder `source`, as `temporary` in `target`.

    False where there are no hard links, or where `name` has stopped to mean that file.
    """
    try:
        os.link(name, temporary, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_HARD_LINKS or error.errno in {errno.ENOENT, errno.EXDEV}:
            return False
        raise
    linked = os.stat(temporary, dir_fd=target, follow_symlinks=False)
    if os.path.samestat(linked, os.fstat(file)):
        return True
    os.unlink(temporary, dir_fd=target)
    return False


@contextmanager
def disk_errors(doing: str) -> Iterator[None]:
    """Turn what the disk says into our errors; `doing` is "store the file /path"."""
    try:
        yield
    except OSError as error:
        if error.errno in NOT_WHAT_IT_SHOULD_BE:
            raise Conflict(
                f"Cannot {doing}: a link, or a file where a folder should be, is in the way."
                " Nothing was changed.",
                "Move away what is there, or use another name.",
            ) from error
        raise unavailable(error, doing, " Nothing was changed.") from error


def unavailable(error: OSError, doing: str, consequence: str = "") -> Unavailable:
    unknown = (error.strerror or type(error).__name__, "See that the artifact folder is usable.")
    reason, remedy = _REASONS.get(error.errno or 0, unknown)
    return Unavailable(f"Cannot {doing}: {reason}.{consequence}", remedy)
