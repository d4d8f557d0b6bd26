"""Plays scripts with the stand-in as a real process, and keeps hold of the ones that do not end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

PROGRAM = (sys.executable, "-m", "agentq.testing.fake_agent")
DIALECTS = ("command", "claude", "codex", "gemini", "opencode")
PROMPT = "Mend the roof."
DEADLINE_SECONDS = 20


@dataclass(frozen=True)
class Played:
    """How a performance went."""

    code: int
    out: bytes
    err: bytes

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def words_for(
    folder: Path, script: str | None, dialect: str, *words: str,
    environment: Mapping[str, str] | None = None,
) -> list[str]:  # fmt: skip
    """The words that start the stand-in with this script."""
    told = [f"{name}={value}" for name, value in (environment or {}).items()]
    if script is None:
        return [*PROGRAM, *told, dialect, *words]
    file = folder / "script.yaml"
    file.write_text(script)
    return [*PROGRAM, *told, dialect, "--script", str(file), *words]


def play(
    folder: Path, script: str | None, dialect: str, *words: str, prompt: str = PROMPT,
    environment: Mapping[str, str] | None = None,
) -> Played:  # fmt: skip
    """Play a script to its end; the prompt comes on standard input."""
    done = subprocess.run(
        words_for(folder, script, dialect, *words, environment=environment), cwd=folder,
        input=prompt.encode(), capture_output=True, timeout=DEADLINE_SECONDS, check=False,
    )  # fmt: skip
    return Played(done.returncode, done.stdout, done.stderr)


class Running:
    """A performance that goes on; what it says is read line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._rest = b""

    @property
    def out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def tell(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def line(self) -> bytes:
        """The next line; b"" at the end."""
        until = time.monotonic() + DEADLINE_SECONDS
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            assert left > 0 and select.select([self.out], [], [], left)[0], "it says nothing"
            data = os.read(self.out.fileno(), 65_536)
            if not data:
                break
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.line())
        return event

    def event_of(self, *kinds: str) -> dict[str, Any]:
        """The next event of one of these types."""
        while (event := self.event()).get("type") not in kinds:
            pass
        return event

    def is_quiet(self, seconds: float = 0.2) -> bool:
        """Whether it neither speaks nor ends for a while."""
        return not self._rest and not select.select([self.out], [], [], seconds)[0]

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        return self.process.wait(DEADLINE_SECONDS)


@contextmanager
def playing(
    folder: Path, script: str | None, dialect: str, *words: str,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Running]:  # fmt: skip
    """Play a script that may not end by itself. Its input stays open, its errors go to a file."""
    with (folder / "errors").open("wb") as errors:
        process = subprocess.Popen(
            words_for(folder, script, dialect, *words, environment=environment), cwd=folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    try:
        yield Running(process)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
