"""One reader of the log for everybody who follows it.

Five hundred boards must not mean five hundred queries for every event. The feed reads the log once
whenever it has grown, makes the bytes that are sent once, and keeps the newest: a follower that is
further back reads pages of its own until it has caught up. Bursts come together, at most a tenth of
a second later.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM, Principal
from agentq.core.errors import AgentqError
from agentq.core.triggers import LogEntry
from agentq.ledger.log_codec import entry_to_plain
from agentq.server.api import encode
from agentq.server.wakeups import Wakeups

log = logging.getLogger("agentq.server")

PAGE = 500
_COALESCE_SECONDS = 0.1
#: The log is looked at so often even if no ring comes: the net under a lost one.
_LOOK_SECONDS = 10.0
_KEPT_BYTES = 8 << 20

#: A position, and the event at it as it is sent.
Line = tuple[int, bytes]


class EventFeed:
    """Reads while somebody follows. For one event loop.

    `render` makes what is sent of a page of events: lines with the position of each, of which the
    last is that of the page. It may ask the ledger. `aside` is something that has no position: who
    follows is sent the newest of it.
    """

    def __init__(
        self,
        service: Service,
        wakeups: Wakeups,
        in_thread: Callable[..., Awaitable[Any]],
        render: Callable[[Sequence[LogEntry]], list[Line]] | None = None,
    ) -> None:
        self._render = render or lines_of
        self._service = service
        self._wakeups = wakeups
        self._in_thread = in_thread
        self._followers: set[asyncio.Event] = set()
        self._reader: asyncio.Task[None] | None = None
        self._known = asyncio.Event()
        self._positions: list[int] = []
        self._lines: list[bytes] = []
        self._bytes = 0
        #: What came after this position is kept.
        self.start = 0
        self._joined: dict[int, tuple[int, bytes]] = {}
        self.failed = False
        #: How often it was said, and what.
        self.aside: tuple[int, bytes] = (0, b"")

    @contextmanager
    def follower(self) -> Iterator[asyncio.Event]:
        """An event that is set when there is more, or nothing more will come."""
        more = asyncio.Event()
        self._followers.add(more)
        if self._reader is None:
            self.failed = False
            self._known.clear()
            self._reader = asyncio.ensure_future(self._read())
        try:
            yield more
        finally:
            self._followers.discard(more)
            if not self._followers and self._reader is not None:
                self._reader.cancel()
                self._reader = None

    async def known(self) -> None:
        """Wait until the feed has begun."""
        await self._known.wait()

    def after(self, position: int) -> tuple[int, bytes] | None:
        """What came after a position and where that ends; None if it is not kept any more."""
        if position < self.start:
            return None
        found = self._joined.get(position)
        if found is None:
            first = bisect_right(self._positions, position)
            end = self._positions[-1] if first < len(self._positions) else position
            # Most followers are at the same place.
            found = self._joined[position] = (end, b"".join(self._lines[first:]))
        return found

    def stop(self) -> None:
        """Read no more, and let whoever follows know: the server is about to end."""
        if self._reader is not None:
            self._reader.cancel()
        self._end_with_failure()

    def say_aside(self, data: bytes) -> None:
        """Send this to all who follow, and to whoever comes before there is something newer."""
        self.aside = (self.aside[0] + 1, data)
        self.wake_all()

    def page(self, who: Principal, position: int) -> tuple[int, list[Line]]:
        """What came after a position: how many events, and what is sent of them. May block."""
        entries = self._service.events_after(who, position, PAGE)
        return len(entries), self._render(entries) if entries else []

    def wake_all(self) -> None:
        for follower in self._followers:
            follower.set()

    async def _read(self) -> None:
        try:
            with self._wakeups.bell((EVENTS_TOPIC,)) as bell:
                await self._begin()
                while True:
                    head = self._positions[-1] if self._positions else self.start
                    count, lines = await self._in_thread(self.page, SYSTEM, head)
                    if lines:
                        self._keep(lines)
                        self.wake_all()
                    if not lines:
                        await bell.wait(_LOOK_SECONDS)
                    elif count < PAGE:
                        await asyncio.sleep(_COALESCE_SECONDS)
        except AgentqError as error:
            # Followers come again from where they were, and find out themselves.
            log.warning("the log cannot be followed: %s", error)
            self._end_with_failure()
        except Exception:
            log.exception("following the log failed in a way that nobody thought of")
            self._end_with_failure()

    async def _begin(self) -> None:
        self._positions, self._lines, self._bytes = [], [], 0
        self._joined.clear()
        self.start = await self._in_thread(self._service.last_position, SYSTEM)
        self._known.set()

    def _end_with_failure(self) -> None:
        self.failed = True
        self._reader = None
        self._known.set()
        self.wake_all()

    def _keep(self, lines: Sequence[Line]) -> None:
        self._joined.clear()
        for position, line in lines:
            self._positions.append(position)
            self._lines.append(line)
            self._bytes += len(line)
        if self._bytes > _KEPT_BYTES:
            half = len(self._lines) // 2
            self.start = self._positions[half - 1]
            self._bytes -= sum(map(len, self._lines[:half]))
            del self._positions[:half], self._lines[:half]


def lines_of(entries: Sequence[LogEntry]) -> list[Line]:
    """Events as they are sent."""
    return [(entry.position, _line(entry)) for entry in entries]


def _line(entry: LogEntry) -> bytes:
    data = encode(entry_to_plain(entry))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.position, entry.event.kind.encode(), data)
