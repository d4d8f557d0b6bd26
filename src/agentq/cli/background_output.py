"""Standard output and error of commands that run until they are stopped.

Nobody may be reading any more: a pipe was closed (`| head -1`), a disk is full, a terminal is gone,
a pager waits for a key. The work must neither fail nor wait for that, so what is written here goes
through a thread of its own, and what cannot be written is dropped.
"""

from __future__ import annotations

import io
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO, cast

log = logging.getLogger("agentq.output")

#: What waits for a reader that does not read; more is dropped.
WAITING_BYTES_MAX = 1 << 20
#: How long the end of a command waits for what was written last.
LAST_SECONDS = 2.0


class BackgroundOutput(io.TextIOBase):
    """A text stream whose `write` never fails and never waits."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._name = getattr(file, "name", "output")
        self._fd = file.fileno()
        self._encoding = file.encoding or "utf-8"
        self._isatty = file.isatty()
        self._pieces: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._ends = False
        self._is_lost = False

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return self._isatty

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"text was expected, got {type(text).__name__}")
        data = text.encode(self._encoding, "backslashreplace")
        with self._changed:
            if self._ends or self._waiting_bytes + len(data) > WAITING_BYTES_MAX:
                self._dropped += 1
                return len(text)
            self._pieces.append(data)
            self._waiting_bytes += len(data)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write_pieces, name="agentq-output", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()
        return len(text)

    def finish(self, seconds: float = LAST_SECONDS) -> None:
        """Wait up to so long until all is written; what comes after that is dropped."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(seconds)

    def _write_pieces(self) -> None:
        while True:
            with self._changed:
                while not self._pieces and not self._ends:
                    self._changed.wait()
                if not self._pieces:
                    return
                data = b"".join(self._pieces)
                self._pieces.clear()
                dropped, self._dropped = self._dropped, 0
            if dropped:
                data += f"({dropped} lines were not shown: nobody read)\n".encode()
            self._write_out(data)
            with self._changed:
                self._waiting_bytes = sum(map(len, self._pieces))

    def _write_out(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:  # somebody else has made the file so, as programs beside us do
                select.select([], [self._fd], [])
            except OSError as error:
                self._note_lost(error)
                return

    def _note_lost(self, error: OSError) -> None:
        """Log once that the output is gone; a disk may have room again later."""
        if not self._is_lost:
            self._is_lost = True
            why = error.strerror or str(error)
            log.warning("%s cannot be written (%s); the work goes on", self._name, why)


@contextmanager
def output_in_background() -> Iterator[None]:
    """Give this process such an output and error until the end of the block."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_replacement(each) for each in before)
    made = [each for each in (sys.stdout, sys.stderr) if isinstance(each, BackgroundOutput)]
    try:
        yield
    finally:
        ends_at = time.monotonic() + LAST_SECONDS
        for each in made:
            each.finish(max(ends_at - time.monotonic(), 0.01))
        sys.stdout, sys.stderr = before


def _replacement(file: TextIO | None) -> TextIO:
    if file is None:  # it was closed before the start
        return io.StringIO()
    try:
        file.flush()
        return cast("TextIO", BackgroundOutput(file))
    except (OSError, ValueError):  # no file behind it, or one that cannot take what was written
        return file
