"""Answers that go on: server-sent events, until the client goes or the server ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agentq.contracts.routes import EVENT_STREAM_TYPE
from agentq.server.body import until_gone
from agentq.server.browser_rules import SECURITY_HEADERS

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
#: Whether whoever asked may still; it may ask the ledger.
StillGood = Callable[[], Awaitable[bool]]

#: Something is said so often, so that both ends notice when the other has gone.
QUIET_SECONDS = 15.0
#: How long a stream goes on after its token or session has ended, if something happens.
TRUST_SECONDS = 10.0
_HEADERS = {**SECURITY_HEADERS, "content-type": EVENT_STREAM_TYPE, "x-accel-buffering": "no"}


class EventStream:
    """One open stream. `more` is set by whoever has something to send, and when the client goes."""

    def __init__(self, send: Send, more: asyncio.Event, still_good: StillGood) -> None:
        self._send = send
        self._more = more
        self._still_good = still_good
        self._said_at = self._asked_at = time.monotonic()
        self.gone = False

    async def start(self) -> None:
        headers = [(name.encode(), text.encode()) for name, text in _HEADERS.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self.send(b"retry: 1000\n\n")

    async def send(self, data: bytes) -> None:
        self._said_at = time.monotonic()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def wait(self) -> None:
        """Sleep until there may be more."""
        await self._more.wait()
        self._more.clear()

    async def is_wanted(self) -> bool:
        """Whether to go on. Says now and then that the server is still there."""
        if self.gone:
            return False
        now = time.monotonic()
        if now - self._asked_at >= TRUST_SECONDS:
            self._asked_at = now
            if not await self._still_good():
                return False
        if now - self._said_at >= QUIET_SECONDS:
            await self.send(b": still here\n\n")
        return True

    async def end(self) -> None:
        if not self.gone:
            await self._send({"type": "http.response.body", "body": b""})

    @contextmanager
    def watched(self, receive: Receive) -> Iterator[None]:
        """Notice when the client goes, and wake up now and then."""
        leaving = asyncio.ensure_future(until_gone(receive))
        leaving.add_done_callback(self._left)
        pulse = asyncio.get_running_loop().call_later(QUIET_SECONDS, self._pulse)
        self._timer = pulse
        try:
            yield
        finally:
            self._timer.cancel()
            leaving.cancel()

    def _left(self, leaving: asyncio.Future[None]) -> None:
        if not leaving.cancelled():
            self.gone = True
            self._more.set()

    def _pulse(self) -> None:
        self._more.set()
        self._timer = asyncio.get_running_loop().call_later(QUIET_SECONDS, self._pulse)
