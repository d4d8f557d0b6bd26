"""Signals for commands that run until they are stopped."""

from __future__ import annotations

import signal
from collections.abc import Callable


def heed_signals(end: Callable[[], None], hurry: Callable[[], None], ringer: int) -> None:
    """The first signal ends the command in order, the second at once.

    Python runs handlers in the main thread, which sleeps on if the kernel gave the signal to
    another thread. So every signal writes to `ringer`, which wakes it.
    """
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
