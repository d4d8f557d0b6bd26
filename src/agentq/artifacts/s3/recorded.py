"""Reading objects that the ledger has a record of: every byte is checked before it is believed."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, cast

from obstore.exceptions import PreconditionError

from agentq.artifacts.digests import Measured, sha256_of
from agentq.artifacts.files.disk import disk_errors
from agentq.artifacts.locations import ArtifactLocation
from agentq.artifacts.s3.bucket import STEP_BYTES, Bucket, Found
from agentq.artifacts.s3.errors import store_errors
from agentq.core.errors import Refused
from agentq.private_files import spool_folder

#: The record of a context or a result does not say how large it is. Nobody's is larger, and a
#: server that has gone mad cannot fill our memory.
_WHOLE_MAX = 1 << 30


class RecordedObjects:
    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def found(self, place: ArtifactLocation, size: int | None = None) -> Found:
        """Return the object at a place; one that is missing or of another size is `Damaged`."""
        with store_errors(f"read the file {place.path} of task {place.task_id}"):
            found = self._bucket.find(place.key)
        if found is None:
            raise place.damaged("is missing, but it was recorded")
        place.check_size(found.size, size)
        return found

    def digest(self, place: ArtifactLocation, found: Found) -> str:
        return sha256_of(self.chunks(place, found))

    def chunks(self, place: ArtifactLocation, found: Found) -> Iterator[bytes]:
        """Yield the content of an object that stays the same meanwhile."""
        with store_errors(f"read the file {place.path} of task {place.task_id}"):
            try:
                yield from self._bucket.chunks(found)
            except (FileNotFoundError, PreconditionError):
                raise place.damaged("was altered or removed while it was read") from None

    def check(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> Found:
        """Return the object after its whole content was checked."""
        found = self.found(place, size)
        place.check_sha256(self.digest(place, found), sha256)
        return found

    def read(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> bytes:
        """Return the content; what is returned is exactly what was checked."""
        found = self.found(place, size)
        if found.size > _WHOLE_MAX:
            raise Refused(
                f"Task {place.task_id}: the file {place.path} has {found.size} bytes, more than"
                " are read at once.",
                "Copy it from the object store by its own tools.",
            )
        return self._whole(place, found, sha256)

    def _whole(self, place: ArtifactLocation, found: Found, sha256: str) -> bytes:
        parts = list(self.chunks(place, found))
        place.check_sha256(sha256_of(parts), sha256)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def open(self, place: ArtifactLocation, sha256: str, size: int | None = None) -> BinaryIO:
        """Return the content as a file of our own, checked before its first byte is given."""
        found = self.found(place, size)
        if found.size <= STEP_BYTES:
            return io.BytesIO(self._whole(place, found, sha256))
        folder = spool_folder()
        with disk_errors(f"keep a copy of {place.path} in {folder}"):
            copy = cast("BinaryIO", tempfile.TemporaryFile(prefix="agentq-", dir=folder))  # noqa: SIM115
            try:
                content = Measured(self.chunks(place, found))
                copy.writelines(content)
                place.check_sha256(content.sha256, sha256)
                copy.seek(0)
            except BaseException:
                copy.close()
                raise
            return copy
