"""Artifacts as objects of S3, or of a store that behaves alike, for many machines.

    tasks/<id>.md                  the context (see `objects_contexts`)
    artifacts/<id>/<epoch>/<name>  the evidence of one attempt
    results/<id>.md                the accepted result: a copy of the evidence
    live/<id>/<epoch>/…            what a running attempt says (see `objects_live`)

An object of the first three kinds is created only if nothing has its name (`If-None-Match: *`), and
appears whole or not at all: what is visible is complete and stays as it is. A large one is first
sent in parts to a name of its own, `artifacts/<id>/<epoch>/.tmp-…`, and then copied inside the
store under the same condition, because the parts of an upload cannot be given it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from os import urandom
from typing import BinaryIO
from urllib.parse import quote

from agentq.artifacts.files.disk import is_temporary, new_digest, temporary_name
from agentq.artifacts.files.recorded import ArtifactLocation
from agentq.artifacts.names import (
    check_epoch,
    check_name,
    check_sha256,
    check_task_id,
    media_type,
)
from agentq.artifacts.s3.bucket import STEP_BYTES, Bucket
from agentq.artifacts.s3.contexts import ContextObjects
from agentq.artifacts.s3.errors import store_errors
from agentq.artifacts.s3.live_logs import LiveObjects
from agentq.artifacts.s3.recorded import Records, key_of
from agentq.artifacts.sources import reading
from agentq.contracts.artifacts import (
    LIVE_KEEP_BYTES,
    SWEEP_EVIDENCE_MS,
    LivePart,
    Source,
    Stored,
)
from agentq.core.errors import AgentqError, Conflict, Invalid, Unavailable

_ARTIFACTS = "artifacts"
_RESULTS = ("results",)
_PROBES = "probes"
_HEAD_BYTES = 4096
#: S3 copies no larger objects.
_SIZE_MAX = 5 << 30
#: S3 signs for no longer.
_LINK_SECONDS_MAX = 7 * 24 * 3600
#: Evidence of all tasks may be very many files.
_LISTED_MAX = 100_000_000

_OVERWRITES = "Use a store that honours `If-None-Match` for writing, for copies too, as S3 does."


class ObjectArtifacts:
    """Keeps `agentq.contracts.artifacts.ArtifactStore` below `root_url`, like `s3://bucket/prefix`.

    `options` may name the `endpoint` and the `region`. Credentials come from the environment, as
    for every program that uses S3. The bucket must be there.
    """

    def __init__(self, root_url: str, options: Mapping[str, str] | None = None) -> None:
        self._bucket = Bucket(root_url, options or {})
        self._root = self._bucket.url
        self._records = Records(self._bucket)
        self._contexts = ContextObjects(self._bucket)
        self._live = LiveObjects(self._bucket)
        self._swept_ms = 0

    # ---- the context of a task ------------------------------------------------------------------

    def stage_context(self, task_id: str, data: bytes) -> Stored:
        digest = new_digest()
        digest.update(data)
        sha256 = digest.hexdigest()
        self._contexts.stage(check_task_id(task_id), data, sha256)
        return Stored(f"{task_id}.md", len(data), sha256, "text/markdown")

    def publish_context(self, task_id: str, sha256: str) -> None:
        self._contexts.publish(check_task_id(task_id), check_sha256(sha256))

    def discard_context(self, task_id: str, sha256: str) -> None:
        self._contexts.discard(check_task_id(task_id), check_sha256(sha256))

    def context(self, task_id: str, sha256: str) -> bytes:
        return self._contexts.read(check_task_id(task_id), check_sha256(sha256))

    # ---- the evidence of an attempt -------------------------------------------------------------

    def put(self, task_id: str, epoch: int, name: str, source: Source) -> Stored:
        place = self._evidence(task_id, epoch, name)
        with reading(source) as chunks:
            measured = _Measured(iter(chunks))
            begin = measured.take(STEP_BYTES)
            kind = media_type(name, measured.head)
            if measured.at_end:
                with store_errors(f"store the file {place.path}"):
                    is_new = self._bucket.create(key_of(place), begin, kind)
            else:
                is_new = self._put_large(place, kind, begin, measured)
        if not is_new:
            self._keep_only_the_same(
                place, measured, "Evidence is never overwritten: use another name."
            )
        return Stored(name, measured.size, measured.sha256, kind)

    def _put_large(self, place: ArtifactLocation, kind: str, begin: bytes, rest: _Measured) -> bool:
        """Send the file in parts, then give it its name; returns whether it got the name."""
        doing = f"store the file {place.path}"
        with store_errors(doing):
            if self._bucket.find(key_of(place)) is not None:
                for _ in rest:  # only to know whether it is the same
                    pass
                return False
        temporary = "/".join((*place.folders[:3], temporary_name()))
        try:
            with store_errors(doing):
                self._bucket.upload(temporary, chain([begin], rest), kind)
                return self._bucket.copy_unless_taken(temporary, key_of(place))
        finally:
            with suppress(AgentqError), store_errors(doing):  # else it is swept away
                self._bucket.delete([temporary])

    def _keep_only_the_same(
        self, place: ArtifactLocation, measured: _Measured, remedy: str
    ) -> None:
        """Accept what has the name already if it is the same."""
        with store_errors(f"read the file {place.path}"):
            found = self._bucket.find(key_of(place))
        if found is None:
            raise Conflict(
                f"Cannot store the file {place.path}: a folder is in the way, or somebody removes"
                " the file. Nothing was changed.",
                "Use another name.",
            )
        same_size = found.size == measured.size
        if not same_size or self._records.digest(place, found) != measured.sha256:
            raise _taken(place, remedy)

    def open(self, task_id: str, epoch: int, name: str, expected: Stored) -> BinaryIO:
        place = self._evidence(task_id, epoch, name)
        return self._records.open(place, expected.sha256, expected.size)

    def read(self, task_id: str, epoch: int, name: str, sha256: str, size: int) -> bytes:
        return self._records.read(self._evidence(task_id, epoch, name), sha256, size)

    def check(self, task_id: str, epoch: int, name: str, sha256: str, size: int) -> str | None:
        try:
            self._records.check(self._evidence(task_id, epoch, name), sha256, size)
        except AgentqError as error:
            return error.cause
        return None

    def discard(self, task_id: str, epoch: int, name: str) -> None:
        place = self._evidence(task_id, epoch, name)
        with store_errors(f"remove the file {place.path}"):
            self._bucket.delete([key_of(place)])

    def presign(self, task_id: str, epoch: int, name: str, seconds: int) -> str:
        place = self._evidence(task_id, epoch, name)
        if not 1 <= seconds <= _LINK_SECONDS_MAX:
            raise Invalid(
                f"A link is good for 1 second to 7 days; got {seconds} seconds.",
                "Make a new one when it has run out.",
            )
        with store_errors(f"sign a link to {place.path}"):
            return self._bucket.signed(key_of(place), seconds)

    # ---- the result of a task -------------------------------------------------------------------

    def publish_result(self, task_id: str, epoch: int, name: str, sha256: str) -> None:
        evidence, result = self._evidence(task_id, epoch, name), self._result(task_id)
        check_sha256(sha256)
        with store_errors(f"publish the result {result.path}"):
            there = self._bucket.find(key_of(result))
        if there is None:
            if self._publish(evidence, result, sha256):
                return
            there = self._records.found(result)  # somebody else was faster
        if self._records.digest(result, there) != sha256:
            raise _taken(result, "A result is published once. `agentq verify` shows what differs.")

    def _publish(self, evidence: ArtifactLocation, result: ArtifactLocation, sha256: str) -> bool:
        found = self._records.check(evidence, sha256)
        with store_errors(f"publish the result {result.path}"):
            if found.content is not None:
                kind = media_type(evidence.name, found.content[:_HEAD_BYTES])
                return self._bucket.create(key_of(result), found.content, kind)
            if not self._bucket.copy_unless_taken(found.key, key_of(result)):
                return False
            after = self._bucket.find(found.key)
            if after is None or after.tag != found.tag:  # what was copied was not what was checked
                self._bucket.delete([key_of(result)])
                raise evidence.damaged("was altered while it was copied")
        return True

    def result(self, task_id: str, sha256: str) -> bytes:
        return self._records.read(self._result(task_id), check_sha256(sha256))

    def open_result(self, task_id: str, sha256: str) -> BinaryIO:
        return self._records.open(self._result(task_id), check_sha256(sha256))

    # ---- the live log of an attempt -------------------------------------------------------------

    def live_append(
        self, task_id: str, epoch: int, data: bytes, *, keep_bytes: int = LIVE_KEEP_BYTES
    ) -> None:
        self._live.append(check_task_id(task_id), check_epoch(epoch), data, keep_bytes)

    def live_read(self, task_id: str, epoch: int, position: int, limit: int) -> LivePart:
        return self._live.read(check_task_id(task_id), check_epoch(epoch), position, limit)

    def live_end(self, task_id: str, epoch: int) -> None:
        self._live.end(check_task_id(task_id), check_epoch(epoch))

    # ---- the whole ------------------------------------------------------------------------------

    def remove(self, task_id: str) -> None:
        self._contexts.remove(check_task_id(task_id))
        self._live.remove(task_id)
        with store_errors(f"remove the files of task {task_id} below {self._root}"):
            files = [entry.key for entry in self._bucket.entries(f"{_ARTIFACTS}/{task_id}")]
            self._bucket.delete([key_of(self._result(task_id)), *files])

    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
        with store_errors(f"clean up below {self._root}"):
            probes = [
                entry.key for entry in self._bucket.entries(_PROBES) if entry.is_older(before_ms)
            ]
            self._bucket.delete(probes)
        swept = self._contexts.sweep(before_ms, is_wanted) + len(probes)
        return swept + self._sweep_uploads(before_ms)

    def _sweep_uploads(self, before_ms: int) -> int:
        """Remove large files that were sent whole and never got their name."""
        if before_ms - self._swept_ms < SWEEP_EVIDENCE_MS:
            return 0
        with store_errors(f"clean up below {self._root}"):
            left_over = [
                entry.key
                for entry in self._bucket.entries(_ARTIFACTS, _LISTED_MAX)
                if is_temporary(entry.key.rpartition("/")[2]) and entry.is_older(before_ms)
            ]
            self._bucket.delete(left_over)
        self._swept_ms = before_ms
        return len(left_over)

    def context_ref(self, task_id: str) -> str:
        return self._ref(self._contexts.place(check_task_id(task_id)))

    def artifact_ref(self, task_id: str, epoch: int, name: str) -> str:
        return self._ref(self._evidence(task_id, epoch, name))

    def result_ref(self, task_id: str) -> str:
        return self._ref(self._result(task_id))

    def attempt_dir(self, task_id: str, epoch: int) -> str:
        return f"{self._root}/{_ARTIFACTS}/{check_task_id(task_id)}/{check_epoch(epoch)}"

    def probe(self) -> None:
        """See the contract; also that nothing is overwritten, which not every store keeps to."""
        sample, folder = urandom(64), f"{_PROBES}/{urandom(12).hex()}"
        one, two = f"{folder}/one", f"{folder}/two"
        with store_errors(f"use the object store {self._root}"):
            try:
                worked = self._bucket.create(one, sample)
                worked = worked and self._bucket.copy_unless_taken(one, two)
                found = self._bucket.find(two)
                refused = not self._bucket.create(one, b"other")
                refused = refused and not self._bucket.copy_unless_taken(one, two)
            finally:
                self._bucket.delete([one, two])
        if not worked or found is None or found.content != sample:
            raise Unavailable(
                f"The object store {self._root} gave back other bytes than were written.",
                "Check the store, or choose another one.",
            )
        if not refused:
            raise Unavailable(
                f"The object store {self._root} overwrites what it was told to leave as it is:"
                " evidence would not be safe there.",
                _OVERWRITES,
            )

    def _evidence(self, task_id: str, epoch: int, name: str) -> ArtifactLocation:
        *folders, last = check_name(name)
        attempt = (_ARTIFACTS, check_task_id(task_id), check_epoch(epoch), *folders)
        return ArtifactLocation(task_id, self._root, attempt, last)

    def _result(self, task_id: str) -> ArtifactLocation:
        return ArtifactLocation(task_id, self._root, _RESULTS, f"{check_task_id(task_id)}.md")

    @staticmethod
    def _ref(place: ArtifactLocation) -> str:
        return f"{place.root}/{quote(key_of(place))}"


class _Measured:
    """Chunks of a source, counted and hashed as they go by."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._digest = new_digest()
        self.size = 0
        self.head = b""
        self.at_end = False

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._chunks, b"")
        if not chunk:
            self.at_end = True
            raise StopIteration
        self.size += len(chunk)
        if self.size > _SIZE_MAX:
            raise Invalid(
                f"A file in an object store has at most {_SIZE_MAX} bytes; this one has more.",
                "Store it in several files.",
            )
        self.head = self.head or chunk[:_HEAD_BYTES]
        self._digest.update(chunk)
        return chunk

    def take(self, count: int) -> bytes:
        """Everything, if that is at most `count` bytes; else the beginning of it."""
        taken: list[bytes] = []
        while self.size <= count and (chunk := next(self, b"")):
            taken.append(chunk)
        return taken[0] if len(taken) == 1 else b"".join(taken)


def _taken(place: ArtifactLocation, remedy: str) -> Conflict:
    return Conflict(
        f"Task {place.task_id}: the file {place.path} exists with other content. It was left as it"
        " is.",
        remedy,
    )
