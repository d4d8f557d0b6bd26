"""What an attempt leaves behind: files taken in without trusting a name, a link or a size, and
stored in as few transactions as can be."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agentq.contracts.artifacts import Stored
from agentq.core.errors import Conflict, Invalid, Stale, Unavailable
from agentq.worker.output import Recorder
from agentq.worker.redaction import without_secrets

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.client.client import Client

#: The name of the file that becomes the result of the task.
RESULT = "result.md"

FILES_MAX = 200
FILE_BYTES_MAX = 256 * 1024 * 1024
RESULT_BYTES_MAX = 16 * 1024 * 1024
REDACT_BYTES_MAX = 16 * 1024 * 1024


class AttemptEvidence:
    """Stores the evidence of one attempt; `warn` is called for each file that it cannot store."""

    def __init__(self, queue: Client, claim: Claim, warn: Callable[[str, str], None]) -> None:
        self._queue = queue
        self._claim = claim
        self._warn = warn
        #: Logs that are to be stored with what comes next.
        self._logs: list[tuple[str, Recorder]] = []
        #: Whether all logs have been stored. The output of a lost claim stays in the live log.
        self.complete = True
        #: What the report hands in.
        self.result: Stored | bytes | None = None

    def log(self, recorder: Recorder, name: str) -> None:
        """Store what was recorded, with what comes next: before the live log goes on."""
        self._logs.append((name, recorder))
        if recorder.error:
            self._warn("stream", f"not all output was kept: {recorder.error}")

    def store(self, *more: tuple[str, bytes]) -> None:
        """Store the logs and these files in one transaction."""
        logs, self._logs = self._logs, []
        files: list[tuple[str, bytes | BinaryIO]] = []
        try:
            files += [(name, log) for name, each in logs if (log := each.finished()) is not None]
            files += more
            if files:
                self._note_result(self._claim.put_many(files))
        except (Invalid, Conflict):
            # The agent itself has used one of these names (`agentq artifacts put`).
            for name, recorder in logs:
                if (log := recorder.finished()) is not None:
                    with log:
                        self.keep(name, log)
            for name, content in more:
                self.keep(name, content)
        except (Unavailable, Stale, OSError) as error:
            self.complete = self.complete and not logs
            if not self._claim.lost:
                names = ", ".join(name for name, _ in (*logs, *more))
                self._warn("collect", f"{names} could not be kept: {error}")

    def keep(self, name: str, content: bytes | BinaryIO) -> None:
        """Store one file, if it can be."""
        try:
            self._note_result([self._claim.put(name, content)])
        except (Invalid, Conflict) as error:
            # A name that cannot be, or that the agent has used already by `agentq artifacts put`.
            self._warn("collect", f"{name} was not taken: {error}")
            if name == RESULT:
                stored = self._queue.artifacts_of(self._claim.id)
                self._note_result([each for each in stored if each.epoch == self._claim.epoch])

    def _note_result(self, stored: Sequence[Stored]) -> None:
        """Remember the stored result file, which the report refers to."""
        self.result = next((each for each in stored if each.name == RESULT), self.result)


def storable(file: BinaryIO, secrets: Collection[str]) -> bytes | BinaryIO | None:
    """A left file as it may be stored; None if it is large and holds a secret we know.

    Large ones are searched in pieces that overlap, and stored as they are or not at all.
    """
    head = file.read(REDACT_BYTES_MAX + 1)
    if len(head) <= REDACT_BYTES_MAX:
        return without_secrets(head, secrets)
    known = [secret.encode("utf-8", "surrogateescape") for secret in secrets]
    overlap = max(map(len, known), default=1)
    piece = head
    while piece:
        if any(secret in piece for secret in known):
            return None
        more = file.read(REDACT_BYTES_MAX)
        piece = piece[-overlap:] + more if more else b""
    file.seek(0)
    return file


def left_in(folder: Path) -> Iterator[tuple[str, BinaryIO | str]]:
    """The files below a folder by name, each open for reading, or why it is not taken.

    Links are never followed. Close each file before the next.
    """
    count = 0
    for parent, folders, files in os.walk(folder, followlinks=False):
        folders.sort()
        for leaf in sorted(files):
            path = Path(parent) / leaf
            name = path.relative_to(folder).as_posix()
            count += 1
            if count > FILES_MAX:
                yield name, f"more than {FILES_MAX} files were left"
                return
            yield name, _opened(path, FILE_BYTES_MAX)


def read_result(path: Path) -> bytes:
    """The result file, if the agent wrote one that is a plain, not absurdly large file."""
    file = _opened(path, RESULT_BYTES_MAX)
    if isinstance(file, str):
        return b""
    with file:
        return file.read(RESULT_BYTES_MAX)


def _opened(path: Path, limit: int) -> BinaryIO | str:
    try:
        # Never waits (a pipe), never follows a link that was put in its place.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_size <= limit:
        return os.fdopen(handle, "rb")
    os.close(handle)
    if not stat.S_ISREG(found.st_mode):
        return "it is not a plain file"
    return f"it has {found.st_size} bytes, more than {limit}"
