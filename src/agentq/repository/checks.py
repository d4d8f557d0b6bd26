"""The check of a role, run again where a task's change meets a branch that has moved."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

_OUTPUT_BYTES_MAX = 3000
#: What a command of the role's settings gets to see, besides the names that the role gives.
_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR", "TZ")


class BranchCheck(msgspec.Struct, frozen=True):
    """What is run in the scratch worktree: the role's set-up, then its check."""

    verify: str = ""
    verify_timeout: int = 0
    setup: str = ""
    setup_timeout: int = 0
    environment: Collection[str] = ()


def run_check(check: BranchCheck, folder: Path, environment: Mapping[str, str]) -> str:
    """Run it; what went wrong, with the end of its output, or ""."""
    names = {*_NAMES, *check.environment}
    env = {name: value for name, value in environment.items() if name in names}
    if check.setup:
        problem = _run(check.setup, check.setup_timeout, folder, env)
        if problem:
            return problem
    return _run(check.verify, check.verify_timeout, folder, env)


def _run(line: str, timeout: int, folder: Path, env: Mapping[str, str]) -> str:
    from tempfile import TemporaryFile

    with TemporaryFile() as output:
        child = subprocess.Popen(
            ("/bin/sh", "-c", line), cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(timeout or None)
            why = "" if code == 0 else f"ended with exit code {code}"
        except subprocess.TimeoutExpired:
            why = f"took longer than {timeout} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - _OUTPUT_BYTES_MAX))
        end = output.read().decode("utf-8", "replace").strip()
    return f"`{line}` {why}; the end of its output:\n{end}" if why else ""
