"""Runs first in a child of `agentq up`: makes it end with its parent, then becomes the worker.

However the parent ends, also by kill -9, the kernel sends SIGTERM to the worker, so that none is
left beside those of the next `agentq up`. The kernel watches the thread that started the child, so
that thread must stay. A program of its own, because nothing is safe between fork and exec of a
process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, *words = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() == int(parent):  # else the parent died before prctl
        os.execv(words[0], words)  # noqa: S606 - a list of words, as everywhere


if __name__ == "__main__":
    main()
