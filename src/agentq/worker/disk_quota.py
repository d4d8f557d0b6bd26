"""How much disk workspaces take: each while its agent runs, and all of them before a claim.

Looking costs time in large trees, so the pause between two looks grows with what the last one took:
a worker never spends more than a small part of its time on it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger("agentq.worker")

#: Seconds between two looks at one workspace, and at all; longer after a look that took long.
WORKSPACE_SECONDS = 5.0
TOTAL_SECONDS = 30.0
_SHARE = 50.0
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's own is


def used_bytes(folder: Path, stop_at: int = 0, is_over: Callable[[], bool] = lambda: False) -> int:
    """The disk that a folder takes, without following links or leaving its file system.

    Counting ends once there is more than `stop_at`, if that is given, or `is_over` says so.
    """
    try:
        device = os.lstat(folder).st_dev
    except OSError:
        return 0
    used, waiting, seen = 0, [os.fspath(folder)], set()
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # it may go meanwhile
            for entry in entries:
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if found.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                        if found.st_ino in seen:
                            continue
                        seen.add(found.st_ino)
                    used += found.st_blocks * _BLOCK_BYTES
                    if entry.is_dir(follow_symlinks=False) and found.st_dev == device:
                        waiting.append(entry.path)
        if (stop_at and used > stop_at) or is_over():
            break
    return used


@contextmanager
def watched(folder: Path, limit: int, over: Callable[[str], None]) -> Iterator[None]:
    """Look at a folder again and again during the block; `over` is called once it has too much.

    A limit of 0 is none.
    """
    if not limit:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        pause = 0.0
        while not ended.wait(pause):
            began = time.monotonic()
            used = used_bytes(folder, limit, ended.is_set)
            if used > limit:
                over(f"its workspace takes more than {limit} bytes of disk (disk_bytes)")
                return
            pause = max(WORKSPACE_SECONDS, (time.monotonic() - began) * _SHARE)

    watcher = threading.Thread(target=look, name="agentq-disk", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


class TotalQuota:
    """Whether all workspaces of this machine together take too much for another one."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._look_at = 0.0
        self._limit = 0
        self._used = 0

    @property
    def problem(self) -> str:
        """Why nothing is claimed, as far as was looked; "" if there is room."""
        if not self._limit or self._used <= self._limit:
            return ""
        used = f"the workspaces take {self._used} bytes of disk"
        return f"{used}, more than {self._limit} (disk_total_bytes)"

    def is_over(self, limit: int) -> bool:
        """Whether there is more than the limit; 0 is none. Logs when that changes."""
        now = time.monotonic()
        was_over = bool(self._limit) and self._used > self._limit
        if limit and (now >= self._look_at or limit != self._limit):
            self._used = used_bytes(self._root)
            took = time.monotonic() - now
            self._look_at = now + max(TOTAL_SECONDS, took * _SHARE)
        self._limit = limit
        over = bool(limit) and self._used > limit
        if over and not was_over:
            log.warning(
                "nothing is claimed: the workspaces in %s take %d bytes of disk, more than %d"
                " (disk_total_bytes); `agentq workspaces` shows which, and removes what may go",
                self._root, self._used, limit,
            )  # fmt: skip
        elif was_over and not over:
            log.warning("there is room for workspaces again: work is claimed")
        return over
