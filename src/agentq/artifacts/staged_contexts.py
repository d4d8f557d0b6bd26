"""The context of a task: staged before the submit commits, published after it.

A submit must not be acknowledged before its context is durable, and the context must not be visible
before the submit is accepted. So it is first staged, durably, under a name of its own with the task
id, the digest and a token of the stager, and appears at `tasks/<task id>.md` once the ledger has
committed. The digest in the name lets any process find the right one for a committed task, so a
crash in between is repaired by whoever reads the context next. The token makes each submitter the
owner of its own file: two that race for one id, even with the same content, can neither overwrite
nor discard what the other staged.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from agentq.artifacts.digests import sha256_of
from agentq.artifacts.locations import ArtifactLocation, RecordedContent
from agentq.core.errors import AgentqError, Conflict, Damaged, Unavailable

TASKS = ("tasks",)
#: The contexts that edits brought: `tasks/.edited/<task id>/<sha256>.md`. No id begins with a dot.
EDITED = ("tasks", ".edited")


class StagedContext(NamedTuple):
    """A staged context: the name of its file or the key of its object."""

    name: str
    #: Its content, where publishing needs it.
    data: bytes = b""


class StagedContexts(ABC):
    """The contexts of one store. Ids and digests were checked by the caller."""

    def __init__(self, root: str, records: RecordedContent) -> None:
        self._root = root
        self._records = records
        self._lock = threading.Lock()
        #: What this object staged and neither published nor discarded yet.
        self._own: dict[tuple[str, str], list[StagedContext]] = {}

    def stage(self, task_id: str, data: bytes) -> str:
        """Keep a context durably; returns its digest."""
        sha256 = sha256_of([data])
        staged = self._write(task_id, sha256, os.urandom(8).hex(), data)
        with self._lock:
            self._own.setdefault((task_id, sha256), []).append(staged)
        return sha256

    def publish(self, task_id: str, sha256: str, *, edited: bool = False) -> None:
        with self._lock:
            own = self._own.pop((task_id, sha256), [])
        try:
            self._publish(self._place(task_id, sha256 if edited else ""), sha256, own)
        except AgentqError:
            with self._lock:  # so that it can be tried again
                self._own.setdefault((task_id, sha256), []).extend(own)
            raise

    def discard(self, task_id: str, sha256: str) -> None:
        with self._lock:
            own = self._own.pop((task_id, sha256), [])
            if not own:
                return
            staged = own.pop()
            if own:  # another thread's, with the same content
                self._own[(task_id, sha256)] = own
        self._drop(task_id, staged)

    def read(self, task_id: str, sha256: str, *, edited: bool = False) -> bytes:
        place = self._place(task_id, sha256 if edited else "")
        try:
            return self._records.read(place, sha256)
        except Damaged:
            staged = self._staged_content(task_id, sha256)
            missing = not self._is_there(place)
            if staged is None and missing:
                raise
        if staged is None:  # published while we looked
            return self._records.read(place, sha256)
        if missing:
            with suppress(Unavailable, Conflict):  # a reader that may not write can still read
                self.publish(task_id, sha256, edited=edited)
        # Else somebody's own file stands at our place: the very task file that was submitted, when
        # it was written into the shared folder. Ours could not be published and is good.
        return staged

    @abstractmethod
    def _is_there(self, place: ArtifactLocation) -> bool:
        """Whether anything is at that place, right or wrong."""

    @abstractmethod
    def _staged_content(self, task_id: str, sha256: str) -> bytes | None:
        """Return what is staged with this digest, if there is any."""

    @abstractmethod
    def remove(self, task_id: str) -> None:
        """Remove the contexts and everything staged for the task."""

    @abstractmethod
    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
        """Remove what was staged before then and is not wanted; returns how many there were."""

    @abstractmethod
    def _write(self, task_id: str, sha256: str, token: str, data: bytes) -> StagedContext: ...

    @abstractmethod
    def _publish(self, place: ArtifactLocation, sha256: str, own: list[StagedContext]) -> None: ...

    @abstractmethod
    def _drop(self, task_id: str, staged: StagedContext) -> None: ...

    def _place(self, task_id: str, edited: str = "") -> ArtifactLocation:
        return context_place(self._root, task_id, edited)


def context_place(root: str, task_id: str, edited: str = "") -> ArtifactLocation:
    """Where the context of a task belongs, or the one with this digest that an edit brought."""
    if edited:
        return ArtifactLocation(task_id, root, (*EDITED, task_id), f"{edited}.md")
    return ArtifactLocation(task_id, root, TASKS, f"{task_id}.md")


def occupied(place: ArtifactLocation) -> Conflict:
    return Conflict(
        f"Task {place.task_id}: another file is at {place.path}; it was not overwritten.",
        "Move it away; the task's context takes its place when it is next read.",
    )
