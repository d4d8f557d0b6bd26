"""The context of a task as a file: staged before the submit commits, published after it.

A submit must not be acknowledged before its context is safe on disk, and the context must not be
visible before the submit is accepted. So it is first staged, durably, under a name of its own:

    tasks/.staged/<task id>.<sha256>.<token of the stager>

and moved to `tasks/<task id>.md` once the ledger has committed. The digest in the name lets any
process find the right one for a committed task, so a crash in between is repaired by whoever
reads the context next. The token makes each submitter the owner of its own file: two that race
for one id, even with the same content, can neither overwrite nor discard what the other staged.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain

from agentq.artifacts.files.disk import (
    NOT_WHAT_IT_SHOULD_BE,
    digest_of,
    disk_errors,
    exists,
    names_in,
    open_folder,
    open_plain,
    unavailable,
    write_new,
)
from agentq.artifacts.files.recorded import ArtifactLocation, is_there, read_recorded
from agentq.artifacts.files.removal import remove_old
from agentq.core.errors import AgentqError, Conflict, Damaged, Unavailable

_TASKS = ("tasks",)
_STAGED = ("tasks", ".staged")


class ContextFiles:
    """The folder `tasks` below `root`. Ids and digests were checked by the caller."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        #: What this object staged and neither published nor discarded yet.
        self._own: dict[tuple[str, str], list[str]] = {}

    def place(self, task_id: str) -> ArtifactLocation:
        return ArtifactLocation(task_id, self._root, _TASKS, f"{task_id}.md")

    def stage(self, task_id: str, data: bytes, sha256: str) -> None:
        name = f"{task_id}.{sha256}.{os.urandom(8).hex()}"
        with (
            disk_errors(f"keep the context of task {task_id} below {self._root}"),
            open_folder(self._root, _STAGED, create=True) as staged,
        ):
            write_new(staged, name, [data])
            try:
                os.fsync(staged)
            except BaseException:
                os.unlink(name, dir_fd=staged)
                raise
        with self._lock:
            self._own.setdefault((task_id, sha256), []).append(name)

    def publish(self, task_id: str, sha256: str) -> None:
        with self._lock:
            own = self._own.pop((task_id, sha256), [])
        try:
            self._publish(self.place(task_id), sha256, own)
        except AgentqError:
            with self._lock:  # so that it can be tried again
                self._own.setdefault((task_id, sha256), []).extend(own)
            raise

    def _publish(self, place: ArtifactLocation, sha256: str, own: list[str]) -> None:
        with (
            disk_errors(f"publish the context {place.path}"),
            open_folder(self._root, _STAGED, create=True) as staged,
            open_folder(self._root, _TASKS) as tasks,
        ):
            if not exists(tasks, place.name):
                _move(staged, tasks, place, sha256, own)
            elif not _has_digest(tasks, place.name, sha256):
                raise Conflict(
                    f"Task {place.task_id}: another file is at {place.path}; it was not"
                    " overwritten.",
                    "Move it away; the task's context takes its place when it is next read.",
                )
            for name in own:
                with suppress(FileNotFoundError):  # the one that was moved
                    os.unlink(name, dir_fd=staged)

    def discard(self, task_id: str, sha256: str) -> None:
        with self._lock:
            own = self._own.pop((task_id, sha256), [])
            if not own:
                return
            name = own.pop()
            if own:  # another thread's, with the same content
                self._own[(task_id, sha256)] = own
        with (
            disk_errors(f"drop the staged context of task {task_id}"),
            suppress(FileNotFoundError),
            open_folder(self._root, _STAGED) as staged,
        ):
            os.unlink(name, dir_fd=staged)

    def read(self, task_id: str, sha256: str) -> bytes:
        place = self.place(task_id)
        staged = self._staged_content(task_id, sha256) if not is_there(place) else None
        if staged is not None:
            with suppress(Unavailable, Conflict):  # a reader that may not write can still read
                self.publish(task_id, sha256)
            return staged
        try:
            return read_recorded(place, sha256)
        except Damaged:
            # Somebody's own file stands at our place: the very task file that was submitted, when
            # it was written into the shared folder. Ours could not be published and is good.
            staged = self._staged_content(task_id, sha256)
            if staged is None:
                raise
            return staged

    def _staged_content(self, task_id: str, sha256: str) -> bytes | None:
        try:
            with open_folder(self._root, _STAGED) as staged:
                names = list(_staged_names(staged, task_id, sha256))
        except OSError as error:
            if error.errno == errno.ENOENT or error.errno in NOT_WHAT_IT_SHOULD_BE:
                return None
            raise unavailable(error, f"look for the context of task {task_id}") from error
        for name in names:
            with suppress(Damaged):  # cut short by a crash of its writer, or published just now
                return read_recorded(ArtifactLocation(task_id, self._root, _STAGED, name), sha256)
        return None

    def remove(self, task_id: str) -> None:
        """Remove the context and everything staged for the task."""
        with disk_errors(f"remove the context of task {task_id}"):
            with suppress(FileNotFoundError), open_folder(self._root, _TASKS) as tasks:
                os.unlink(f"{task_id}.md", dir_fd=tasks)
            with suppress(FileNotFoundError), open_folder(self._root, _STAGED) as staged:
                for name in _staged_names(staged, task_id):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=staged)

    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
        """Remove what was staged before then and is not wanted; returns how many there were."""

        def is_left_over(name: str) -> bool:
            parts = name.rsplit(".", 2)
            return len(parts) != 3 or not is_wanted(parts[0], parts[1])

        return remove_old(self._root, _STAGED, before_ms, is_left_over)


def _move(staged: int, tasks: int, place: ArtifactLocation, sha256: str, own: list[str]) -> None:
    """Move a staged file to its place.

    A move is one step: after a power cut the file is at one of the two places, and either is good,
    so nothing needs to be synced. It could replace a file only if that appeared just now, and then
    another process has published the same committed content.
    """
    for name in chain(own, _staged_names(staged, place.task_id, sha256)):
        with suppress(FileNotFoundError):  # another process was faster with this one
            if _has_digest(staged, name, sha256):  # not cut short by a crash of its writer
                os.rename(name, place.name, src_dir_fd=staged, dst_dir_fd=tasks)
                return
    if not exists(tasks, place.name):
        raise place.damaged("is missing, and so is its staged copy")


def _staged_names(staged: int, task_id: str, sha256: str | None = None) -> Iterator[str]:
    for name in names_in(staged):
        parts = name.rsplit(".", 2)  # an id may have dots, a digest and a token have none
        if len(parts) == 3 and parts[0] == task_id and sha256 in (None, parts[1]):
            yield name


def _has_digest(folder: int, name: str, sha256: str) -> bool:
    file = open_plain(folder, name)
    try:
        return digest_of(file) == sha256
    finally:
        os.close(file)
