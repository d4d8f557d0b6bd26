"""Events as a stream: in the order of commits, without gaps, from wherever the client left off.

The id of each event is its position in the log, so `Last-Event-ID` says where to go on. Bursts are
sent together, at most a tenth of a second later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.contracts.routes import EVENT_STREAM_TYPE
from agentq.contracts.service import Service
from agentq.core.access import Principal
from agentq.core.errors import AgentqError, Invalid
from agentq.core.triggers import LogEntry
from agentq.ledger.log_codec import entry_to_plain
from agentq.server.api import encode
from agentq.server.body import until_gone
from agentq.server.wakeups import Wakeups

if TYPE_CHECKING:
    from agentq.server.app import HttpApp

_COALESCE_SECONDS = 0.1
#: Something is said so often, so that both ends notice when the other has gone.
_QUIET_SECONDS = 15.0
_PAGE = 500


def start_of(query: Sequence[tuple[str, str]], headers: dict[str, str]) -> int | None:
    """The position to go on from; None for now."""
    text = headers.get("last-event-id", "") or dict(query).get("position", "")
    if not text:
        return None
    if not text.isdigit() or len(text) > 18:
        raise Invalid(f"A position is a whole number, got {text[:40]!r}.")
    return int(text)


async def follow(
    app: HttpApp,
    service: Service,
    wakeups: Wakeups,
    who: Principal,
    query: Sequence[tuple[str, str]],
    headers: dict[str, str],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Send events until the client goes, or the server ends."""
    position = start_of(query, headers)
    await wakeups.listen()
    with wakeups.bell((EVENTS_TOPIC,)) as bell:
        if position is None:
            position = await app.in_thread(service.last_position, who)
        entries = await app.in_thread(service.events_after, who, position, _PAGE)
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", EVENT_STREAM_TYPE.encode()),
                    (b"cache-control", b"no-store"),
                    (b"x-accel-buffering", b"no"),
                ],
            }
        )
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            await _piece(send, b"retry: 1000\n\n")
            while not gone.done() and not app.stopping:
                if entries:
                    position = entries[-1].position
                    await _piece(send, b"".join(map(_line, entries)))
                    if len(entries) < _PAGE:
                        await asyncio.sleep(_COALESCE_SECONDS)
                elif not await _rung_or_gone(bell.wait(_QUIET_SECONDS), gone):
                    await _piece(send, b": still here\n\n")
                try:
                    entries = await app.in_thread(service.events_after, who, position, _PAGE)
                except AgentqError:
                    return  # the client comes again from where it was
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})


async def _rung_or_gone(ring: Awaitable[bool], gone: asyncio.Future[None]) -> bool:
    waiting = asyncio.ensure_future(ring)
    both: set[asyncio.Future[Any]] = {waiting, gone}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        return True
    return waiting.result()


async def _piece(send: Callable[[dict[str, Any]], Awaitable[None]], data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


def _line(entry: LogEntry) -> bytes:
    data = encode(entry_to_plain(entry))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (entry.position, entry.event.kind.encode(), data)
