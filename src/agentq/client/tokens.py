"""Tokens of attempts: what a worker gives to its agent, good for that attempt and nothing else.

A token is a keyed digest of the task, the epoch and what its role is granted. The key lies beside
the artifacts, readable for the user whose workers run there; nothing about a token is stored, and
it never expires: the epoch in it does.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path

from agentq.private_files import make_folder

_NAME = ".token-key"
_KEY_BYTES = 32


def token_for(root: str, task_id: str, epoch: int, grants: Iterable[str] = ()) -> str:
    """The token of one attempt; `grants` are what its role may do beyond speaking for itself."""
    said = "\n".join((task_id, str(epoch), *sorted(grants)))
    content = said.encode("utf-8", "surrogateescape")
    return hmac.new(_key(Path(root)), content, hashlib.sha256).hexdigest()


def is_good(root: str, task_id: str, epoch: int, token: str, grants: Iterable[str] = ()) -> bool:
    """Whether this token was made for this attempt, with these grants."""
    expected = token_for(root, task_id, epoch, grants)
    return hmac.compare_digest(expected.encode(), token.encode("utf-8", "surrogateescape"))


def _key(root: Path) -> bytes:
    """The key; made by whoever needs it first, whole or not at all."""
    path = root / _NAME
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    make_folder(root)
    handle, made = tempfile.mkstemp(prefix=_NAME, dir=root)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(made, path)  # another process may have been first: theirs counts
    finally:
        os.unlink(made)  # noqa: PTH108
    return path.read_bytes()
