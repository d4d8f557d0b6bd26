"""A side's own process, and the handle by which the benchmark talks to it.

Processes keep the sides honest: no side pays for the threads, event loops, garbage or imported
modules of another, and a worker that waits is a real, separate, idle process.
Commands go to the child's standard input as JSON lines and answers come back the same way.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from bench.side import Place, Side, load_side

ROOT = Path(__file__).resolve().parent.parent
LOG_TAIL_CHARACTERS = 3000


class SideFailed(Exception):
    """A side's process ended before it answered; `log` is the end of what it wrote."""

    def __init__(self, what: str, log: str = "") -> None:
        super().__init__(what)
        self.log = log


class SideProcess:
    """The parent's handle on one side in one process."""

    def __init__(self, name: str, place: Place, *, role: str = "main") -> None:
        self.name = name
        self._log = place.folder / f"{name}-{role}.log"
        command = [sys.executable, "-m", "bench.host", name, str(place.folder), place.url]
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def call(self, command: str, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.receive(command)

    def send(self, command: str, **arguments: Any) -> None:
        """Begin a command; others may be sent to other processes before it is answered."""
        assert self._child.stdin is not None
        line = json.dumps({"command": command, "arguments": arguments}) + "\n"
        # A process that is gone is reported when its answer is asked for.
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.write(line.encode())
            self._child.stdin.flush()

    def receive(self, command: str) -> Any:
        assert self._child.stdout is not None
        answer = self._child.stdout.readline()
        if not answer:
            log = self._log_tail()
            reason = log.strip().splitlines()[-1] if log.strip() else "it wrote nothing"
            raise SideFailed(f"{self.name}: process ended in {command}: {reason}", log)
        return json.loads(answer)["value"]

    def close(self) -> None:
        self._child.terminate()
        try:
            self._child.wait(5)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:]


def command_table(side: Side) -> dict[str, Callable[..., Any]]:
    commands: dict[str, Callable[..., Any]] = {
        "create": side.create,
        "connect": side.connect,
        "submit_each": side.submit_each,
        "submit_bulk": side.submit_bulk,
        "submit_stamped": side.submit_stamped,
        "drain": side.drain,
    }
    # Only some sides take part in these subjects.
    for extra in ("make_history", "hold_leases", "lease_cost", "drain_alone", "submit_times"):
        if hasattr(side, extra):
            commands[extra] = getattr(side, extra)
    return commands


def leave_with_parent() -> None:
    """End this process when the benchmark is gone, however it went."""
    sys.stdin.read()
    os._exit(0)


def answer_commands(side: Side, answers: IO[str]) -> None:
    commands = command_table(side)
    for line in sys.stdin:
        request = json.loads(line)
        if request["command"] == "serve":
            print(json.dumps({"value": None}), file=answers, flush=True)
            threading.Thread(target=leave_with_parent, daemon=True).start()
            side.serve()
            return
        # A failure ends the process; the parent reports the last line of its log.
        value = commands[request["command"]](**request["arguments"])
        print(json.dumps({"value": value}), file=answers, flush=True)


def main() -> None:
    name, folder, url = sys.argv[1:4]
    # Libraries may print; keep the answers on a private copy of standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    answer_commands(load_side(name, Place(Path(folder), url)), answers)


if __name__ == "__main__":
    main()
