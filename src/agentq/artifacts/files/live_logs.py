"""The live log of an attempt: bounded files that one process writes while others read along.

    live/<task>/<epoch>/head       from the first byte on, up to half of what is kept
    live/<task>/<epoch>/<start>    what comes after it, each file named by the position it starts at

Of the numbered files the last two are kept. Each holds a quarter at most: an agent that prints ten
gigabytes needs no more disk than one of ten megabytes, and what was said last is always there. The
names and sizes of the files are all there is to know: nothing is remembered between two calls.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from agentq.artifacts.files.disk import disk_errors, open_folder, open_plain, write_fully
from agentq.artifacts.files.removal import remove_tree
from agentq.artifacts.store_base import overtaken
from agentq.contracts.artifacts import LivePart
from agentq.private_files import FILE_MODE

_LIVE = "live"
_HEAD = "head"
_SEGMENT = re.compile(r"[0-9]{20}")
_APPEND_FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)
#: A reader that is overtaken looks again; a writer so fast that this is not enough is a fault.
_LOOKS_MAX = 100


class _Piece(NamedTuple):
    """A file of a log, and the positions it covers."""

    start: int
    end: int
    name: str


class LiveLogs:
    def __init__(self, root: str) -> None:
        self._root = root

    def append(
        self, task_id: str, epoch: str, data: bytes, keep_bytes: int, position: int = -1
    ) -> int:
        with (
            disk_errors(f"write the live log of task {task_id} below {self._root}"),
            open_folder(self._root, (_LIVE, task_id, epoch), create=True) as folder,
        ):
            last = max(_pieces(folder), default=_Piece(0, 0, _HEAD))
            if position >= 0:
                data = data[max(last.end - position, 0) :]
            placed = list(_placed(last, data, keep_bytes))
            # What would not outlive this call need not be written.
            kept = [each for each in placed[:-2] if each[0].name == _HEAD] + placed[-2:]
            for piece, part in kept:
                if piece.name not in (last.name, _HEAD):
                    _make_room(folder)
                _add(folder, piece.name, part)
            return last.end + len(data)

    def read(self, task_id: str, epoch: str, position: int, limit: int) -> LivePart | None:
        with (
            disk_errors(f"read the live log of task {task_id} below {self._root}"),
            suppress(FileNotFoundError),
            open_folder(self._root, (_LIVE, task_id, epoch)) as folder,
        ):
            for _ in range(_LOOKS_MAX):
                part = _read(folder, position, limit)
                if part is not None:
                    return part
            raise overtaken(task_id)
        return None

    def end(self, task_id: str, epoch: str) -> None:
        with disk_errors(f"remove the live log of task {task_id} below {self._root}"):
            remove_tree(self._root, (_LIVE, task_id), epoch)

    def remove(self, task_id: str) -> None:
        with disk_errors(f"remove the live logs of task {task_id} below {self._root}"):
            remove_tree(self._root, (_LIVE,), task_id)


def _pieces(folder: int) -> list[_Piece]:
    """The files of a log, in order. Whatever else somebody put there is not looked at."""
    found = []
    for name in os.listdir(folder):
        if name != _HEAD and not _SEGMENT.fullmatch(name):
            continue
        with suppress(FileNotFoundError):  # dropped since
            state = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(state.st_mode):
                start = 0 if name == _HEAD else int(name)
                found.append(_Piece(start, start + state.st_size, name))
    return sorted(found)


def _placed(last: _Piece, data: bytes, keep_bytes: int) -> Iterator[tuple[_Piece, bytes]]:
    """Which part of the data goes to which file.

    Line by line: a line goes to the file at hand if it fits there, else to a new one. So the files
    do not depend on how much is appended at a time.
    """
    done = 0
    while done < len(data):
        most = keep_bytes // 2 if last.name == _HEAD else keep_bytes // 4
        room = most - (last.end - last.start)
        until = len(data)
        if until - done > room:
            until = data.rfind(b"\n", done, done + max(room, 0)) + 1
        if until <= done and last.end == last.start:
            until = done + most  # a line that fits nowhere
        if until <= done:
            last = _Piece(last.end, last.end, f"{last.end:020d}")
            continue
        yield last, data[done:until]
        last = last._replace(end=last.end + until - done)
        done = until


def _make_room(folder: int) -> None:
    """Keep one numbered file, two with the one to come. Before it comes: the disk may be full."""
    for piece in [each for each in _pieces(folder) if each.name != _HEAD][:-1]:
        with suppress(FileNotFoundError):
            os.unlink(piece.name, dir_fd=folder)


def _add(folder: int, name: str, data: bytes) -> None:
    file = os.open(name, _APPEND_FLAGS, FILE_MODE, dir_fd=folder)
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EISDIR, "not a plain file", name)
        try:
            write_fully(file, data)
        except OSError:
            os.ftruncate(file, state.st_size)  # half a line would be read as a whole one
            raise
    finally:
        os.close(file)


def _read(folder: int, position: int, limit: int) -> LivePart | None:
    """What is there from the position on; None if it was dropped just now."""
    piece = next((each for each in _pieces(folder) if each.end > position), None)
    if piece is None:
        return LivePart(b"", position)
    start = max(position, piece.start)
    with suppress(FileNotFoundError):
        file = open_plain(folder, piece.name)
        try:
            data = os.pread(file, min(limit, piece.end - start), start - piece.start)
        finally:
            os.close(file)
        return LivePart(data, start + len(data), start - position)
    return None
