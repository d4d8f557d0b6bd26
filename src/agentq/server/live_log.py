"""The live log of an attempt as a stream: what the agent says, as it says it.

The id of each piece is the position after it, so `Last-Event-ID` says where to go on. Pieces end
between characters. When the attempt is over an event `end` says so: what is kept of the log then
stands among the artifacts.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentq.contracts.artifacts import LivePart
from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.errors import AgentqError, NotFound
from agentq.server.api import Response, encode
from agentq.server.streams import EventStream, Receive, Send, StillGood

if TYPE_CHECKING:
    from agentq.server.app import HttpApp

#: How often a growing log is looked at: output rings no doorbell.
_LOOK_SECONDS = 0.2
_PART_BYTES = 1 << 16


class LiveLog:
    """Reads the log of one attempt to where it is now, again and again. Its calls may block."""

    def __init__(self, service: Service, who: Principal, ref: str, epoch: int) -> None:
        self._service = service
        self._who = who
        self._ref = ref
        self._epoch = epoch

    def read(self, position: int) -> tuple[LivePart | None, bool]:
        """What is new, None if there is no live log; and whether the attempt is over."""
        # The task first: what was said before the attempt ended is then surely there to be read.
        task = self._service.task(self._who, self._ref)
        over = task.is_over(self._epoch) or (task.is_terminal and not task.holder)
        try:
            part = self._service.live_read(self._who, self._ref, self._epoch, position, _PART_BYTES)
        except NotFound:
            return None, over
        return whole_characters(part, over=over), over


async def follow_log(
    app: HttpApp,
    live: LiveLog,
    still_good: StillGood,
    position: int,
    receive: Receive,
    send: Send,
) -> Response | None:
    """Send what is said until the attempt is over, the client goes, or the server ends; an answer
    instead if it was over already."""
    part, over = await app.in_thread(live.read, position)
    if part is None and over:
        return Response(204, b"", {})  # a browser does not come again
    more = asyncio.Event()
    stream = EventStream(send, more, still_good)
    await stream.start()
    with stream.watched(receive):
        while not app.stopping and await stream.is_wanted():
            if part is not None and part.position > position:
                position = part.position
                await stream.send(_piece(part))
            elif over:
                await stream.send(b"event: end\ndata: {}\n\n")
                break
            else:
                await _pause(more)
            try:
                part, over = await app.in_thread(live.read, position)
            except AgentqError:
                break  # the client comes again from where it was
    await stream.end()
    return None


def whole_characters(part: LivePart, *, over: bool) -> LivePart:
    """Without the beginning of a character at the end, as long as its rest may come."""
    data = part.data
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue  # inside a character
        length = 2 if byte >> 5 == 0b110 else 3 if byte >> 4 == 0b1110 else (
            4 if byte >> 3 == 0b11110 else 1
        )  # fmt: skip
        if length > back and not over:
            return LivePart(data[:-back], part.position - back, part.dropped)
        break
    return part


def _piece(part: LivePart) -> bytes:
    data = encode({"text": part.data.decode("utf-8", "replace"), "dropped": part.dropped})
    return b"id: %d\nevent: output\ndata: %s\n\n" % (part.position, data)


async def _pause(more: asyncio.Event) -> None:
    """Until the log may have grown, or somebody has gone."""
    loop = asyncio.get_running_loop()
    timer = loop.call_later(_LOOK_SECONDS, more.set)
    try:
        await more.wait()
    finally:
        timer.cancel()
        more.clear()
