"""Signals that are heard at once, whichever thread the kernel gives them to."""

from __future__ import annotations

import signal


def wake_for_signals(ringer: int) -> None:
    """Let every signal write to this file.

    Python runs handlers in the main thread, and another thread may have been given the signal: then
    the main one sleeps on, unless something wakes it.
    """
    signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
