"""Waiting for what another thread or process does, with a time limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def until(true: Callable[[], object], seconds: float = 10, what: str = "it") -> None:
    deadline, beat = time.monotonic() + seconds, threading.Event()
    while not true():
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        beat.wait(0.01)
