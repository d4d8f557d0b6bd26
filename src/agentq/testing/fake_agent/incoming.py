"""Lines of JSON on standard input, read while the steps are played.

A conversation over standard input may be cancelled in the middle of a step, so pausing means
listening: `IncomingMessages.pause` returns when the time has passed, or raises when a cancel has
come.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from agentq.core.errors import Invalid

LINE_BYTES_MAX = 16 << 20
_READ_BYTES = 65_536
_STDIN = 0


class Cancelled(Exception):
    """The other side wants this task to stop."""


class IncomingMessages:
    """The other side's messages, in the order they came."""

    def __init__(self, is_cancel: Callable[[dict[str, Any]], bool]) -> None:
        self._is_cancel = is_cancel
        self._partial = b""
        self._waiting: deque[dict[str, Any]] = deque()
        self._closed = False

    def next(self) -> dict[str, Any] | None:
        """The next message; None when the other side has closed."""
        while not self._waiting and not self._closed:
            self._read()
        return self._waiting.popleft() if self._waiting else None

    def answer_to(self, request_id: object) -> dict[str, Any] | None:
        """The response to this request, past whatever else comes first; None if none will come."""
        while True:
            for message in self._waiting:
                if "method" not in message and message.get("id") == request_id:
                    self._waiting.remove(message)
                    return message
            self._take_cancel()
            if self._closed:
                return None
            self._read()

    def pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self._take_cancel()
            left = until - time.monotonic()
            if left <= 0:
                return
            if self._closed:
                time.sleep(left)
            elif select.select([_STDIN], [], [], left)[0]:
                self._read()

    def _take_cancel(self) -> None:
        for message in self._waiting:
            if self._is_cancel(message):
                self._waiting.remove(message)
                raise Cancelled

    def _read(self) -> None:
        data = os.read(_STDIN, _READ_BYTES)
        self._closed = not data
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > LINE_BYTES_MAX:
            raise Invalid(f"A line on standard input is longer than {LINE_BYTES_MAX} bytes.")
        if self._closed and self._partial:
            lines, self._partial = [*lines, self._partial], b""
        self._waiting += (_message(each) for each in lines if each.strip())


def _message(data: bytes) -> dict[str, Any]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        shown = data[:60].decode(errors="replace")
        raise Invalid(f"Expected a line with a JSON object on standard input, got {shown!r}.")
    return message
