"""The context of a task as an object: staged under a key of its own, then written at its place.

    tasks/.staged/<task id>/<sha256>.<token of the stager>

An object cannot be moved. At `tasks/<task id>.md` it is created only if nothing is there.
"""

from __future__ import annotations

from collections.abc import Callable

from agentq.artifacts.digests import sha256_of
from agentq.artifacts.locations import ArtifactLocation
from agentq.artifacts.s3.bucket import Bucket, ListedObject
from agentq.artifacts.s3.errors import store_errors
from agentq.artifacts.s3.recorded import RecordedObjects
from agentq.artifacts.staged_contexts import EDITED, StagedContext, StagedContexts, occupied

_STAGED = "tasks/.staged"
_MEDIA_TYPE = "text/markdown"


class ContextObjects(StagedContexts):
    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._objects = RecordedObjects(bucket)
        super().__init__(bucket.url, self._objects)

    def _write(self, task_id: str, sha256: str, token: str, data: bytes) -> StagedContext:
        key = f"{_STAGED}/{task_id}/{sha256}.{token}"
        with store_errors(f"keep the context of task {task_id} below {self._root}"):
            self._bucket.create(key, data)
        return StagedContext(key, data)

    def _publish(self, place: ArtifactLocation, sha256: str, own: list[StagedContext]) -> None:
        with store_errors(f"publish the context {place.path}"):
            used = self._published(place, sha256, own)
            self._bucket.delete(each.name for each in {*own, *used})

    def _published(
        self, place: ArtifactLocation, sha256: str, own: list[StagedContext]
    ) -> list[StagedContext]:
        """Publish, unless it is; returns the staged objects that are not needed any more."""
        staged = own[:1]
        if not staged and self._bucket.find(place.key) is None:
            staged = self._staged(place.task_id, sha256)
            if not staged and self._bucket.find(place.key) is None:
                raise place.damaged("is missing, and so is its staged copy")
        if staged and self._bucket.create(place.key, staged[0].data, _MEDIA_TYPE):
            return staged
        if self._objects.digest(place, self._objects.found(place)) != sha256:
            raise occupied(place)
        return staged

    def _drop(self, task_id: str, staged: StagedContext) -> None:
        with store_errors(f"drop the staged context of task {task_id}"):
            self._bucket.delete([staged.name])

    def _is_there(self, place: ArtifactLocation) -> bool:
        with store_errors(f"look for the context of task {place.task_id}"):
            return self._bucket.find(place.key) is not None

    def _staged_content(self, task_id: str, sha256: str) -> bytes | None:
        with store_errors(f"look for the context of task {task_id}"):
            staged = self._staged(task_id, sha256)
        return staged[0].data if staged else None

    def _staged(self, task_id: str, sha256: str) -> list[StagedContext]:
        """The first good one that is staged with this digest, if there is any."""
        for entry in self._bucket.entries(f"{_STAGED}/{task_id}"):
            if _parts(entry) != (task_id, sha256):
                continue
            found = self._bucket.find(entry.key)
            content = None if found is None else b"".join(self._bucket.chunks(found))
            if content is not None and sha256_of([content]) == sha256:
                return [StagedContext(entry.key, content)]
        return []

    def remove(self, task_id: str) -> None:
        with store_errors(f"remove the context of task {task_id}"):
            folders = (f"{_STAGED}/{task_id}", "/".join((*EDITED, task_id)))
            others = [each.key for folder in folders for each in self._bucket.entries(folder)]
            self._bucket.delete([self._place(task_id).key, *others])

    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
        with store_errors(f"clean up below {self._root}"):
            old = [each for each in self._bucket.entries(_STAGED) if each.is_older(before_ms)]
        left_over = []  # found outside: what `is_wanted` raises is not an error of this store
        for entry in old:
            task_id, sha256 = _parts(entry)
            if not sha256 or not is_wanted(task_id, sha256):
                left_over.append(entry.key)
        with store_errors(f"clean up below {self._root}"):
            self._bucket.delete(left_over)
        return len(left_over)


def _parts(entry: ListedObject) -> tuple[str, str]:
    """The task id and the digest that a staged object is for."""
    task_id, _, name = entry.key.removeprefix(f"{_STAGED}/").partition("/")
    return task_id, name.partition(".")[0]
