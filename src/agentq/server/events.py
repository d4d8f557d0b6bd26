"""Events as a stream: in the order of commits, without gaps, from wherever the client left off.

The id of each event is its position in the log, so `Last-Event-ID` says where to go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.errors import AgentqError, Invalid
from agentq.server.event_feed import EventFeed
from agentq.server.streams import EventStream, Receive, Send, StillGood

if TYPE_CHECKING:
    from agentq.server.app import HttpApp


def start_of(query: Sequence[tuple[str, str]], headers: dict[str, str]) -> int | None:
    """The position to go on from; None for now."""
    text = headers.get("last-event-id", "") or dict(query).get("position", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise Invalid(f"A position is a whole number, got {text[:40]!r}.")
    return int(text)


async def follow(
    app: HttpApp,
    service: Service,
    feed: EventFeed,
    who: Principal,
    still_good: StillGood,
    position: int | None,
    receive: Receive,
    send: Send,
) -> None:
    """Send events until the client goes, or the server ends."""
    with feed.follower() as more:
        await feed.known()
        # This also asks whether the principal may read the events at all.
        last = await app.in_thread(service.last_position, who)
        stream = EventStream(send, more, still_good)
        await stream.start()
        with stream.watched(receive):
            await _send_events(app, feed, who, last if position is None else position, stream)
        await stream.end()


async def _send_events(
    app: HttpApp,
    feed: EventFeed,
    who: Principal,
    position: int,
    stream: EventStream,
) -> None:
    said = 0
    while not (app.stopping or feed.failed) and await stream.is_wanted():
        if feed.aside[0] != said:
            said, data = feed.aside
            await stream.send(data)
        found = feed.after(position)
        if found is None:
            try:
                _, lines = await app.in_thread(feed.page, who, position)
            except AgentqError:
                return  # the client comes again from where it was
            # Nothing: all between here and the beginning of the feed has been deleted.
            position = lines[-1][0] if lines else max(position, feed.start)
            if lines:
                await stream.send(b"".join(line for _, line in lines))
        elif found[1]:
            position = found[0]
            await stream.send(found[1])
        else:
            await stream.wait()
