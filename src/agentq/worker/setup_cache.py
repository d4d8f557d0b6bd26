"""What a role's set-up made, kept by the digest of its lock files: the next workspace copies it.

Entries are copies, never links: whatever an agent does to the folder in its own workspace, the
entry stays as it was. They are filled only from a workspace that is exactly what the repository
holds, before any agent has worked there, so no attempt can leave something for another one.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import stat
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from agentq.private_files import make_folder
from agentq.worker.folder_removal import remove_tree

#: So many entries are kept, those that were used last.
ENTRIES_KEPT = 8
_LOCK_BYTES_MAX = 64 * 1024 * 1024
_LOOK_SECONDS = 0.2


def lock_digest(workspace: Path, line: str, locks: Sequence[str], folders: Sequence[str]) -> str:
    """The digest of all that decides what the set-up makes; "" if there is no lock file."""
    found = {name: content for name in locks if (content := _content(workspace / name))}
    if not found:
        return ""
    digest = hashlib.sha256()
    machine = (platform.system(), platform.machine(), platform.libc_ver()[0])
    files = [text for pair in sorted(found.items()) for text in pair]
    for part in (line, *machine, *folders, *files):
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    """A lock file, unless it is a link or none at all."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return file.read(_LOCK_BYTES_MAX)
    return b""


class SetupCache:
    """The entries below one folder, each named by its digest."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def restore(
        self, digest: str, workspace: Path, folders: Sequence[str], check: Callable[[], None]
    ) -> bool:
        """Copy an entry into a workspace; False if there is none, or it cannot be had whole.

        `check` is called again and again meanwhile, and raises if the attempt must end.
        """
        entry = self.root / digest
        if not entry.is_dir() or any(os.path.lexists(workspace / each) for each in folders):
            return False
        kept = [each for each in folders if (entry / each).is_dir()]
        is_whole = False
        try:
            is_whole = all(_copy(entry / each, workspace / each, check) for each in kept)
        finally:
            if not is_whole:  # somebody has removed the entry meanwhile, or the disk is full
                for each in kept:
                    remove_tree(workspace / each)
        if is_whole:
            with suppress(OSError):
                os.utime(entry)  # it was used: older ones go first
        return is_whole

    def fill(
        self, digest: str, workspace: Path, folders: Sequence[str], check: Callable[[], None]
    ) -> bool:
        """Keep what the set-up has made; False if it made none of these folders, or cannot."""
        made = [each for each in folders if _is_folder(workspace / each)]
        entry = self.root / digest
        if not made or entry.exists():
            return False
        make_folder(self.root)
        temporary = self.root / f".tmp-{secrets.token_hex(8)}"
        try:
            temporary.mkdir(mode=0o700)
            if not all(_copy(workspace / each, temporary / each, check) for each in made):
                return False
            temporary.rename(entry)
        except OSError:
            return False  # somebody else was first, or there is no room: it is only a cache
        finally:
            remove_tree(temporary)
        self._drop_oldest()
        return True

    def _drop_oldest(self) -> None:
        with suppress(OSError):
            entries = [each for each in self.root.iterdir() if not each.name.startswith(".")]
            entries.sort(key=lambda each: each.stat().st_mtime, reverse=True)
            for each in entries[ENTRIES_KEPT:]:
                remove_tree(each)


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _copy(source: Path, target: Path, check: Callable[[], None]) -> bool:
    """Copy a folder, sharing its blocks until somebody writes where the disk can; True if whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    words = ["cp", "-a", "--reflink=auto", "--no-target-directory", "--", str(source), str(target)]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as copying:
        try:
            while True:
                check()
                with suppress(subprocess.TimeoutExpired):
                    return copying.wait(_LOOK_SECONDS) == 0
        finally:
            if copying.poll() is None:
                copying.kill()
