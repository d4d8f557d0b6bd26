"""A process that bears others: it has imported agentq once and forks a child on each request.

Hundreds of kills need hundreds of processes; forking from a warm, single-threaded parent makes one
in milliseconds where a fresh interpreter takes a quarter of a second. Children write what they were
told by the ledger to a file of theirs, line by line and unbuffered, so a kill loses none of it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, Self

from tests.processes.programs import PROGRAMS as THROUGH_THE_CLIENT
from tests.processes.stepping import STEPPING

PROGRAMS = THROUGH_THE_CLIENT | STEPPING


class Forkserver:
    """The caller's side: bear children, kill them, see that they are gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._errors = (folder / "forkserver.errors").open("wb")
        self._born = 0
        self.alive: dict[int, str] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
        )

    def bear(self, program: str, **arguments: Any) -> int:
        """Start a program of `PROGRAMS` in a process of its own; its pid."""
        self._born += 1
        out = self._folder / f"{program}-{self._born}.out"
        reply = self._ask({"run": program, "out": str(out), "arguments": arguments})
        self.alive[reply] = program
        return reply

    def send(self, pid: int, number: signal.Signals) -> None:
        os.kill(pid, number)

    def kill(self, pid: int) -> None:
        """kill -9, and wait until the process is really gone."""
        self._ask({"kill": pid})
        del self.alive[pid]

    def wait(self, pid: int) -> int:
        """Wait for a child to end by itself; its exit status."""
        status = self._ask({"wait": pid})
        del self.alive[pid]
        return status

    def _ask(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        reply = self._process.stdout.readline()
        assert reply, f"the forkserver died: {self.errors()}"
        return int(reply)

    def lines(self, program: str) -> list[list[str]]:
        """What all children of a program wrote, in words."""
        found = []
        for file in sorted(self._folder.glob(f"{program}-*.out")):
            found += [line.split() for line in file.read_text().splitlines()]
        return found

    def errors(self) -> str:
        self._errors.flush()
        return (self._folder / "forkserver.errors").read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in list(self.alive):
            self.kill(pid)
        self._process.communicate()
        self._errors.close()


def _bear(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        out = os.open(request["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        PROGRAMS[request["run"]](
            lambda *words: os.write(out, (" ".join(map(str, words)) + "\n").encode()),
            **request["arguments"],
        )
    except BaseException:  # noqa: BLE001 - whatever a child dies of belongs into the errors
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    # What a child would import only when it opens its ledger: imported once, here.
    for module in (
        "agentq.stores.sqlite.store",
        "agentq.stores.postgres.store",
        "agentq.delivery.postgres.notify",
    ):
        importlib.import_module(module)
    for line in sys.stdin:
        request = json.loads(line)
        if "run" in request:
            answer = _bear(request)
        else:
            pid = request.get("kill") or request["wait"]
            if "kill" in request:
                os.kill(pid, signal.SIGKILL)
            answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
