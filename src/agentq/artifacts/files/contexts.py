"""The context of a task as a file: staged under a name of its own, and moved to its place.

tasks/.staged/<task id>.<sha256>.<token of the stager>
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain

from agentq.artifacts.files.disk import (
    NOT_WHAT_IT_SHOULD_BE,
    disk_errors,
    exists,
    has_digest,
    open_folder,
    unavailable,
    write_new,
)
from agentq.artifacts.files.recorded import is_there
from agentq.artifacts.files.removal import remove_file, remove_old, remove_tree
from agentq.artifacts.locations import ArtifactLocation
from agentq.artifacts.staged_contexts import EDITED, TASKS, StagedContext, StagedContexts, occupied
from agentq.core.errors import Damaged

_STAGED = ("tasks", ".staged")


class ContextFiles(StagedContexts):
    def _write(self, task_id: str, sha256: str, token: str, data: bytes) -> StagedContext:
        name = f"{task_id}.{sha256}.{token}"
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
        return StagedContext(name)

    def _publish(self, place: ArtifactLocation, sha256: str, own: list[StagedContext]) -> None:
        names = [each.name for each in own]
        with (
            disk_errors(f"publish the context {place.path}"),
            open_folder(self._root, _STAGED, create=True) as staged,
            open_folder(self._root, place.folders, create=True) as tasks,
        ):
            if not exists(tasks, place.name):
                _move(staged, tasks, place, sha256, names)
            elif not has_digest(tasks, place.name, sha256):
                raise occupied(place)
            for name in names:
                with suppress(FileNotFoundError):  # the one that was moved
                    os.unlink(name, dir_fd=staged)

    def _drop(self, task_id: str, staged: StagedContext) -> None:
        with disk_errors(f"drop the staged context of task {task_id}"):
            remove_file(self._root, _STAGED, staged.name)

    def _is_there(self, place: ArtifactLocation) -> bool:
        return is_there(place)

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
                place = ArtifactLocation(task_id, self._root, _STAGED, name)
                return self._records.read(place, sha256)
        return None

    def remove(self, task_id: str) -> None:
        with disk_errors(f"remove the context of task {task_id}"):
            remove_file(self._root, TASKS, f"{task_id}.md")
            remove_tree(self._root, EDITED, task_id)
            with suppress(FileNotFoundError), open_folder(self._root, _STAGED) as staged:
                for name in _staged_names(staged, task_id):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=staged)

    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
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
            if has_digest(staged, name, sha256):  # not cut short by a crash of its writer
                os.rename(name, place.name, src_dir_fd=staged, dst_dir_fd=tasks)
                return
    if not exists(tasks, place.name):
        raise place.damaged("is missing, and so is its staged copy")


def _staged_names(staged: int, task_id: str, sha256: str | None = None) -> Iterator[str]:
    for name in os.listdir(staged):
        parts = name.rsplit(".", 2)  # an id may have dots, a digest and a token have none
        if len(parts) == 3 and parts[0] == task_id and sha256 in (None, parts[1]):
            yield name
