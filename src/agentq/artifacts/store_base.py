"""What all artifact stores do alike: check ids, names and limits, and make locations of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import BinaryIO, Protocol

from agentq.artifacts.locations import ArtifactLocation, RecordedContent
from agentq.artifacts.names import check_epoch, check_name, check_sha256, check_task_id, uri_quoted
from agentq.artifacts.staged_contexts import StagedContexts, context_place
from agentq.contracts.artifacts import LIVE_KEEP_BYTES, SWEEP_EVIDENCE_MS, LivePart, Stored
from agentq.core.errors import AgentqError, Invalid, NotFound, Unavailable

ARTIFACTS = "artifacts"
RESULTS = ("results",)
#: A live log that keeps less could not hold a line at all.
_KEEP_MIN = 1024
_LIMIT_MAX = 1 << 24


class LiveLogStore(Protocol):
    """The live logs of a store. Ids, epochs and limits were checked by the caller."""

    def append(
        self, task_id: str, epoch: str, data: bytes, keep_bytes: int, position: int = -1
    ) -> int: ...

    def read(self, task_id: str, epoch: str, position: int, limit: int) -> LivePart | None:
        """None if there is no such log."""
        ...

    def end(self, task_id: str, epoch: str) -> None: ...

    def remove(self, task_id: str) -> None: ...


def overtaken(task_id: str) -> Unavailable:
    return Unavailable(
        f"The live log of task {task_id} is written faster than it can be read.", "Try again."
    )


class ArtifactStoreBase(ABC):
    """The part of `agentq.contracts.artifacts.ArtifactStore` that does not depend on the place."""

    def __init__(
        self,
        root: str,
        root_uri: str,
        records: RecordedContent,
        contexts: StagedContexts,
        live: LiveLogStore,
    ) -> None:
        self._root = root
        self._root_uri = root_uri
        self._records = records
        self._contexts = contexts
        self._live = live
        self._swept_ms = 0

    # ---- the context of a task ------------------------------------------------------------------

    def stage_context(self, task_id: str, data: bytes) -> Stored:
        sha256 = self._contexts.stage(check_task_id(task_id), data)
        return Stored(f"{task_id}.md", len(data), sha256, "text/markdown")

    def publish_context(self, task_id: str, sha256: str, *, edited: bool = False) -> None:
        self._contexts.publish(check_task_id(task_id), check_sha256(sha256), edited=edited)

    def discard_context(self, task_id: str, sha256: str) -> None:
        self._contexts.discard(check_task_id(task_id), check_sha256(sha256))

    def context(self, task_id: str, sha256: str, *, edited: bool = False) -> bytes:
        return self._contexts.read(check_task_id(task_id), check_sha256(sha256), edited=edited)

    # ---- recorded files -------------------------------------------------------------------------

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

    def result(self, task_id: str, sha256: str) -> bytes:
        return self._records.read(self._result(task_id), check_sha256(sha256))

    def open_result(self, task_id: str, sha256: str) -> BinaryIO:
        return self._records.open(self._result(task_id), check_sha256(sha256))

    # ---- the live log of an attempt -------------------------------------------------------------

    def live_append(
        self,
        task_id: str,
        epoch: int,
        data: bytes,
        *,
        keep_bytes: int = LIVE_KEEP_BYTES,
        position: int = -1,
    ) -> int:
        attempt = check_task_id(task_id), check_epoch(epoch)
        if keep_bytes < _KEEP_MIN:
            raise Invalid(
                f"A live log keeps at least {_KEEP_MIN} bytes; got {keep_bytes}.",
                "Allow for more output.",
            )
        return self._live.append(*attempt, data, keep_bytes, position)

    def live_read(self, task_id: str, epoch: int, position: int, limit: int) -> LivePart:
        attempt = check_task_id(task_id), check_epoch(epoch)
        if position < 0 or not 1 <= limit <= _LIMIT_MAX:
            raise Invalid(
                f"A live log is read from a position of at least 0, 1 to {_LIMIT_MAX} bytes at a"
                f" time; got position {position} and limit {limit}.",
                "Go on from the position that the last read gave.",
            )
        part = self._live.read(*attempt, position, limit)
        if part is None:
            raise NotFound(
                f"Attempt {epoch} of {task_id} has no live log.",
                f"`agentq logs {task_id}` shows what it left.",
            )
        return part

    def live_end(self, task_id: str, epoch: int) -> None:
        self._live.end(check_task_id(task_id), check_epoch(epoch))

    # ---- the whole ------------------------------------------------------------------------------

    def remove(self, task_id: str) -> None:
        self._contexts.remove(check_task_id(task_id))
        self._live.remove(task_id)
        self._remove_evidence(task_id)

    @abstractmethod
    def _remove_evidence(self, task_id: str) -> None:
        """Remove the files of all attempts, and the result."""

    def sweep(self, before_ms: int, is_wanted: Callable[[str, str], bool]) -> int:
        swept = self._sweep_temporary(before_ms) + self._contexts.sweep(before_ms, is_wanted)
        if before_ms - self._swept_ms >= SWEEP_EVIDENCE_MS:
            swept += self._sweep_evidence(before_ms)
            self._swept_ms = before_ms
        return swept

    @abstractmethod
    def _sweep_temporary(self, before_ms: int) -> int:
        """Remove what is unfinished outside `artifacts`; returns how many files."""

    @abstractmethod
    def _sweep_evidence(self, before_ms: int) -> int:
        """Remove unfinished evidence of all tasks; returns how many files."""

    def context_ref(self, task_id: str, edited: str = "") -> str:
        return f"{self._root_uri}/{context_place(self._root, check_task_id(task_id), edited).key}"

    def artifact_ref(self, task_id: str, epoch: int, name: str) -> str:
        return f"{self._root_uri}/{uri_quoted(self._evidence(task_id, epoch, name).key)}"

    def result_ref(self, task_id: str) -> str:
        return f"{self._root_uri}/results/{check_task_id(task_id)}.md"

    def attempt_dir(self, task_id: str, epoch: int) -> str:
        return f"{self._root}/{ARTIFACTS}/{check_task_id(task_id)}/{check_epoch(epoch)}"

    def _evidence(self, task_id: str, epoch: int, name: str) -> ArtifactLocation:
        *folders, last = check_name(name)
        attempt = (ARTIFACTS, check_task_id(task_id), check_epoch(epoch), *folders)
        return ArtifactLocation(task_id, self._root, attempt, last)

    def _result(self, task_id: str) -> ArtifactLocation:
        return ArtifactLocation(task_id, self._root, RESULTS, f"{check_task_id(task_id)}.md")
