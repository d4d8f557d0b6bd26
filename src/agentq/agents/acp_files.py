"""Files that the ACP bridge reads and writes for an agent: inside the workspace, and plain ones.

The agent could open most of these files itself. The point is that nothing it asks *us* to do
reaches further than the workspace, nor blocks or fills the bridge.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import TextIO, cast

#: The most that is read for an agent in one piece.
READ_CHARS_MAX = 8 << 20


class Outside(Exception):
    """The path leads out of the workspace."""


def inside(workspace: Path, path: str) -> Path:
    """The path with every link followed, if that is still inside the workspace."""
    root = workspace.resolve()
    try:
        place = (root / path).resolve()
    except (ValueError, RuntimeError) as error:  # a NUL in it; links in a circle
        raise OSError(f"not a path: {error}") from error
    if not place.is_relative_to(root):
        raise Outside(f"{path} is outside the workspace")
    return place


def read_text(workspace: Path, path: str, line: int | None, limit: int | None) -> str:
    """The text from the 1-based `line` on, at most `limit` lines of it."""
    start = max(0, (line or 1) - 1)
    stop = None if limit is None else start + max(0, limit)
    with _plain(inside(workspace, path), os.O_RDONLY, "r") as file:
        if not start and stop is None:
            text = file.read(READ_CHARS_MAX + 1)
        else:
            text = _lines(file, start, stop)
    if len(text) > READ_CHARS_MAX:
        raise OSError(f"more than {READ_CHARS_MAX >> 20} Mi characters: ask for fewer lines")
    return text


def _lines(file: TextIO, start: int, stop: int | None) -> str:
    kept, room = [], READ_CHARS_MAX + 1
    # A line is read in bounded pieces too; only one that fits counts as a line.
    pieces = iter(lambda: file.readline(READ_CHARS_MAX + 1), "")
    for piece in islice(pieces, start, stop):
        kept.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return "".join(kept)


def write_text(workspace: Path, path: str, content: str) -> None:
    """Replace what the file holds; it and its folders are made if they are missing."""
    place = inside(workspace, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with _plain(place, os.O_WRONLY | os.O_CREAT, "w") as file:
        file.truncate(0)
        file.write(content)


def _plain(place: Path, flags: int, mode: str) -> TextIO:
    """Opened without following a link and without waiting on a pipe; refused unless a file."""
    fd = os.open(place, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("not a plain file")
    # Undecodable bytes are shown as such; lone surrogates cannot be written otherwise.
    return cast("TextIO", os.fdopen(fd, mode, encoding="utf-8", errors="replace", newline=""))
