"""Clients of an HTTP server in numbers: many connections in one event loop, and little else.

A full client would be measured with the server. These send bytes that are made before, and look no
further into an answer than they must.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

CONNECT_TOGETHER = 50


def request(method: str, path: str, port: int, token: str, body: bytes = b"", **headers: str) -> (
    bytes
):  # fmt: skip
    """The bytes of one request."""
    lines = [f"{method} {path} HTTP/1.1", f"host: 127.0.0.1:{port}",
             f"authorization: Bearer {token}"]  # fmt: skip
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Asker(asyncio.Protocol):
    """Sends the same request again whenever it is answered, until told to end."""

    def __init__(self, sent: bytes, is_over: Callable[[], bool]) -> None:
        self._sent = sent
        self._is_over = is_over
        self._seen = b""
        self.answers = 0
        self.failed = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._sent)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, found, body = self._seen.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.failed = head[:200].decode("latin-1")
            self.transport.close()
            return
        self._seen = body[length:]
        self.answers += 1
        if not self._is_over():
            self.transport.write(self._sent)

    def connection_lost(self, error: Exception | None) -> None:
        self.failed = self.failed or f"the connection ended: {error}"


async def asked(
    port: int, sent: bytes, connections: int, seconds: float,
    meanwhile: Callable[[], Awaitable[None]] | None = None,
) -> int:  # fmt: skip
    """How many answers came within these seconds; raises if one was no answer."""
    end = [float("inf")]
    loop = asyncio.get_running_loop()
    askers = []
    for number in range(connections):
        _, asker = await loop.create_connection(
            lambda: Asker(sent, lambda: time.monotonic() >= end[0]), "127.0.0.1", port
        )
        askers.append(asker)
        if number % CONNECT_TOGETHER == 0:
            await asyncio.sleep(0)
    if meanwhile is not None:
        await meanwhile()
    before = sum(asker.answers for asker in askers)
    end[0] = time.monotonic() + seconds
    await asyncio.sleep(seconds)
    found = sum(asker.answers for asker in askers) - before
    failed = [asker.failed for asker in askers if asker.failed]
    for asker in askers:
        asker.transport.close()
    if failed:
        raise RuntimeError(f"{len(failed)} of {connections} connections failed: {failed[0]}")
    return found


@dataclass
class Follower:
    """What one stream of events has brought: positions, and when each came."""

    positions: list[int] = field(default_factory=list)
    came_at: list[float] = field(default_factory=list)


async def follow(port: int, sent: bytes, follower: Follower, ready: asyncio.Event) -> None:
    """Read events until cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head[:200].decode("latin-1"))
        ready.set()
        while line := await reader.readline():
            if line.startswith(b"id: "):
                follower.positions.append(int(line[4:]))
                follower.came_at.append(time.monotonic())
    finally:
        writer.close()
