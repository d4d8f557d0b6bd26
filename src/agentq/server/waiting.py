"""Requests that wait: for a ring of the doorbell, or until something can be claimed.

A thousand workers that wait for the same role must not all ask the ledger when one task comes. One
of them is called; whoever gets something calls two more, and whoever gets nothing nobody, for then
there is nothing for the others either.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agentq.contracts.doorbell import role_topic
from agentq.server.api import Response, encode
from agentq.server.body import ClientGone, until_gone
from agentq.server.errors import HttpError
from agentq.server.wakeups import Wakeups

LONG_POLL_SECONDS_MAX = 60.0
#: The net under a ring that was lost.
_LOOK_SECONDS = 10.0
_SPREAD_SECONDS_MIN = 5.0
_NOTHING = encode({"value": []})

Receive = Callable[[], Awaitable[dict[str, Any]]]


class _ClaimLine:
    """Requests that wait for the same, in the order in which they came."""

    def __init__(self, wakeups: Wakeups, topic: str) -> None:
        self._waiting: dict[asyncio.Event, None] = {}
        self._listener = asyncio.ensure_future(self._listen(wakeups, topic))

    async def _listen(self, wakeups: Wakeups, topic: str) -> None:
        with wakeups.bell((topic,)) as bell:
            while True:
                await bell.wait(_LOOK_SECONDS)
                self.call(1)

    def call(self, count: int) -> None:
        """Let the first of those that are not called yet look."""
        for called in self._waiting:
            if count <= 0:
                return
            if not called.is_set():
                called.set()
                count -= 1

    def call_all(self) -> None:
        self.call(len(self._waiting))

    @contextmanager
    def place(self) -> Iterator[asyncio.Event]:
        """A place in the line: set when it is its turn to look."""
        called = asyncio.Event()
        self._waiting[called] = None
        try:
            yield called
        finally:
            del self._waiting[called]
            if called.is_set():
                self.call(1)  # it goes without having looked

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def close(self) -> None:
        self._listener.cancel()


class WaitingClaims:
    """Long polls for claims."""

    def __init__(self, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._lines: dict[tuple[Any, ...], _ClaimLine] = {}
        self._stopping = False

    async def claim(
        self,
        arguments: dict[str, Any],
        look: Callable[[], Awaitable[Response]],
        still_good: Callable[[], Awaitable[bool]],
        receive: Receive,
    ) -> Response:
        """Claim, or wait until something can be claimed; nothing for a client that left, or
        that may no longer."""
        deadline = time.monotonic() + _spread(arguments["wait_seconds"])
        await self._wakeups.listen()
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            with self._line(arguments) as line, line.place() as called:
                while True:
                    called.clear()
                    answer = await look()
                    if answer.status != 200 or answer.body != _NOTHING:
                        line.call(2)
                        return answer
                    left = deadline - time.monotonic()
                    if left <= 0 or self._stopping:
                        return answer
                    await _first_of(called.wait(), gone, left)
                    if gone.done():
                        raise ClientGone
                    if not await still_good():
                        return answer  # the client comes again, and is told
        finally:
            gone.cancel()

    def stop(self) -> None:
        """Let all of them end now: the server is about to."""
        self._stopping = True
        for line in self._lines.values():
            line.call_all()

    @contextmanager
    def _line(self, arguments: dict[str, Any]) -> Iterator[_ClaimLine]:
        """The line of those for whom nothing differs but who they are."""
        others = {"count", "holder", "lease_ms", "wait_seconds"}
        key = tuple(
            tuple(value) if isinstance(value, list) else value
            for name, value in arguments.items()
            if name not in others
        )
        line = self._lines.get(key)
        if line is None:
            topic = role_topic(str(arguments["role"]))
            line = self._lines[key] = _ClaimLine(self._wakeups, topic)
        try:
            yield line
        finally:
            if line.is_empty and self._lines.get(key) is line:
                line.close()
                del self._lines[key]


async def rings(
    wakeups: Wakeups,
    query: Sequence[tuple[str, str]],
    receive: Receive,
    is_stopping: Callable[[], bool],
) -> Response:
    """Answer when one of these topics is rung, or was since the cursor of the client."""
    plain = {name: value for name, value in query if name != "topic"}
    topics = frozenset(value for name, value in query if name == "topic")
    seconds = _seconds(plain.get("seconds", "0"))
    cursor = plain.get("since", "")
    await wakeups.listen()
    if not cursor:
        return Response(200, encode({"cursor": wakeups.cursor, "rung": []}))
    gone = asyncio.ensure_future(until_gone(receive))
    try:
        with wakeups.bell(topics) as bell:
            rung = wakeups.rung_since(cursor, topics)
            if not rung and seconds > 0 and not is_stopping():
                await _first_of(bell.rung.wait(), gone, seconds)
                if gone.done():
                    raise ClientGone
                rung = wakeups.rung_since(cursor, topics)
            return Response(200, encode({"cursor": wakeups.cursor, "rung": rung}))
    finally:
        gone.cancel()


async def _first_of(wanted: Awaitable[Any], gone: asyncio.Future[None], seconds: float) -> None:
    """Wait for one of them, or so long."""
    waiting = asyncio.ensure_future(wanted)
    both: set[asyncio.Future[Any]] = {waiting, gone}
    try:
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


def _spread(seconds: float) -> float:
    """How long to wait. Those that began together do not all come again at the same moment."""
    seconds = min(max(seconds, 0.0), LONG_POLL_SECONDS_MAX)
    return seconds * random.uniform(0.85, 1.0) if seconds >= _SPREAD_SECONDS_MIN else seconds


def _seconds(text: str) -> float:
    try:
        return _spread(float(text))
    except ValueError:
        raise HttpError(400, f"seconds is a number, got {text[:40]!r}.") from None
