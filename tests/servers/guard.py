"""What takes a test server down when whoever needed it is gone, however they went.

A guard is a small shell that reads from a pipe. The other end is held open by the test run and
closed by its end, even by `kill -9`: then the guard reads end of file, kills the server and removes
its folder.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.servers.run import TestRun

END_SECONDS_MAX = 60

# The last one also removes what a run that was killed could not remove itself.
_LAST = """
if [ -n "$2" ]; then rm -rf "$2/notes"; rmdir "$2"; fi
"""


class Guard:
    """One guard, for a server of this process alone or for one that a whole test run shares.

    `clean_up` is a script that kills the server and removes its folder, `$1`.
    """

    def __init__(self, clean_up: str, folder: Path, run: TestRun | None) -> None:
        self._run = run
        self._clean_up = ["/bin/sh", "-c", clean_up, "guard", str(folder)]
        script = f"cat > /dev/null\n{clean_up}{_LAST}"
        command = ["/bin/sh", "-c", script, "guard", str(folder)]
        if run is None:
            self._process = _started(command, subprocess.PIPE)
        else:
            with run.alive() as pipe:
                self._process = _started([*command, str(run.folder)], pipe)

    def end(self) -> None:
        """Take the server down and remove its folder now; ending twice is safe."""
        if self._run is not None:
            self._process.kill()
            subprocess.run(self._clean_up, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: PLW1510
        elif self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait(timeout=END_SECONDS_MAX)


def _started(command: list[str], stdin: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
