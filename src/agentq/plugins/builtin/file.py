"""Notices as JSON lines at the end of a file: for tests, and for whatever reads files."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from agentq.core.errors import Invalid
from agentq.plugins.hooks import Notice, hookimpl


class NoticeFile:
    """Appends to one file; a line is there whole or not at all."""

    def __init__(self, path: str) -> None:
        self._path = path

    def send(self, notices: Sequence[Notice]) -> None:
        lines = b"".join(msgspec.json.encode(each) + b"\n" for each in notices)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            while lines:
                lines = lines[os.write(file, lines) :]
            os.fsync(file)
        finally:
            os.close(file)


@hookimpl
def notify(options: Mapping[str, Any]) -> NoticeFile:
    path = options.get("path")
    if not isinstance(path, str) or not path:
        raise Invalid("A target of the plugin file needs a path.", 'As in path = "notices.jsonl".')
    return NoticeFile(path)
