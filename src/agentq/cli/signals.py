"""Signals for commands that run until they are told to end."""

from __future__ import annotations

import signal
from collections.abc import Callable


def heed_signals(end: Callable[[], None], hurry: Callable[[], None], ringer: int) -> None:
    """The first signal asks for a good end, the second for a quick one.

    Python runs handlers in the main thread, and another thread may have been given the signal: then
    the main one sleeps on, unless something wakes it. So every signal writes to `ringer`.
    """
    asked = False

    def heard(number: int, frame: object) -> None:
        nonlocal asked
        (hurry if asked else end)()
        asked = True

    signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, heard)
