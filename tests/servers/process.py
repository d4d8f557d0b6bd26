"""A server's process, known by a file: any process of a test run may end and start it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.eventually import eventually

END_SECONDS_MAX = 20


@dataclass
class ServerProcess:
    """At most one process at a time; its number is in `file`, for the guard too."""

    file: Path

    def start(self, command: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
        """Start it in a session of its own: Ctrl-C is for the tests, which end it themselves."""
        with output.open("ab") as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd=self.file.parent,
                env=environment,
                start_new_session=True,
            )
        self.file.write_text(f"{process.pid}\n")
        _ours[process.pid] = process

    @property
    def pid(self) -> int:
        """Its number; 0 if there is none."""
        return int(self.file.read_text()) if self.file.exists() else 0

    @property
    def running(self) -> bool:
        """Whether a thread of it is there that has not ended. The first may have ended before the
        others, and until the last has, the process goes on answering at its port."""
        if not (pid := self.pid):
            return False
        try:
            threads = [each / "stat" for each in Path(f"/proc/{pid}/task").iterdir()]
        except (FileNotFoundError, ProcessLookupError):
            return False
        return any(map(_lives, threads))

    def kill(self) -> None:
        """As a crash does: at once, with all its children."""
        if pid := self.pid:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            eventually(lambda: not self.running, END_SECONDS_MAX, f"the end of process {pid}")
            if pid in _ours:
                _ours.pop(pid).wait()
            self.file.unlink(missing_ok=True)


def _lives(status: Path) -> bool:
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except (FileNotFoundError, ProcessLookupError):
        return False


#: Those that this process started, for it alone can take note of their end.
_ours: dict[int, subprocess.Popen[bytes]] = {}
