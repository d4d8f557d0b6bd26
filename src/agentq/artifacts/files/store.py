"""Artifacts as files below one folder, for one machine or a shared disk.

    tasks/<id>.md                  the context (see `contexts`)
    artifacts/<id>/<epoch>/<name>  the evidence of one attempt
    results/<id>.md                the accepted result: the same file as the evidence, linked
    live/<id>/<epoch>/…            what a running attempt says (see `live_logs`)

A file of the first three kinds is written under a temporary name beside its place, synced, and then
linked to its name: linking never replaces, so what is visible is complete and stays as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from agentq.artifacts.digests import Measured, sha256_of
from agentq.artifacts.files.contexts import ContextFiles
from agentq.artifacts.files.disk import (
    chunks_of,
    copy_by_link,
    digest_of,
    disk_errors,
    has_digest,
    link_unless_taken,
    open_folder,
    open_plain,
    write_new,
)
from agentq.artifacts.files.listing import list_files
from agentq.artifacts.files.live_logs import LiveLogs
from agentq.artifacts.files.recorded import RecordedFiles, is_there
from agentq.artifacts.files.removal import remove_file, remove_old, remove_tree
from agentq.artifacts.locations import ArtifactLocation
from agentq.artifacts.names import (
    SEGMENTS_MAX,
    check_sha256,
    is_temporary,
    media_type,
    temporary_name,
    uri_quoted,
)
from agentq.artifacts.sources import reading
from agentq.artifacts.store_base import ARTIFACTS, RESULTS, ArtifactStoreBase
from agentq.contracts.artifacts import FoundFile, Source, Stored, Uploaded, UploadLink
from agentq.core.errors import Refused, Unavailable
from agentq.private_files import FIXED_MODE, OTHERS

#: Below `artifacts`: the task, the attempt, and the folders that a name may have.
_DEPTH = 2 + SEGMENTS_MAX - 1


class FileArtifacts(ArtifactStoreBase):
    """Keeps `agentq.contracts.artifacts.ArtifactStore` in the folder `root`, made when needed."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        path = os.path.abspath(root)  # noqa: PTH100 (start-up: no pathlib for one call)
        uri = f"file://{uri_quoted(path)}"
        records = RecordedFiles()
        super().__init__(path, uri, records, ContextFiles(path, records), LiveLogs(path))

    # ---- the evidence of an attempt -------------------------------------------------------------

    def put(self, task_id: str, epoch: int, name: str, source: Source) -> Stored:
        place = self._evidence(task_id, epoch, name)
        with (
            reading(source) as chunks,
            disk_errors(f"store the file {place.path}"),
            open_folder(self._root, place.folders, create=True) as folder,
        ):
            temporary, written = temporary_name(), Measured(chunks)
            write_new(folder, temporary, written)
            if not link_unless_taken(folder, temporary, place.name):
                _keep_only_the_same(folder, place, written.sha256)
            os.fsync(folder)
        return Stored(name, written.size, written.sha256, media_type(name, written.head))

    def discard(self, task_id: str, epoch: int, name: str) -> None:
        place = self._evidence(task_id, epoch, name)
        with (
            disk_errors(f"remove the file {place.path}"),
            suppress(FileNotFoundError),
            open_folder(self._root, place.folders) as folder,
        ):
            os.unlink(place.name, dir_fd=folder)
            os.fsync(folder)

    def presign(self, task_id: str, epoch: int, name: str, seconds: int) -> str:
        place = self._evidence(task_id, epoch, name)
        raise Refused(
            f"There are no links to files in a folder: {place.path} is only for those who may read"
            " it there.",
            "`agentq artifacts get` reads it. Links need artifacts in s3://bucket/prefix.",
        )

    def upload_link(self, task_id: str, epoch: int, seconds: int) -> UploadLink:
        raise _no_uploads()

    def take_in(self, task_id: str, epoch: int, name: str, uploaded: Uploaded) -> Stored:
        raise _no_uploads()

    # ---- the result of a task -------------------------------------------------------------------

    def publish_result(
        self, task_id: str, epoch: int, name: str, sha256: str, *, again: bool = False
    ) -> None:
        evidence, result = self._evidence(task_id, epoch, name), self._result(task_id)
        if is_there(result) and not again:
            _same_or_conflict(result, check_sha256(sha256))
            return
        with self._records.open(evidence, check_sha256(sha256)) as file:
            if again:
                with disk_errors(f"remove the result {result.path}"):
                    remove_tree(self._root, result.folders, result.name)
            self._publish(file.fileno(), evidence, result, sha256)

    def _publish(
        self, file: int, evidence: ArtifactLocation, result: ArtifactLocation, sha256: str
    ) -> None:
        with (
            disk_errors(f"publish the result {result.path}"),
            open_folder(self._root, evidence.folders) as source,
            open_folder(self._root, result.folders, create=True) as results,
        ):
            temporary = temporary_name()
            if not copy_by_link(file, source, evidence.name, results, temporary):
                copied = Measured(chunks_of(file))
                write_new(results, temporary, copied)
                if copied.sha256 != sha256:
                    os.unlink(temporary, dir_fd=results)
                    raise evidence.damaged("was altered while it was copied")
            if not link_unless_taken(results, temporary, result.name):
                _same_or_conflict(result, sha256)
            os.fsync(results)

    # ---- the whole ------------------------------------------------------------------------------

    def listing(self) -> Iterator[FoundFile]:
        with disk_errors(f"list the files below {self._root}"):
            yield from list_files(self._root)

    def _remove_evidence(self, task_id: str) -> None:
        with disk_errors(f"remove the files of task {task_id} below {self._root}"):
            remove_file(self._root, RESULTS, f"{task_id}.md")
            remove_tree(self._root, (ARTIFACTS,), task_id)

    def _sweep_temporary(self, before_ms: int) -> int:
        swept = remove_old(self._root, (), before_ms, is_temporary)
        return swept + remove_old(self._root, RESULTS, before_ms, is_temporary)

    def _sweep_evidence(self, before_ms: int) -> int:
        return remove_old(self._root, (ARTIFACTS,), before_ms, is_temporary, depth=_DEPTH)

    def probe(self) -> None:
        sample = os.urandom(64)
        with (
            disk_errors(f"use the artifact folder {self._root}"),
            open_folder(self._root, (), create=True) as root,
        ):
            name = temporary_name()
            write_new(root, name, [sample])
            try:
                same = has_digest(root, name, sha256_of([sample]))
            finally:
                os.unlink(name, dir_fd=root)
        if not same:
            raise Unavailable(
                f"The artifact folder {self._root} gave back other bytes than were written.",
                "Check the disk, or choose another artifact folder.",
            )


def _keep_only_the_same(folder: int, place: ArtifactLocation, sha256: str) -> None:
    """Accept what has the name already if it is the same, and make it as lasting as ours."""
    file = open_plain(folder, place.name)
    try:
        if digest_of(file) != sha256:
            raise place.taken("Evidence is never overwritten: use another name.")
        _make_lasting(file)
    finally:
        os.close(file)


def _make_lasting(file: int) -> None:
    state = os.fstat(file)
    open_to_others = state.st_mode & OTHERS and state.st_uid == os.geteuid()
    if state.st_mode & 0o222 or open_to_others:  # an agent wrote it straight to its place
        os.fchmod(file, FIXED_MODE)
    os.fsync(file)


def _same_or_conflict(place: ArtifactLocation, sha256: str) -> None:
    with disk_errors(f"read the file {place.path}"), open_folder(place.root, place.folders) as at:
        if not has_digest(at, place.name, sha256):
            raise place.taken("A result is published once. `agentq verify` shows what differs.")
        file = open_plain(at, place.name)
        try:
            if os.fstat(file).st_uid == os.geteuid():
                _make_lasting(file)
        finally:
            os.close(file)


def _no_uploads() -> Refused:
    return Refused(
        "Nobody sends files by a link to a folder.",
        "Send them to the server. Links need artifacts in s3://bucket/prefix.",
    )
