"""Sessions as files, so that a restart of the server ends none of them: one file for each.

A file is named by the digest of its cookie and says for whom the session is; when it was last used
is the file's own time. A token is kept under a pad that only the cookie gives, so that whoever
reads the file can neither show the one nor the other. Whoever removes a file ends its session, also
that of a server which runs. The folder is its owner's alone, who can open the ledger anyway.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agentq.private_files import OTHERS, create_file, make_folder

log = logging.getLogger("agentq.server")

_KEY_CHARS = 64
_FILE_BYTES_MAX = 4096


def sessions_folder(home: str) -> Path:
    """Where the servers of an installation keep sessions, below what is its own on this machine."""
    return Path(home) / "sessions"


class KeptSession(NamedTuple):
    """What a file says: a person of this machine, or a token under its pad; times in seconds."""

    person: str
    sealed_token: str
    opened_at: float
    used_at: float


class SessionFiles:
    """The sessions in one folder. Nothing here raises: a session that cannot be kept is not."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, key: str, kept: KeptSession) -> bool:
        """Keep a session; whether it is kept."""
        draft = self._folder / f".{key}"
        plain = {"person": kept.person, "token": kept.sealed_token, "opened_at": kept.opened_at}
        try:
            make_folder(self._folder)
            if not self._is_private():
                log.warning("sessions are not kept: others may enter %s", self._folder)
                return False
            with open(create_file(draft), "wb") as file:  # noqa: PTH123 - a descriptor
                file.write(json.dumps(plain).encode())
            os.utime(draft, (kept.used_at, kept.used_at))
            draft.rename(self._folder / key)
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            log.warning("a session is not kept and ends with this server: %s", error)
            return False
        return True

    def load(self, key: str) -> KeptSession | None:
        """The session of a cookie's digest; None if there is none that can be read."""
        try:
            if not self._is_private():
                return None
            with (self._folder / key).open("rb") as file:
                plain = json.loads(file.read(_FILE_BYTES_MAX))
                used_at = os.fstat(file.fileno()).st_mtime
            return KeptSession(
                str(plain["person"]), str(plain["token"]), float(plain["opened_at"]), used_at
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("a session cannot be read: %s", error)
            return None

    def is_there(self, key: str) -> bool:
        return (self._folder / key).exists()

    def touch(self, key: str, used_at: float) -> None:
        with suppress(OSError):  # then it ends sooner
            os.utime(self._folder / key, (used_at, used_at))

    def remove(self, key: str) -> None:
        with suppress(OSError):  # another has, or nobody can
            (self._folder / key).unlink()

    def prune(self, oldest: float, most: int) -> None:
        """Remove those last used before a moment, and of more than so many the longest unused."""
        known = sorted(self._known(), reverse=True)
        for number, (used_at, key) in enumerate(known):
            if number >= most or used_at < oldest:
                self.remove(key)

    def remove_all(self) -> int:
        """End all sessions; how many there were."""
        found = [key for _, key in self._known()]
        for key in found:
            self.remove(key)
        return len(found)

    def _known(self) -> Iterator[tuple[float, str]]:
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._folder):
                with suppress(FileNotFoundError):
                    if len(entry.name.lstrip(".")) == _KEY_CHARS:
                        yield entry.stat().st_mtime, entry.name

    def _is_private(self) -> bool:
        state = self._folder.stat()
        return state.st_uid == os.geteuid() and not state.st_mode & OTHERS


def sealed(secret: str, token: str) -> str:
    """A token under the pad of a cookie. Each cookie is new, so each pad is used once."""
    return _padded(secret, token.encode()).hex()


def unsealed(secret: str, text: str) -> str:
    """The token again; some other text if it was changed, which is nobody's token."""
    return _padded(secret, bytes.fromhex(text)).decode("utf-8", "replace")


def _padded(secret: str, data: bytes) -> bytes:
    pad = hashlib.shake_256(b"agentq session token\0" + secret.encode()).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, pad, strict=True))
