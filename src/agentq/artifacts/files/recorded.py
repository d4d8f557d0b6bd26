"""Reading files that the ledger has a record of: every byte is checked before it is believed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agentq.artifacts.files.disk import (
    NOT_WHAT_IT_SHOULD_BE,
    digest_of,
    exists,
    new_digest,
    open_folder,
    open_plain,
    unavailable,
)
from agentq.core.errors import Damaged

_REMEDY = "Restore the file from a backup. `agentq verify` lists everything that is damaged."


@dataclass(frozen=True, slots=True)
class ArtifactLocation:
    """Where one file of one task belongs."""

    task_id: str
    root: str
    folders: tuple[str, ...]
    name: str

    @property
    def path(self) -> str:
        return "/".join((self.root, *self.folders, self.name))

    def damaged(self, what: str, remedy: str = _REMEDY) -> Damaged:
        return Damaged(f"Task {self.task_id}: the file {self.path} {what}.", remedy)


def is_there(place: ArtifactLocation) -> bool:
    """Whether anything is at that place, right or wrong."""
    try:
        with open_folder(place.root, place.folders) as folder:
            return exists(folder, place.name)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno in NOT_WHAT_IT_SHOULD_BE:
            return True
        raise unavailable(error, f"look for {place.path}") from error


def open_recorded(place: ArtifactLocation, sha256: str, size: int | None = None) -> int:
    """Return a descriptor at the beginning of the file, after its whole content was checked."""
    with _reading(place):
        file = _open(place)
        try:
            _check_size(place, file, size)
            if digest_of(file) != sha256:
                raise _altered(place, sha256)
            os.lseek(file, 0, os.SEEK_SET)
        except BaseException:
            os.close(file)
            raise
        return file


def read_recorded(place: ArtifactLocation, sha256: str, size: int | None = None) -> bytes:
    """Return the content; what is returned is exactly what was checked."""
    with _reading(place):
        file = _open(place)
        try:
            _check_size(place, file, size)
            # At most one byte more than expected: a file that grows while it is read cannot
            # fill the memory.
            limit = (os.fstat(file).st_size if size is None else size) + 1
            content = _read_up_to(file, limit)
        finally:
            os.close(file)
    digest = new_digest()
    digest.update(content)
    if digest.hexdigest() != sha256:
        raise _altered(place, sha256)
    return content


def _open(place: ArtifactLocation) -> int:
    with open_folder(place.root, place.folders) as folder:
        return open_plain(folder, place.name)


def _read_up_to(file: int, limit: int) -> bytes:
    parts: list[bytes] = []
    while limit > 0 and (part := os.read(file, limit)):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _check_size(place: ArtifactLocation, file: int, size: int | None) -> None:
    found = os.fstat(file).st_size
    if size is not None and found != size:
        raise place.damaged(f"was altered: it has {found} bytes, {size} were recorded")


def _altered(place: ArtifactLocation, sha256: str) -> Damaged:
    return place.damaged(f"was altered: its content does not match the recorded SHA-256 {sha256}")


@contextmanager
def _reading(place: ArtifactLocation) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise place.damaged("is missing, but it was recorded") from error
    except OSError as error:
        if error.errno in NOT_WHAT_IT_SHOULD_BE:
            raise place.damaged(
                "was replaced: a link, a folder or something else is there"
            ) from error
        raise unavailable(error, f"read the file {place.path} of task {place.task_id}") from error
