"""Artifacts as objects of S3, or of a store that behaves alike, for many machines.

    tasks/<id>.md                  the context (see `contexts`)
    artifacts/<id>/<epoch>/<name>  the evidence of one attempt
    results/<id>.md                the accepted result: a copy of the evidence
    live/<id>/<epoch>/…            what a running attempt says (see `live_logs`)

An object of the first three kinds is created only if nothing has its name (`If-None-Match: *`), and
appears whole or not at all: what is visible is complete and stays as it is. A large one is first
sent in parts to a name of its own, `artifacts/<id>/<epoch>/.tmp-…`, and then copied inside the
store under the same condition, because the parts of an upload cannot be given it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from os import urandom

from agentq.artifacts.digests import HEAD_BYTES, Measured
from agentq.artifacts.locations import ArtifactLocation
from agentq.artifacts.names import (
    check_sha256,
    is_temporary,
    is_temporary_name,
    media_type,
    temporary_name,
)
from agentq.artifacts.s3.bucket import STEP_BYTES, Bucket, Found
from agentq.artifacts.s3.contexts import ContextObjects
from agentq.artifacts.s3.errors import store_errors
from agentq.artifacts.s3.live_logs import LiveObjects
from agentq.artifacts.s3.recorded import RecordedObjects
from agentq.artifacts.sources import reading
from agentq.artifacts.staged_contexts import EDITED
from agentq.artifacts.store_base import ARTIFACTS, RESULTS, ArtifactStoreBase
from agentq.contracts.artifacts import FoundFile, Source, Stored, Uploaded, UploadLink
from agentq.core.errors import AgentqError, Conflict, Invalid, Unavailable

_PROBES = "probes"
#: S3 copies no larger objects.
_SIZE_MAX = 5 << 30
#: S3 signs for no longer.
_LINK_SECONDS_MAX = 7 * 24 * 3600
#: Evidence of all tasks may be very many files.
_LISTED_MAX = 100_000_000

_OVERWRITES = "Use a store that honours `If-None-Match` for writing, for copies too, as S3 does."


class ObjectArtifacts(ArtifactStoreBase):
    """Keeps `agentq.contracts.artifacts.ArtifactStore` below `root_url`, like `s3://bucket/prefix`.

    `options` may name the `endpoint` and the `region`. Credentials come from the environment, as
    for every program that uses S3. The bucket must be there.
    """

    def __init__(self, root_url: str, options: Mapping[str, str] | None = None) -> None:
        bucket = Bucket(root_url, options or {})
        self._bucket = bucket
        self._objects = RecordedObjects(bucket)
        url = bucket.url
        super().__init__(url, url, self._objects, ContextObjects(bucket), LiveObjects(bucket))

    # ---- the evidence of an attempt -------------------------------------------------------------

    def put(self, task_id: str, epoch: int, name: str, source: Source) -> Stored:
        place = self._evidence(task_id, epoch, name)
        with reading(source) as chunks:
            measured = Measured(_limited(chunks))
            begin, is_all = _taken(measured, STEP_BYTES)
            kind = media_type(name, measured.head)
            if is_all:
                with store_errors(f"store the file {place.path}"):
                    is_new = self._bucket.create(place.key, begin, kind)
            else:
                is_new = self._put_large(place, kind, begin, measured)
        if not is_new:
            self._keep_only_the_same(place, measured)
        return Stored(name, measured.size, measured.sha256, kind)

    def _put_large(self, place: ArtifactLocation, kind: str, begin: bytes, rest: Measured) -> bool:
        """Send the file in parts, then give it its name; returns whether it got the name."""
        doing = f"store the file {place.path}"
        with store_errors(doing):
            if self._bucket.find(place.key) is not None:
                for _ in rest:  # only to know whether it is the same
                    pass
                return False
        temporary = "/".join((*place.folders[:3], temporary_name()))
        try:
            with store_errors(doing):
                self._bucket.upload(temporary, chain([begin], rest), kind)
                return self._bucket.copy_unless_taken(temporary, place.key)
        finally:
            with suppress(AgentqError), store_errors(doing):  # else it is swept away
                self._bucket.delete([temporary])

    def _keep_only_the_same(self, place: ArtifactLocation, measured: Measured) -> None:
        """Accept what has the name already if it is the same."""
        with store_errors(f"read the file {place.path}"):
            found = self._bucket.find(place.key)
        if found is None:
            raise Conflict(
                f"Cannot store the file {place.path}: a folder is in the way, or somebody removes"
                " the file. Nothing was changed.",
                "Use another name.",
            )
        same_size = found.size == measured.size
        if not same_size or self._objects.digest(place, found) != measured.sha256:
            raise place.taken("Evidence is never overwritten: use another name.")

    def discard(self, task_id: str, epoch: int, name: str) -> None:
        place = self._evidence(task_id, epoch, name)
        with store_errors(f"remove the file {place.path}"):
            self._bucket.delete([place.key])

    def presign(self, task_id: str, epoch: int, name: str, seconds: int) -> str:
        place = self._evidence(task_id, epoch, name)
        if not 1 <= seconds <= _LINK_SECONDS_MAX:
            raise Invalid(
                f"A link is good for 1 second to 7 days; got {seconds} seconds.",
                "Make a new one when it has run out.",
            )
        with store_errors(f"sign a link to {place.path}"):
            return self._bucket.signed(place.key, seconds)

    def upload_link(self, task_id: str, epoch: int, seconds: int) -> UploadLink:
        temporary = temporary_name()
        with store_errors(f"sign a link for a file of task {task_id}"):
            url = self._bucket.signed(self._temporary(task_id, epoch, temporary), seconds, "PUT")
        return UploadLink(url, temporary)

    def _temporary(self, task_id: str, epoch: int, temporary: str) -> str:
        if not is_temporary_name(temporary):
            raise Invalid(f"{temporary[:80]!r} is no name that a link was given for.")
        return "/".join((*self._evidence(task_id, epoch, "file").folders[:3], temporary))

    def take_in(self, task_id: str, epoch: int, name: str, uploaded: Uploaded) -> Stored:
        place = self._evidence(task_id, epoch, name)
        key = self._temporary(task_id, epoch, uploaded.temporary)
        doing = f"store the file {place.path}"
        try:
            with store_errors(doing):
                found = self._bucket.find(key)
            if found is None or found.size != uploaded.size or found.size > _SIZE_MAX:
                raise _not_what_was_said(place, "there is no such file, or it has another size")
            measured = Measured(self._objects.chunks(place, found))
            for _ in measured:
                continue
            if measured.sha256 != uploaded.sha256:
                raise _not_what_was_said(place, "its content is another")
            kind = media_type(name, measured.head)
            if not self._named(found, place, kind):
                self._keep_only_the_same(place, measured)
            return Stored(name, measured.size, measured.sha256, kind)
        finally:
            with suppress(AgentqError), store_errors(doing):  # else it is swept away
                self._bucket.delete([key])

    def _named(self, found: Found, place: ArtifactLocation, kind: str) -> bool:
        """Give an object that was checked its name; returns whether it got it. The link may be used
        again meanwhile, so what was copied must be what was checked."""
        with store_errors(f"store the file {place.path}"):
            if found.content is not None:
                return self._bucket.create(place.key, found.content, kind)
            if not self._bucket.copy_unless_taken(found.key, place.key):
                return False
            after = self._bucket.find(found.key)
            if after is None or after.tag != found.tag:
                self._bucket.delete([place.key])
                raise _not_what_was_said(place, "it was altered while it was checked")
        return True

    # ---- the result of a task -------------------------------------------------------------------

    def publish_result(
        self, task_id: str, epoch: int, name: str, sha256: str, *, again: bool = False
    ) -> None:
        evidence, result = self._evidence(task_id, epoch, name), self._result(task_id)
        check_sha256(sha256)
        if again:
            self._objects.check(evidence, sha256)
            with store_errors(f"remove the result {result.path}"):
                self._bucket.delete([result.key])
        with store_errors(f"publish the result {result.path}"):
            there = self._bucket.find(result.key)
        if there is None:
            if self._publish(evidence, result, sha256):
                return
            there = self._objects.found(result)  # somebody else was faster
        if self._objects.digest(result, there) != sha256:
            raise result.taken("A result is published once. `agentq verify` shows what differs.")

    def _publish(self, evidence: ArtifactLocation, result: ArtifactLocation, sha256: str) -> bool:
        found = self._objects.check(evidence, sha256)
        with store_errors(f"publish the result {result.path}"):
            if found.content is not None:
                kind = media_type(evidence.name, found.content[:HEAD_BYTES])
                return self._bucket.create(result.key, found.content, kind)
            if not self._bucket.copy_unless_taken(found.key, result.key):
                return False
            after = self._bucket.find(found.key)
            if after is None or after.tag != found.tag:  # what was copied was not what was checked
                self._bucket.delete([result.key])
                raise evidence.damaged("was altered while it was copied")
        return True

    # ---- the whole ------------------------------------------------------------------------------

    def listing(self) -> Iterator[FoundFile]:
        with store_errors(f"list the files below {self._root}"):
            for folder in (ARTIFACTS, "/".join(RESULTS), "/".join(EDITED)):
                for entry in self._bucket.entries(folder, _LISTED_MAX):
                    if not is_temporary(entry.key.rpartition("/")[2]):
                        yield FoundFile(entry.key, entry.size)

    def _remove_evidence(self, task_id: str) -> None:
        with store_errors(f"remove the files of task {task_id} below {self._root}"):
            files = [entry.key for entry in self._bucket.entries(f"{ARTIFACTS}/{task_id}")]
            self._bucket.delete([self._result(task_id).key, *files])

    def _sweep_temporary(self, before_ms: int) -> int:
        with store_errors(f"clean up below {self._root}"):
            entries = self._bucket.entries(_PROBES)
            probes = [entry.key for entry in entries if entry.is_older(before_ms)]
            self._bucket.delete(probes)
        return len(probes)

    def _sweep_evidence(self, before_ms: int) -> int:
        """Remove large files that were sent whole and never got their name."""
        with store_errors(f"clean up below {self._root}"):
            left_over = [
                entry.key
                for entry in self._bucket.entries(ARTIFACTS, _LISTED_MAX)
                if is_temporary(entry.key.rpartition("/")[2]) and entry.is_older(before_ms)
            ]
            self._bucket.delete(left_over)
        return len(left_over)

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


def _not_what_was_said(place: ArtifactLocation, why: str) -> Conflict:
    return Conflict(
        f"The file for {place.path} did not come as it was promised: {why}. Nothing was stored.",
        "Send it again.",
    )


def _limited(chunks: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _SIZE_MAX:
            raise Invalid(
                f"A file in an object store has at most {_SIZE_MAX} bytes; this one has more.",
                "Store it in several files.",
            )
        yield chunk


def _taken(chunks: Measured, count: int) -> tuple[bytes, bool]:
    """Return everything if that is at most `count` bytes, else the beginning; and whether it is
    everything."""
    taken: list[bytes] = []
    for chunk in chunks:
        taken.append(chunk)
        if chunks.size > count:
            break
    data = taken[0] if len(taken) == 1 else b"".join(taken)
    return data, chunks.size <= count
