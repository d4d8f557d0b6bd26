"""What the demonstration is told with: a terminal to print on, commands to run, and actors.

An actor is a worker process whose JSON lines arrive in a queue. Waiting for one of them is how the
story goes on; nothing here sleeps for a while and hopes.
"""

from __future__ import annotations

import json
import os
import pty
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

HERE = Path(__file__).resolve().parent
AGENTQ = Path(sys.executable).parent / "agentq"
#: Far more than anything here takes, also on a slow machine.
PATIENCE_SECONDS = 60.0
INDENT = " " * 6


class Broken(Exception):
    """The story did not go as it must."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


class Show:
    """Prints the story; in colours only where somebody can see them."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self.colours = out.isatty() and "NO_COLOR" not in os.environ
        self._number = 0

    def paint(self, codes: str, text: str) -> str:
        return f"\x1b[{codes}m{text}\x1b[0m" if self.colours else text

    def line(self, text: str = "") -> None:
        print(text, file=self._out, flush=True)

    def title(self, text: str) -> None:
        self.line(self.paint("1", text))

    def step(self, text: str) -> None:
        self._number += 1
        self.line()
        self.line(self.paint("1;36", f"{self._number:2}. {text}"))

    def say(self, text: str) -> None:
        for row in textwrap.wrap(text, 92):
            self.line(f"    {row}")

    def fact(self, text: str) -> None:
        self.line(f"    {self.paint('32', '✓')} {text}")

    def drama(self, text: str) -> None:
        self.line(f"    {self.paint('1;31', '⚡')} {self.paint('1', text)}")

    def command(self, words: list[str]) -> None:
        self.line(f"    {self.paint('2', '$')} {self.paint('33', shlex.join(words))}")

    def output(self, text: str) -> None:
        for row in text.rstrip().splitlines():
            self.line(f"{INDENT}{row}".rstrip())


def run_command(
    words: list[str], folder: Path, environment: dict[str, str], on_terminal: bool
) -> tuple[int, str]:
    """Run a command to its end: its status and what it printed. Where the story is told on a
    terminal the command gets one too, and so shows what it shows to people."""
    if not on_terminal:
        done = subprocess.run(
            words, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        return done.returncode, done.stdout
    columns = max(shutil.get_terminal_size().columns, 80) - len(INDENT)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        words, cwd=folder, env=environment | {"COLUMNS": str(columns)},
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    printed = b""
    try:
        while part := os.read(ours, 65536):
            printed += part
    except OSError:
        pass  # the other side has closed it: the end, as Linux says it
    finally:
        os.close(ours)
    return process.wait(PATIENCE_SECONDS), printed.decode("utf-8", "replace").replace("\r\n", "\n")


class Stage:
    """One installation in a folder of its own, and everybody who acts in it."""

    def __init__(self, folder: Path, show: Show) -> None:
        self.folder = folder
        self.show = show
        self.actors: list[Actor] = []
        # Somebody's own queue must not leak into the demonstration.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTQ_")}
        own = {"AGENTQ_ACTOR": "coordinator", "AGENTQ_AGENT": "none", "AGENTQ_QUIET": "1"}
        self.environment = kept | own | {"PYTHONUNBUFFERED": "1"}

    def agentq(self, *words: str, status: int = 0, quiet: bool = False) -> str:
        """Run the real command; show it, and insist on its exit status."""
        if not quiet:
            self.show.command(["agentq", *words])
        ended, printed = run_command(
            [str(AGENTQ), *words], self.folder, self.environment, self.show.colours and not quiet
        )
        if not quiet:
            self.show.output(printed)
        expect(ended == status, f"`agentq {shlex.join(words)}` ended with {ended}:\n{printed}")
        return printed

    def ask(self, *words: str) -> Any:
        """The same in JSON, for the story to check itself."""
        return json.loads(self.agentq(*words, "--json", quiet=True))

    def events(self, task_id: str) -> list[dict[str, Any]]:
        lines = self.agentq("events", "--task", task_id, "--json", quiet=True).splitlines()
        return [json.loads(line) for line in lines]

    def worker(self, role: str, name: str, repository: Path, *, pause: bool = False) -> Actor:
        words = [sys.executable, str(HERE / "worker.py"), role, "--name", name]
        words += ["--repository", str(repository)] + (["--pause"] if pause else [])
        actor = Actor(name, words, self.folder, self.environment)
        self.actors.append(actor)
        actor.hear("waiting")
        return actor

    def clear(self) -> None:
        """Leave no process behind, whatever happened."""
        for actor in self.actors:
            actor.end()


class Actor:
    """A worker process, by the lines it prints."""

    def __init__(self, name: str, words: list[str], folder: Path, env: dict[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                words, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True,
            )  # fmt: skip
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def hear(self, event: str) -> dict[str, Any]:
        """Wait until it says this. Anything else it says meanwhile is part of its story too."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                said = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise Broken(f"{self.name} did not get to {event!r} in time") from None
            if said is None:
                raise Broken(f"{self.name} ended before {event!r}:\n{self.log.read_text()}")
            if said["event"] == event:
                return said

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> int:
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait(PATIENCE_SECONDS)

    def freeze(self) -> None:
        """Stop it as a suspended machine would: no goodbye, no heartbeat, nothing."""
        self.process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        expect(os.WIFSTOPPED(status), f"{self.name} has stopped")

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ended(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()  # reaches a stopped process too
            self.process.wait()
        self._reader.join(5)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                _close(pipe.close)


def _close(close: Callable[[], None]) -> None:
    try:
        close()
    except BrokenPipeError:
        return  # it was killed before it read what we wrote
