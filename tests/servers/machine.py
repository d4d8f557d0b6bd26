"""What a test needs of the machine itself and may not be given: a small disk, another user."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.missing import go_without

NOBODY = 65534


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A real file system of this size ("1m"), at a folder that is made for it."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "agentq-test", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        go_without("small disk", f"Mounting one needs root: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def as_nobody() -> Iterator[None]:
    """What is done within is done by a user without any rights."""
    if os.geteuid() != 0:
        go_without("other user", "Becoming somebody else needs root.")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
