"""The context of a task as an object: staged before the submit commits, published after it.

An object cannot be moved, so it is written twice: first, durably, under a name of its own

    tasks/.staged/<task id>/<sha256>.<token of the stager>

and, once the ledger has committed, at `tasks/<task id>.md`, unless something is there. The digest
in the name lets any process find the right one for a committed task, so a crash in between is
repaired by whoever reads the context next. The token makes each submitter the owner of its own
object: two that race for one id, even with the same content, can neither overwrite nor discard
what the other staged.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from agentq.artifacts.files.disk import new_digest
from agentq.artifacts.files.recorded import ArtifactLocation
from agentq.artifacts.s3.bucket import Bucket, ListedObject
from agentq.artifacts.s3.errors import store_errors
from agentq.artifacts.s3.recorded import Records, key_of
from agentq.core.errors import AgentqError, Conflict, Damaged, Unavailable

_TASKS = ("tasks",)
_STAGED = "tasks/.staged"
_MEDIA_TYPE = "text/markdown"


class _Staged(NamedTuple):
    key: str
    data: bytes


class ContextObjects:
    """What is below `tasks` in a bucket. Ids and digests were checked by the caller."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._records = Records(bucket)
        self._lock = threading.Lock()
        #: What this object staged and neither published nor discarded yet.
        self._own: dict[tuple[str, str], list[_Staged]] = {}

    def place(self, task_id: str) -> ArtifactLocation:
        return ArtifactLocation(task_id, self._bucket.url, _TASKS, f"{task_id}.md")

    def stage(self, task_id: str, data: bytes, sha256: str) -> None:
        staged = _Staged(f"{_STAGED}/{task_id}/{sha256}.{os.urandom(8).hex()}", data)
        with store_errors(f"keep the context of task {task_id} below {self._bucket.url}"):
            self._bucket.create(staged.key, data)
        with self._lock:
            self._own.setdefault((task_id, sha256), []).append(staged)

    def publish(self, task_id: str, sha256: str) -> None:
        with self._lock:
            own = self._own.pop((task_id, sha256), [])
        place = self.place(task_id)
        try:
            with store_errors(f"publish the context {place.path}"):
                used = self._published(place, sha256, own)
                self._bucket.delete(each.key for each in {*own, *used})
        except AgentqError:
            with self._lock:  # so that it can be tried again
                self._own.setdefault((task_id, sha256), []).extend(own)
            raise

    def _published(self, place: ArtifactLocation, sha256: str, own: list[_Staged]) -> list[_Staged]:
        """Publish, unless it is; returns the staged objects that are not needed any more."""
        staged = own[:1]
        if not staged:
            found = self._bucket.find(key_of(place))
            if found is None:
                staged = self._staged(place.task_id, sha256)
                if not staged and self._bucket.find(key_of(place)) is None:
                    raise place.damaged("is missing, and so is its staged copy")
        if staged and self._bucket.create(key_of(place), staged[0].data, _MEDIA_TYPE):
            return staged
        if self._records.digest(place, self._records.found(place)) != sha256:
            raise Conflict(
                f"Task {place.task_id}: another file is at {place.path}; it was not overwritten.",
                "Move it away; the task's context takes its place when it is next read.",
            )
        return staged

    def discard(self, task_id: str, sha256: str) -> None:
        with self._lock:
            own = self._own.pop((task_id, sha256), [])
            if not own:
                return
            staged = own.pop()
            if own:  # another thread's, with the same content
                self._own[(task_id, sha256)] = own
        with store_errors(f"drop the staged context of task {task_id}"):
            self._bucket.delete([staged.key])

    def read(self, task_id: str, sha256: str) -> bytes:
        place = self.place(task_id)
        try:
            return self._records.read(place, sha256)
        except Damaged:
            with store_errors(f"look for the context of task {task_id}"):
                staged = self._staged(task_id, sha256)
                missing = self._bucket.find(key_of(place)) is None
            if staged and missing:
                with suppress(Unavailable, Conflict):  # who may not write can still read
                    self.publish(task_id, sha256)
            elif not staged and not missing:
                # Published while we looked; or somebody's own file stands at our place.
                return self._records.read(place, sha256)
            elif not staged:
                raise
            return staged[0].data

    def _staged(self, task_id: str, sha256: str) -> list[_Staged]:
        """The first good one that is staged with this digest, if there is any."""
        for entry in self._bucket.entries(f"{_STAGED}/{task_id}"):
            if _parts(entry) != (task_id, sha256):
                continue
            found = self._bucket.find(entry.key)
            content = None if found is None else b"".join(self._bucket.chunks(found))
            if content is not None and _digest(content) == sha256:
                return [_Staged(entry.key, content)]
        return []

    def remove(self, task_id: str) -> None:
        """Remove the context and everything staged for the task."""
        with store_errors(f"remove the context of task {task_id}"):
            staged = [entry.key for entry in self._bucket.entries(f"{_STAGED}/{task_id}")]
            self._bucket.delete([key_of(self.place(task_id)), *staged])

    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
        """Remove what was staged before then and is not wanted; returns how many there were."""
        with store_errors(f"clean up below {self._bucket.url}"):
            old = [each for each in self._bucket.entries(_STAGED) if each.is_older(before_ms)]
        left_over = [
            entry.key
            for entry, (task_id, sha256) in zip(old, map(_parts, old), strict=True)
            if not sha256 or not is_wanted(task_id, sha256)
        ]
        with store_errors(f"clean up below {self._bucket.url}"):
            self._bucket.delete(left_over)
        return len(left_over)


def _parts(entry: ListedObject) -> tuple[str, str]:
    """The task id and the digest that a staged object is for."""
    task_id, _, name = entry.key.removeprefix(f"{_STAGED}/").partition("/")
    return task_id, name.partition(".")[0]


def _digest(data: bytes) -> str:
    digest = new_digest()
    digest.update(data)
    return digest.hexdigest()
