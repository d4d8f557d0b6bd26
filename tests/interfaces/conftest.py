"""A folder with agentq in it, and three ways to run the command there."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from agentq.cli.main import cli
from agentq.settings import FILE_NAME, Settings, load_settings, read_file
from tests.ways import REMOTE, kept_variables, served

PROGRAM = [sys.executable, "-m", "agentq"]


@dataclass(frozen=True)
class Answer:
    """What a command said, and how it ended."""

    status: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    def ok(self) -> Answer:
        assert self.status == 0, f"exit status {self.status}: {self.err or self.out}"
        return self

    def refused(self, status: int, *words: str) -> Answer:
        """Ended with this status, said these words, and showed no traceback."""
        assert self.status == status, f"exit status {self.status}: {self.err}{self.out}"
        assert "Traceback" not in self.err + self.out
        for word in words:
            assert word in self.err + self.out
        return self


def run_here(*words: str, stdin: str | bytes | None = None) -> Answer:
    """Run the command in this process."""
    result = CliRunner().invoke(cli, list(words), input=stdin)
    return Answer(result.exit_code, result.stdout, result.stderr)


def run_in(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Answer:
    """Run the command in this process, with the folder and the environment of a program."""
    with chdir(folder), patch.dict(os.environ, clean_environment(env), clear=True):
        return run_here(*words)


def run_program(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    user: int | None = None,
) -> Answer:
    """Run the command as a program of its own."""
    done = subprocess.run(
        [*PROGRAM, *words],
        env=clean_environment(env),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        user=user,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def clean_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AGENTQ_") and name not in {"NO_COLOR", "COLUMNS"}
    }
    # Bytecode is made once for all the programs that these tests start.
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    kept |= {"TERM": "xterm-256color", "PYTHONFAULTHANDLER": "1"}
    kept["AGENTQ_AGENT"] = "none"  # `agentq init` would look for agents that are installed here
    return {**kept, **kept_variables(), **(more or {})}


def run_on_terminal(
    words: Sequence[str],
    env: Mapping[str, str] | None = None,
    columns: int = 100,
    typed: str = "",
) -> Answer:
    """Run the command on a terminal; what it writes there is `out`."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = subprocess.Popen(
        [*PROGRAM, *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean_environment(env),
        close_fds=True,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    data = b""
    try:
        while chunk := os.read(ours, 65536):
            data += chunk
    except OSError:
        pass  # Linux says so when the other side has closed
    os.close(ours)
    return Answer(child.wait(timeout=60), data.decode().replace("\r\n", "\n"), "")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> Iterator[Path]:
    """An installation, and the folder that commands run in; through a server the variables lead to
    it, and it is elsewhere."""
    for name in ("AGENTQ_TASK_ID", "AGENTQ_EPOCH", "AGENTQ_URL", "AGENTQ_ACTOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("USER", "alice")
    there = tmp_path / "there" if way == REMOTE else tmp_path
    there.mkdir(exist_ok=True)
    monkeypatch.chdir(there)
    run_here("init").ok()
    if way != REMOTE:
        yield tmp_path
        return
    monkeypatch.chdir(tmp_path)
    with served(read_file(there / FILE_NAME)) as elsewhere:
        for name, value in elsewhere.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AGENTQ_HOME", str(tmp_path / "here"))
        yield tmp_path


@pytest.fixture
def on_postgres(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_postgres_url: str) -> str:
    """An installation on a server; its address."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run_here("init", "--url", fresh_postgres_url).ok()
    return fresh_postgres_url


def doctor_checks(status: int = 0) -> dict[str, Any]:
    """What `agentq doctor` says, by the name of the check."""
    answer = run_here("doctor", "--json")
    assert answer.status == status, answer.out + answer.err
    return {check["name"]: check for check in answer.json()["checks"]}


Submit = Callable[..., str]


@pytest.fixture
def submit(home: Path) -> Submit:
    """Submit a task by words of the command line; its id."""

    def submit_task(*words: str, to: str = "worker") -> str:
        answer = run_here("submit", "--to", to, "--instructions", "do it", *words).ok()
        return answer.out.strip()

    return submit_task


@pytest.fixture
def settings(home: Path, way: str) -> Settings:
    """Of the same installation, for the SDK."""
    return load_settings() if way == REMOTE else read_file(home / FILE_NAME)


def count_tasks() -> int:
    stats = run_here("stats", "--json").ok().json()
    return sum(stats["totals"].values())
