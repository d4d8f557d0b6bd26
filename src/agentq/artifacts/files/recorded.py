"""Reading files that the ledger has a record of: every byte is checked before it is believed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from agentq.artifacts.digests import sha256_of
from agentq.artifacts.files.disk import (
    NOT_WHAT_IT_SHOULD_BE,
    digest_of,
    exists,
    open_folder,
    open_plain,
    unavailable,
)
from agentq.artifacts.locations import ArtifactLocation


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


class RecordedFiles:
    def open(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> BinaryIO:
        """Return the file at its beginning, after its whole content was checked."""
        with _reading(place):
            file = _open(place)
            try:
                place.check_size(os.fstat(file).st_size, size)
                place.check_sha256(digest_of(file), sha256)
                os.lseek(file, 0, os.SEEK_SET)
            except BaseException:
                os.close(file)
                raise
            return os.fdopen(file, "rb")

    def check(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> None:
        self.open(place, sha256, size).close()

    def read(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> bytes:
        """Return the content; what is returned is exactly what was checked."""
        with _reading(place), os.fdopen(_open(place), "rb") as file:
            found = os.fstat(file.fileno()).st_size
            place.check_size(found, size)
            # At most one byte more than expected: a file that grows while it is read cannot
            # fill the memory.
            content = file.read(found + 1)
        place.check_sha256(sha256_of([content]), sha256)
        return content


def _open(place: ArtifactLocation) -> int:
    with open_folder(place.root, place.folders) as folder:
        return open_plain(folder, place.name)


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
