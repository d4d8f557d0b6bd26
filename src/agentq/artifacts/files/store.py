"""Artifacts as files below one folder, for one machine or a shared disk.

    tasks/<id>.md                  the context (see `contexts`)
    artifacts/<id>/<epoch>/<name>  the evidence of one attempt
    results/<id>.md                the accepted result: the same file as the evidence, linked
    live/<id>/<epoch>/…            what a running attempt says (see `live`)

A file of the first three kinds is written under a temporary name beside its place, synced, and then
linked to its name: linking never replaces, so what is visible is complete and stays as it is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO

from agentq.artifacts.files.contexts import ContextFiles
from agentq.artifacts.files.disk import (
    chunks_of,
    copy_by_link,
    digest_of,
    disk_errors,
    is_temporary,
    link_unless_taken,
    new_digest,
    open_folder,
    open_plain,
    temporary_name,
    write_new,
)
from agentq.artifacts.files.live_logs import LiveLogs
from agentq.artifacts.files.recorded import ArtifactLocation, is_there, open_recorded, read_recorded
from agentq.artifacts.files.removal import remove_old, remove_tree
from agentq.artifacts.names import (
    SEGMENTS_MAX,
    check_epoch,
    check_name,
    check_sha256,
    check_task_id,
    file_uri,
    media_type,
)
from agentq.artifacts.sources import reading
from agentq.contracts.artifacts import (
    LIVE_KEEP_BYTES,
    SWEEP_EVIDENCE_MS,
    LivePart,
    Source,
    Stored,
)
from agentq.core.errors import AgentqError, Conflict, Refused, Unavailable

_ARTIFACTS = "artifacts"
_RESULTS = ("results",)
#: Below `artifacts`: the task, the attempt, and the folders that a name may have.
_DEPTH = 2 + SEGMENTS_MAX - 1


class FileArtifacts:
    """Keeps `agentq.contracts.artifacts.ArtifactStore` in the folder `root`, made when needed."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(root)  # noqa: PTH100 (start-up: no pathlib for one call)
        self._root_uri = file_uri(self._root)
        self._contexts = ContextFiles(self._root)
        self._live = LiveLogs(self._root)
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
        with (
            reading(source) as chunks,
            disk_errors(f"store the file {place.path}"),
            open_folder(self._root, place.folders, create=True) as folder,
        ):
            temporary = temporary_name()
            written = write_new(folder, temporary, chunks)
            if not link_unless_taken(folder, temporary, place.name):
                _keep_only_the_same(folder, place, written.sha256)
            os.fsync(folder)
        return Stored(name, written.size, written.sha256, media_type(name, written.head))

    def open(self, task_id: str, epoch: int, name: str, expected: Stored) -> BinaryIO:
        place = self._evidence(task_id, epoch, name)
        return os.fdopen(open_recorded(place, expected.sha256, expected.size), "rb")

    def read(self, task_id: str, epoch: int, name: str, sha256: str, size: int) -> bytes:
        return read_recorded(self._evidence(task_id, epoch, name), sha256, size)

    def check(self, task_id: str, epoch: int, name: str, sha256: str, size: int) -> str | None:
        try:
            os.close(open_recorded(self._evidence(task_id, epoch, name), sha256, size))
        except AgentqError as error:
            return error.cause
        return None

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

    # ---- the result of a task -------------------------------------------------------------------

    def publish_result(self, task_id: str, epoch: int, name: str, sha256: str) -> None:
        evidence, result = self._evidence(task_id, epoch, name), self._result(task_id)
        if is_there(result):
            _same_or_conflict(result, check_sha256(sha256))
            return
        file = open_recorded(evidence, check_sha256(sha256))
        try:
            self._publish(file, evidence, result, sha256)
        finally:
            os.close(file)

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
                copied = write_new(results, temporary, chunks_of(file))
                if copied.sha256 != sha256:
                    os.unlink(temporary, dir_fd=results)
                    raise evidence.damaged("was altered while it was copied")
            if not link_unless_taken(results, temporary, result.name):
                _same_or_conflict(result, sha256)
            os.fsync(results)

    def result(self, task_id: str, sha256: str) -> bytes:
        return read_recorded(self._result(task_id), check_sha256(sha256))

    def open_result(self, task_id: str, sha256: str) -> BinaryIO:
        return os.fdopen(open_recorded(self._result(task_id), check_sha256(sha256)), "rb")

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
        with disk_errors(f"remove the files of task {task_id} below {self._root}"):
            with suppress(FileNotFoundError), open_folder(self._root, _RESULTS) as results:
                os.unlink(f"{task_id}.md", dir_fd=results)
            with suppress(FileNotFoundError), open_folder(self._root, (_ARTIFACTS,)) as all_tasks:
                remove_tree(all_tasks, task_id)

    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
        swept = self._contexts.sweep(before_ms, is_wanted) + sum(
            remove_old(self._root, folders, before_ms, is_temporary) for folders in ((), _RESULTS)
        )
        if before_ms - self._swept_ms >= SWEEP_EVIDENCE_MS:
            evidence = (_ARTIFACTS,)
            swept += remove_old(self._root, evidence, before_ms, is_temporary, depth=_DEPTH)
            self._swept_ms = before_ms
        return swept

    def context_ref(self, task_id: str) -> str:
        return f"{self._root_uri}/tasks/{check_task_id(task_id)}.md"

    def artifact_ref(self, task_id: str, epoch: int, name: str) -> str:
        return file_uri(self._evidence(task_id, epoch, name).path)

    def result_ref(self, task_id: str) -> str:
        return f"{self._root_uri}/results/{check_task_id(task_id)}.md"

    def attempt_dir(self, task_id: str, epoch: int) -> str:
        return f"{self._root}/{_ARTIFACTS}/{check_task_id(task_id)}/{check_epoch(epoch)}"

    def probe(self) -> None:
        sample = os.urandom(64)
        with (
            disk_errors(f"use the artifact folder {self._root}"),
            open_folder(self._root, (), create=True) as root,
        ):
            name = temporary_name()
            written = write_new(root, name, [sample])
            try:
                file = open_plain(root, name)
                try:
                    same = digest_of(file) == written.sha256
                finally:
                    os.close(file)
            finally:
                os.unlink(name, dir_fd=root)
        if not same:
            raise Unavailable(
                f"The artifact folder {self._root} gave back other bytes than were written.",
                "Check the disk, or choose another artifact folder.",
            )

    def _evidence(self, task_id: str, epoch: int, name: str) -> ArtifactLocation:
        *folders, last = check_name(name)
        attempt = (_ARTIFACTS, check_task_id(task_id), check_epoch(epoch), *folders)
        return ArtifactLocation(task_id, self._root, attempt, last)

    def _result(self, task_id: str) -> ArtifactLocation:
        return ArtifactLocation(task_id, self._root, _RESULTS, f"{check_task_id(task_id)}.md")


def _keep_only_the_same(folder: int, place: ArtifactLocation, sha256: str) -> None:
    """Accept what has the name already if it is the same, and make it as lasting as ours."""
    file = open_plain(folder, place.name)
    try:
        if digest_of(file) != sha256:
            raise _taken(place, "Evidence is never overwritten: use another name.")
        mode = stat.S_IMODE(os.fstat(file).st_mode)
        if mode & 0o222:  # an agent wrote it straight to its place
            os.fchmod(file, mode & ~0o222)
        os.fsync(file)
    finally:
        os.close(file)


def _same_or_conflict(place: ArtifactLocation, sha256: str) -> None:
    with disk_errors(f"read the file {place.path}"), open_folder(place.root, place.folders) as at:
        file = open_plain(at, place.name)
        try:
            if digest_of(file) != sha256:
                raise _taken(
                    place, "A result is published once. `agentq verify` shows what differs."
                )
        finally:
            os.close(file)


def _taken(place: ArtifactLocation, remedy: str) -> Conflict:
    return Conflict(
        f"Task {place.task_id}: the file {place.path} exists with other content. It was left as it"
        " is.",
        remedy,
    )
