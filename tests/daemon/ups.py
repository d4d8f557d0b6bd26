"""`agentq up` as real processes in one folder."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes.warm_parent import WarmParent, start_agentq

PROGRAM = [sys.executable, "-m", "agentq"]


class Up:
    """One of them. What it and its workers say goes to a file."""

    def __init__(self, folder: Path, number: int, parent: WarmParent | None, *words: str) -> None:
        self.words = words
        self._file = folder / f"up-{number}.log"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AGENTQ_")}
        environment["PYTHONFAULTHANDLER"] = "1"
        self.process = start_agentq(parent, *words, cwd=folder, env=environment, log=self._file)

    @property
    def said(self) -> str:
        return self._file.read_text(errors="replace")

    def said_of(self, words: str) -> list[str]:
        return [line for line in self.said.splitlines() if words in line]

    def worker_pids(self, role: str) -> list[int]:
        """Processes of workers that it has started, the newest last."""
        return [
            int(line.rsplit(" ", 1)[1]) for line in self.said_of(f"worker {role}: started, process")
        ]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, seconds: float = 30) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


class Ups:
    """Starts them in a folder."""

    def __init__(self, folder: Path, parent: WarmParent | None) -> None:
        self.folder = folder
        self._parent = parent
        self._started: list[Up] = []

    def start(self, *words: str, command: str = "up") -> Up:
        up = Up(self.folder, len(self._started) + 1, self._parent, command, *words)
        self._started.append(up)
        return up


@contextmanager
def several_ups(folder: Path, parent: WarmParent | None = None) -> Iterator[Ups]:
    """With a `parent` each is forked from it, for tests that start many."""
    ups = Ups(folder, parent)
    try:
        yield ups
    finally:
        for up in ups._started:
            if up.process.poll() is None:
                up.kill()
            sys.stdout.write(f"{' '.join(up.words)} said:\n{up.said}")  # shown if the test fails


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
