"""Removing what is not needed any more, without ever following a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

from agentq.artifacts.files.disk import NOT_WHAT_IT_SHOULD_BE, disk_errors, open_below, open_folder
from agentq.artifacts.names import temporary_name


def remove_file(root: str, parts: Sequence[str], name: str) -> None:
    """Remove a file from a folder; nothing there is fine."""
    with suppress(FileNotFoundError), open_folder(root, parts) as folder:
        os.unlink(name, dir_fd=folder)


def remove_tree(root: str, parts: Sequence[str], name: str) -> None:
    """Remove a folder, however deep, or whatever else has its name; nothing there is fine."""
    with suppress(FileNotFoundError), open_folder(root, parts) as parent:
        if not _is_folder(parent, name):
            os.unlink(name, dir_fd=parent)
            return
        with open_below(parent, name) as folder:
            _empty(folder)
        os.rmdir(name, dir_fd=parent)


def _empty(folder: int) -> None:
    # One folder at a time, no recursion: an agent may have made them deeper than our stack.
    while names := os.listdir(folder):
        for name in names:
            with suppress(FileNotFoundError):  # somebody else removes them too
                if _is_folder(folder, name):
                    _lift_out(folder, name)
                else:
                    os.unlink(name, dir_fd=folder)


def remove_old(
    root: str,
    parts: Sequence[str],
    before_ms: int,
    is_left_over: Callable[[str], bool],
    *,
    depth: int = 0,
) -> int:
    """Remove the files of a folder that are older and left over; returns how many there were.

    With `depth`, those of the folders inside it too, so deep.
    """
    with (
        disk_errors(f"clean up below {root}"),
        suppress(FileNotFoundError),
        open_folder(root, parts) as folder,
    ):
        return _remove_old(folder, before_ms, is_left_over, depth)
    return 0


def _remove_old(
    folder: int, before_ms: int, is_left_over: Callable[[str], bool], depth: int
) -> int:
    removed = 0
    for entry in _entries(folder):
        with suppress(FileNotFoundError):
            if entry.is_dir(follow_symlinks=False):
                if depth:
                    removed += _in_child(folder, entry.name, before_ms, is_left_over, depth - 1)
                continue
            # When it got this name: a link keeps the time of writing, which may be long ago.
            old = entry.stat(follow_symlinks=False).st_ctime_ns < before_ms * 1_000_000
            if old and is_left_over(entry.name):
                os.unlink(entry.name, dir_fd=folder)
                removed += 1
    return removed


def _in_child(
    parent: int, name: str, before_ms: int, is_left_over: Callable[[str], bool], depth: int
) -> int:
    try:
        with open_below(parent, name) as folder:
            return _remove_old(folder, before_ms, is_left_over, depth)
    except OSError as error:
        # An agent may have closed its folder to us, or put something else there meanwhile. That
        # one goes with its task; the others are swept all the same.
        if isinstance(error, PermissionError) or error.errno in NOT_WHAT_IT_SHOULD_BE:
            return 0
        raise


def _entries(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(found)


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


def _lift_out(folder: int, name: str) -> None:
    with open_below(folder, name) as child:
        for inner in _entries(child):
            os.rename(inner.name, temporary_name(), src_dir_fd=child, dst_dir_fd=folder)
    os.rmdir(name, dir_fd=folder)
