"""Runs first in a child of `agentq up`: makes it end with its parent, then becomes the worker.

However the parent ends, also by kill -9, the kernel tells the worker to stop; it then finishes or
gives its tasks back, and no second set of workers is left beside the one of the next `agentq up`.
The tie is to the very thread that started the child, so that must be one that stays.

A program of its own, because between fork and exec of a process with threads nothing is safe.
"""

from __future__ import annotations

import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *words = sys.argv[1:]
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() == int(parent):  # else it died before we were tied to it
        os.execv(words[0], words)  # noqa: S606 - a list of words, as everywhere


if __name__ == "__main__":
    main()
