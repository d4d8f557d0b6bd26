"""A terminal on which a command runs and draws, to be looked at while it does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interfaces.conftest import PROGRAM, clean_environment


class LiveTerminal:
    """A terminal that a command runs on, and what it has written there."""

    def __init__(self, *words: str, cwd: Path | None = None, term: str = "xterm") -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self._ours, False)
        self.process = subprocess.Popen(
            [*PROGRAM, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=clean_environment({"TERM": term}),
            cwd=cwd,
            start_new_session=True,
        )
        os.close(theirs)
        self.written = ""

    def shows(self, words: str) -> bool:
        """Whether it has written this by now."""
        try:
            while data := os.read(self._ours, 65536):
                self.written += data.decode("utf-8", "replace")
        except OSError:
            pass  # nothing at the moment, or nothing ever again
        return words in re.sub(r"\x1b\[[0-9;]*m", "", self.written)

    def resize(self, columns: int) -> None:
        """Make it so wide, and tell the program as a terminal does."""
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def lines(self) -> list[str]:
        """Everything that was written, line by line, without colours and movements."""
        self.shows("")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.written).replace("\r", "\n").split("\n")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@contextmanager
def on_terminal(
    *words: str, cwd: Path | None = None, term: str = "xterm"
) -> Iterator[LiveTerminal]:
    """Run the command there; it is killed at the end if it has not ended."""
    terminal = LiveTerminal(*words, cwd=cwd, term=term)
    try:
        yield terminal
    finally:
        terminal.close()
