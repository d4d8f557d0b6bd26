"""The work every side does for every task: append sixteen bytes to a file, nothing else.

The bytes are the task's number and the moment its body started, so the file is also the
evidence: which bodies ran, how often, and when the first and the last of them began.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from pathlib import Path

from bench.tasks import summary_for

RECORD = struct.Struct("<qq")


class Body:
    """Runs task bodies in one process and knows when an expected number of them has run."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.Lock()
        self._remaining = 0
        self.first_ns = 0
        self.all_ran = threading.Event()

    def expect(self, count: int) -> None:
        """Start a new measurement in which `count` bodies will run."""
        self._remaining = count
        self.first_ns = 0
        self.all_ran.clear()

    def run(self, number: int) -> str:
        """Do the work; what is to be said about it."""
        started = time.monotonic_ns()
        os.write(self._file, RECORD.pack(number, started))
        # Some peers run bodies on several threads, hence the lock around the count.
        with self._lock:
            if not self.first_ns:
                self.first_ns = started
            self._remaining -= 1
            if self._remaining == 0:
                self.all_ran.set()
        return summary_for(number)

    def seconds_since_first(self) -> float:
        return (time.monotonic_ns() - self.first_ns) / 1e9


def read_starts(path: Path) -> dict[int, int]:
    """The first start of every task's body, by task number, in monotonic nanoseconds."""
    starts: dict[int, int] = {}
    if path.exists():
        data = path.read_bytes()
        whole = len(data) - len(data) % RECORD.size
        for number, started in RECORD.iter_unpack(data[:whole]):
            starts.setdefault(number, started)
    return starts


def count_runs(path: Path) -> int:
    return path.stat().st_size // RECORD.size if path.exists() else 0
