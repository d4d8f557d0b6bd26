"""Bubblewrap around an agent: a PID namespace, a read-only disk, and a network only if allowed.

The disk looks the same inside, so that tools, interpreters and certificates are found where they
always are; only the workspace and the paths named in the settings can be written, and `/tmp` is a
private one, empty but for agentq itself if it is installed there.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentq.core.errors import Invalid, Unavailable
from agentq.settings import FILE_NAME, MEMORY, Settings

#: Bubblewrap stands twice between us and the agent: outside, and as process 1 of the namespace.
BWRAP_PROCESSES = 2

_TRIAL_SECONDS = 20
#: The folder that the package agentq is imported from.
_PACKAGES = Path(__file__).parents[2]


@dataclass(frozen=True)
class Sandbox:
    """What an agent may touch; `writable` comes on top of its own workspace."""

    kind: Literal["none", "bwrap"]
    network: bool = True
    writable: tuple[Path, ...] = ()
    #: Folders that are empty inside, and files that hold nothing; those that are there.
    hidden: tuple[Path, ...] = ()
    #: The workspace is for reading, but for what of it is in `writable`.
    read_only: bool = False

    def __post_init__(self) -> None:
        for path in self.writable:
            if not path.is_absolute():
                raise Invalid(
                    f"A writable path of a sandbox is absolute; got {str(path)!r}.",
                    "Write the whole path, from / on.",
                )


@functools.cache
def available() -> bool:
    """Whether bubblewrap is installed and may make namespaces here: tried once, for real."""
    words = ("bwrap", *_walls(Sandbox("bwrap", network=False)), "--", "true")
    try:
        trial = subprocess.run(words, capture_output=True, timeout=_TRIAL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return trial.returncode == 0


def wrap(argv: Sequence[str], cwd: Path, sandbox: Sandbox, mark: str = "") -> tuple[str, ...]:
    """The command line that runs `argv` in `cwd` inside the sandbox.

    `mark` stands in it as well: inside, the supervisor is out of sight, and bubblewrap is not.
    """
    if not available():
        raise Unavailable(
            'The settings ask for sandbox = "bwrap", but bubblewrap is not installed here, or may '
            "not make namespaces.",
            'Install the package `bubblewrap`, allow user namespaces, or set `sandbox = "none"`.',
        )
    folder = _real(cwd, "The workspace")
    words = [shutil.which("bwrap") or "bwrap", *_walls(sandbox)]
    writable = [_real(path, "The writable path") for path in sandbox.writable]
    # The launcher that agents report by runs the interpreter of this program.
    mounts = [(path, ["--ro-bind", path, path]) for path in _program_folders() if _is_in_tmp(path)]
    mounts += [(path, ["--bind", path, path]) for path in writable]
    mounts.append((folder, ["--ro-bind" if sandbox.read_only else "--bind", folder, folder]))
    hidden = [os.path.realpath(path) for path in sandbox.hidden if path.exists()]
    mounts += [(path, _hide(path)) for path in hidden]
    # What is hidden stays so within a writable folder, and a workspace within it is there again.
    for _, mount in sorted(mounts, key=lambda each: (each[0].count("/"), _is_shown(each[1]))):
        words += mount
    if mark:
        words += ["--unsetenv", mark]  # nobody has a variable of that name
    return (*words, "--chdir", folder, "--", *argv)


def _is_shown(mount: Sequence[str]) -> bool:
    """Whether a mount shows a path as it is; one that hides it may be `--ro-bind /dev/null` too."""
    return len(mount) == 3 and mount[1] == mount[2]


def _program_folders() -> list[str]:
    """Where agentq and its interpreter are installed."""
    return [os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, _PACKAGES)]


def _is_in_tmp(path: str) -> bool:
    return path.startswith("/tmp/")  # noqa: S108


def _walls(sandbox: Sandbox) -> list[str]:
    words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]  # noqa: S108
    words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
    words += ["--new-session", "--cap-drop", "ALL"]
    if not sandbox.network:
        # The sockets of local services (containers, desktops, agents for keys) live in /run, and
        # a read-only disk does not keep anybody from speaking through them.
        words += ["--unshare-net", "--tmpfs", "/run"]
    return words


def _hide(path: str) -> list[str]:
    return ["--tmpfs", path] if Path(path).is_dir() else ["--ro-bind", "/dev/null", path]


def hidden_paths(settings: Settings, workspaces: Path) -> tuple[Path, ...]:
    """What of an installation an agent has no business with: the ledger, the work and evidence of
    others, keys, and the settings with the addresses of it all."""
    found = [Path(settings.home), workspaces]
    if not settings.remote_artifacts:
        found.append(Path(settings.artifacts_root))
    if settings.url.startswith("sqlite:") and settings.sqlite_path != MEMORY:
        ledger = settings.sqlite_path
        found += [Path(f"{ledger}{end}") for end in ("", "-wal", "-shm", "-journal", ".bells")]
    if settings.source.endswith(FILE_NAME):
        found.append(Path(settings.source))
    # A file within a hidden folder is hidden with it, and nothing can be mounted over it there.
    found = [each for each in dict.fromkeys(found) if each.is_absolute()]
    folders = [each for each in found if each.is_dir()]
    return tuple(each for each in found if not any(above in each.parents for above in folders))


def _real(path: Path, what: str) -> str:
    """Symbolic links resolved: bubblewrap mounts over places, not over names for them."""
    real = os.path.realpath(path)
    if not Path(real).exists():
        raise Invalid(
            f"{what} {path} of a sandbox does not exist.",
            "Make it, or take it out of `writable` in the settings.",
        )
    if real == "/" or real.split("/")[1] in {"dev", "proc"}:
        raise Invalid(
            f"{what} {path} of a sandbox would open {real} to the agent.",
            'Name the folders that it needs, or set `sandbox = "none"`.',
        )
    return real
