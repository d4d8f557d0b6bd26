"""Files that an agent left behind, taken in without trusting a name, a link or a size."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agentq.worker.redaction import Redactor

FILES_MAX = 200
FILE_BYTES_MAX = 256 * 1024 * 1024
RESULT_BYTES_MAX = 16 * 1024 * 1024
REDACT_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Left:
    """One file that was left, open for reading; `why_not` says why it was not taken instead."""

    name: str
    file: BinaryIO | None
    why_not: str = ""


def without_secrets(data: bytes, secrets: Collection[str]) -> bytes:
    """The same without the values the agent was given and whatever has the shape of a secret."""
    redactor = Redactor(secrets)
    if redactor.is_clean(data):
        return data
    return b"\n".join(redactor.line(line) for line in data.split(b"\n"))


def storable(file: BinaryIO, secrets: Collection[str]) -> bytes | BinaryIO | None:
    """A left file as it may be stored; None if it is large and holds a secret we know.

    Larger ones are looked through in pieces that overlap, and go as they are or not at all.
    """
    head = file.read(REDACT_BYTES_MAX + 1)
    if len(head) <= REDACT_BYTES_MAX:
        return without_secrets(head, secrets)
    known = [secret.encode() for secret in secrets]
    overlap = max(map(len, known), default=1)
    piece = head
    while piece:
        if any(secret in piece for secret in known):
            return None
        more = file.read(REDACT_BYTES_MAX)
        piece = piece[-overlap:] + more if more else b""
    file.seek(0)
    return file


def left_in(folder: Path) -> Iterator[Left]:
    """The files below a folder, by name, links never followed; close each before the next."""
    count = 0
    for parent, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        for leaf in sorted(files):
            path = Path(parent) / leaf
            name = path.relative_to(folder).as_posix()
            count += 1
            if count > FILES_MAX:
                yield Left(name, None, f"more than {FILES_MAX} files were left")
                return
            yield _opened(path, name, FILE_BYTES_MAX)


def read_result(path: Path) -> bytes | None:
    """The result file, if the agent wrote one that is a plain, not absurdly large file."""
    found = _opened(path, path.name, RESULT_BYTES_MAX)
    if found.file is None:
        return None
    with found.file:
        return found.file.read(RESULT_BYTES_MAX) or None


def _opened(path: Path, name: str, limit: int) -> Left:
    try:
        # Never waits (a pipe), never follows a link that was put in its place.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return Left(name, None, f"it cannot be read ({error.strerror})")
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        return Left(name, None, "it is not a plain file")
    if found.st_size > limit:
        os.close(handle)
        return Left(name, None, f"it has {found.st_size} bytes, more than {limit}")
    return Left(name, os.fdopen(handle, "rb"))
