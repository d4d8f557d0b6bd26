"""Children that escape: forked twice and in a session of their own, so no group signal finds them.

They keep the agent's output open, as a forgotten development server does, and end by themselves
after a while, so that a rehearsal without a worker leaves nothing behind for good.
"""

from __future__ import annotations

import os
import time


def fork_orphans(count: int, seconds: float) -> list[int]:
    """The process ids of so many orphans, each asleep for so long."""
    return [_fork_one(seconds) for _ in range(count)]


def _fork_one(seconds: float) -> int:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _escape(reader, writer, seconds)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        orphan = int(pipe.read() or b"0")
    os.waitpid(child, 0)
    return orphan


def _escape(reader: int, writer: int, seconds: float) -> None:
    """In the child: leave the session, fork again, and let only the grandchild live."""
    try:
        os.close(reader)
        os.setsid()
        orphan = os.fork()
        if orphan:
            os.write(writer, b"%d" % orphan)
        else:
            os.close(writer)
            time.sleep(seconds)
    finally:
        os._exit(0)  # never back into the caller's code
