"""Reading what processes say, and waiting for their end, with time limits and without polling."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from agentq.contracts.agent import Exit
from agentq.worker.processes import AgentProcess

PATIENCE = 10.0
#: No process survives its attempt or its worker by more than this.
SURVIVAL_SECONDS = 5.0
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def some(file: int) -> bytes:
    """The next bytes; empty at the end."""
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    assert waiting.poll(PATIENCE * 1000), "no output in time"
    return os.read(file, 1 << 16)


def everything(file: int) -> bytes:
    return b"".join(iter(lambda: some(file), b""))


def lines(file: int, count: int) -> list[str]:
    text = b""
    while text.count(b"\n") < count:
        more = some(file)
        assert more, f"the output ended early: {text!r}"
        text += more
    return text.decode().splitlines()


def exit_of(child: AgentProcess, seconds: float = PATIENCE) -> Exit | None:
    """How the agent itself ended; None if it has not after so many seconds."""
    deadline = time.monotonic() + seconds
    while child.poll() is None and (left := deadline - time.monotonic()) > 0:
        select.select([child.status_fd], [], [], left)
    return child.poll()


class Watched:
    """Processes by pidfd: numbers that cannot come to mean others."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.files = {pid: os.pidfd_open(pid) for pid in pids}

    def all_end(self, seconds: float = SURVIVAL_SECONDS) -> bool:
        deadline = time.monotonic() + seconds
        waiting = select.poll()
        for file in self.files.values():
            waiting.register(file, select.POLLIN)
        running = set(self.files.values())
        while running and (left := deadline - time.monotonic()) > 0:
            for file, _ in waiting.poll(left * 1000):
                waiting.unregister(file)
                running.discard(file)
        return not running

    def none_is_left(self) -> bool:
        """Not even a zombie."""
        return not any(Path(f"/proc/{pid}").exists() for pid in self.files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(file, signal.SIGKILL)
            os.close(file)
