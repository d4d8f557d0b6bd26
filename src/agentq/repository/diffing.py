"""The patch of what a task changed, from its base to its snapshot, written by git itself."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from agentq.core.errors import Unavailable
from agentq.repository.git import Git, GitLocation
from agentq.repository.picking import TaskWork, without_task_folder

#: As the evidence of an attempt is written, whatever the user's settings say of diffs.
_WORDS = ("diff", "-M", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
_PATCH = ("--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/", "--no-relative")
_CHUNK = 1 << 16


def open_diff(
    git: Git, common: Path, work: TaskWork, *, stat: bool = False, names: bool = False,
    color: bool = False, into: IO[bytes] | None = None,
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start the git that writes the difference: itself `into` a file, else to a pipe."""
    shared = GitLocation(common, common, is_tree=False)
    tree = without_task_folder(git, shared, work.commit, work.base, work.known)
    how = ("--name-only",) if names else ("--stat",) if stat else () if color else _PATCH
    paint = "--color=always" if color else "--no-color"
    command, surroundings = git.command(shared, *_WORDS, paint, *how, work.base, tree, "--")
    return _start(command, surroundings, common, into=_file(into))


def open_patch(
    git: Git, folder: Path, patch: IO[bytes], *, names: bool = False
) -> subprocess.Popen[bytes]:
    """Start the git that counts what a patch changes, where there is no repository to ask."""
    words = ("apply", "--numstat" if names else "--stat", "-")
    command, surroundings = git.command(GitLocation(folder), *words)
    return _start(command, surroundings, folder, patch)


def _file(into: IO[bytes] | None) -> int:
    """The number of a file that another process can write to as it is; else that of a pipe."""
    if into is None:
        return subprocess.PIPE
    try:
        into.flush()
        return into.fileno()
    except (AttributeError, OSError):
        return subprocess.PIPE


def _start(
    command: Sequence[str], surroundings: Mapping[str, str], folder: Path,
    stdin: IO[bytes] | None = None, into: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:  # fmt: skip
    return subprocess.Popen(
        command, env=surroundings, cwd=folder, stdin=stdin or subprocess.DEVNULL,
        stdout=into,
    )  # fmt: skip


def copy_output(child: subprocess.Popen[bytes], into: IO[bytes]) -> None:
    """Copy what a git writes, unless it writes there itself; raises if it did not end well."""
    with child:
        try:
            while child.stdout is not None and (piece := child.stdout.read(_CHUNK)):
                into.write(piece)
        except BaseException:
            child.kill()
            raise
    if child.returncode == -signal.SIGPIPE:
        raise BrokenPipeError  # whoever reads it has seen enough
    if child.returncode:
        raise Unavailable(f"git could not write the difference (exit code {child.returncode}).")
