"""Signals for commands that run until they are stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress


def heed_signals(end: Callable[[], None], hurry: Callable[[], None], ringer: int) -> None:
    """The first signal ends the command in order, the second at once.

    Python runs handlers in the main thread, which sleeps on if the kernel gave the signal to
    another thread. So every signal writes to `ringer`, the writing end of a pipe, which wakes it.
    """
    # A signal may come when the command has closed the other end: Python would print that its write
    # failed. A reader of our own, for as long as the process lives, keeps the pipe whole.
    with suppress(OSError):  # without /proc
        os.open(f"/proc/self/fd/{ringer}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    asked = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        (hurry if asked else end)()
        asked = True

    signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` leaves it: go on
        signal.signal(signal.SIGHUP, handle)
