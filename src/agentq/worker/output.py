"""Records the output of an agent: split into lines, without secrets, bounded.

Nothing here trusts the agent. A line without end, ten gigabytes of output, bytes that are no text,
a disk that fills up: memory stays flat, the log stays small, and the attempt goes on.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, BinaryIO

from agentq.core.counting import counted
from agentq.core.errors import Conflict, NotFound, Unavailable
from agentq.worker.redaction import Redactor

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from agentq.contracts.artifacts import ArtifactStore, LivePart

#: A longer line is cut, for the listener and for the log.
LINE_MAX = 1 << 20
_READ_BYTES = 1 << 20


class Recorder:
    """Records the output of one program in the live log of its attempt, and gives back its lines.

    `cap_bytes` is how much of the log is kept, half of it from the beginning. Programs that run one
    after the other for an attempt each have a recorder; they share the live log of the attempt. One
    thread feeds it.
    """

    def __init__(
        self,
        artifacts: ArtifactStore,
        task_id: str,
        epoch: int,
        *,
        cap_bytes: int,
        secrets: Collection[str],
    ) -> None:
        self._artifacts = artifacts
        self._task_id = task_id
        self._epoch = epoch
        self._cap_bytes = cap_bytes
        self._streams = (_Stream(secrets), _Stream(secrets))
        self._unstored = 0
        self._unstored_here = 0
        #: The first reason why some of the output could not be stored; "" if all was.
        self.error = ""
        self._start = self._end_of_log()

    def feed(self, data: bytes, *, is_error: bool = False) -> list[bytes]:
        """Record more output; returns the lines that are complete now, without their ends.

        The lines are not redacted: whoever stores something of them does that.
        """
        lines, log = self._streams[is_error].take(data)
        if log:
            self._store(log)
        return lines

    def flush(self, *, is_error: bool) -> list[bytes]:
        """The last line of a stream that has ended, if nothing ended the line."""
        return self.feed(b"\n", is_error=is_error) if self._streams[is_error].is_open else []

    def finished(self) -> BinaryIO | None:
        """What is kept of it as one file to read, with a line where some is missing; None if empty.

        It reads the live log: store it before that is ended, or goes on.
        """
        file = io.BufferedReader(_Kept(self._parts()), _READ_BYTES)
        if file.peek(1):
            return file
        file.close()
        return None

    def _store(self, log: bytes) -> None:
        """Append to the live log. A full disk costs us the log, never the attempt."""
        note = _not_stored(self._unstored_here, "") if self._unstored_here else b""
        try:
            self._artifacts.live_append(
                self._task_id, self._epoch, note + log, keep_bytes=self._cap_bytes
            )
        except (Unavailable, Conflict) as error:
            self.error = self.error or error.cause
            self._unstored += len(log)
            self._unstored_here += len(log)
        else:
            self._unstored_here = 0

    def _end_of_log(self) -> int:
        """Return where this log begins: 0, unless another program of the attempt wrote before."""
        position = 0
        try:
            while (part := self._read(position)).data:
                position = part.position
        except NotFound:
            return 0
        except (Unavailable, Conflict) as error:
            self.error = error.cause
        return position

    def _read(self, position: int) -> LivePart:
        return self._artifacts.live_read(self._task_id, self._epoch, position, _READ_BYTES)

    def _parts(self) -> Iterator[bytes]:
        position, ends_line = self._start, True
        while True:
            try:
                part = self._read(position)
            except NotFound:
                break
            if not part.data:
                break
            position = part.position
            yield part.text if ends_line or not part.dropped else b"\n" + part.text
            ends_line = part.data.endswith(b"\n")
        if self._unstored:
            yield _not_stored(self._unstored, self.error)


class LineSplitter(Recorder):
    """Gives back the lines of a program whose output is kept nowhere."""

    def __init__(self) -> None:  # there is no log to go on from
        self._streams = (_Stream(()), _Stream(()))

    def _store(self, log: bytes) -> None:
        """Keep nothing."""


class _Stream:
    """Standard output or standard error: the line that is under way, and its redaction."""

    def __init__(self, secrets: Collection[str]) -> None:
        self._redactor = Redactor(secrets)
        self._line = bytearray()
        self._skipped = 0
        self._held_max = LINE_MAX + self._redactor.margin

    @property
    def is_open(self) -> bool:
        return bool(self._line)

    def take(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The lines that are complete now, as they are, and what of them goes into the log."""
        end = data.rfind(b"\n") + 1
        if not end:
            self._hold(data)
            return [], b""
        block, skipped = bytes(self._line) + data[:end], self._skipped
        self._line.clear()
        self._skipped = 0
        self._hold(data[end:])
        lines = block.split(b"\n")
        lines.pop()  # what follows the last end: nothing
        fits = not skipped and (len(block) <= LINE_MAX or max(map(len, lines)) <= LINE_MAX)
        if fits and self._redactor.is_clean(block):
            log = block
        else:
            log = self._for_log(lines[0], skipped) + b"".join(map(self._for_log, lines[1:]))
        if not fits or b"\r" in block:
            lines = [line[:LINE_MAX].removesuffix(b"\r") for line in lines]
        return lines, log

    def _hold(self, data: bytes) -> None:
        left = self._held_max - len(self._line)
        self._line += data[:left]
        self._skipped += max(len(data) - left, 0)

    def _for_log(self, line: bytes, skipped: int = 0) -> bytes:
        """The line as it is stored, with its end.

        Of a line that is too long more is looked at than is kept, so that a secret that the cut
        would fall into is still found whole.
        """
        size = len(line) + skipped
        if size > self._held_max:
            kept = self._redactor.line(line[: self._held_max])[: -self._redactor.margin]
        else:
            kept = self._redactor.line(line)
        if size <= LINE_MAX:
            return kept + b"\n"
        return b"%b [agentq: %d bytes of this line left out]\n" % (kept[:LINE_MAX], size - LINE_MAX)


def _not_stored(count: int, why: str) -> bytes:
    reason = f": {why}" if why else ""
    return f"[agentq: {counted(count, 'byte')} of output could not be stored{reason}]\n".encode()


class _Kept(io.RawIOBase):
    """Parts of a log, none of them empty, as a file."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = parts
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        self._rest = self._rest or next(self._pieces, b"")
        count = min(len(view), len(self._rest))
        view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
