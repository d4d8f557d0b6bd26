"""Reading the body of a request: bounded, and its files into temporary ones."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, BinaryIO, cast

import msgspec

from agentq.contracts.framing import (
    BODY_BYTES_MAX,
    FILES_BYTES_MAX,
    HEAD_BYTES_MAX,
    decode_head,
)
from agentq.core.errors import Unavailable
from agentq.private_files import spool_folder
from agentq.server.errors import HttpError, too_large

_IN_MEMORY = 1 << 20
#: How long a client may say nothing in the middle of its request; so long it may also take for all
#: of it, and longer only while it sends at least so much a second.
SILENCE_SECONDS = 30.0
_BYTES_A_SECOND_MIN = 16 << 10

Receive = Callable[[], Awaitable[dict[str, Any]]]


class ClientGone(Exception):
    """The client went away before its request was complete."""


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed its connection."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def pieces(receive: Receive) -> AsyncIterator[bytes]:
    """The body, piece by piece; raises `HttpError` 408 for one that hardly comes."""
    now = asyncio.get_running_loop().time
    began, size = now(), 0
    while True:
        left = began + SILENCE_SECONDS + size / _BYTES_A_SECOND_MIN - now()
        try:
            message = await asyncio.wait_for(receive(), min(left, SILENCE_SECONDS))
        except TimeoutError:
            raise HttpError(
                408, f"The request came too slowly: {size} bytes of its body in"
                f" {now() - began:.0f} s. Nothing was changed.", "Send it again.", code="too_slow",
            ) from None  # fmt: skip
        if message["type"] == "http.disconnect":
            raise ClientGone
        if message.get("body"):
            size += len(message["body"])
            yield message["body"]
        if not message.get("more_body"):
            return


async def read_body(receive: Receive, length: int | None, most: int = 0) -> bytes:
    """The whole body of a plain request, of so many bytes at most; 0 stands for what is usual."""
    bytes_max = most or BODY_BYTES_MAX
    if length is not None and length > bytes_max:
        raise too_large(bytes_max)
    found = bytearray()
    async for piece in pieces(receive):
        found += piece
        if len(found) > bytes_max:
            raise too_large(bytes_max)
    return bytes(found)


def _spooled() -> BinaryIO:
    """A file in memory until it is large, closed by whoever asked for it."""
    return cast("BinaryIO", tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=spool_folder()))


class Files:
    """The files of one request, on disk if they are large; closed with the request."""

    def __init__(self) -> None:
        self.open: list[BinaryIO] = []
        self.arguments: dict[str, Any] = {}

    async def read(self, receive: Receive, length: int | None) -> None:
        """Take the line of arguments, then file after file."""
        if length is not None and length > FILES_BYTES_MAX:
            raise too_large(FILES_BYTES_MAX)
        head, sizes, ahead = bytearray(), None, b""
        async for piece in pieces(receive):
            if sizes is None:
                head += piece
                if b"\n" not in head:
                    if len(head) > HEAD_BYTES_MAX:
                        raise too_large(HEAD_BYTES_MAX)
                    continue
                line, _, rest = bytes(head).partition(b"\n")
                sizes, piece = self._begin(line), rest  # noqa: PLW2901
            ahead = await self._take(sizes, ahead + piece)
        if sizes is None or ahead or sizes:
            raise HttpError(
                400, "The files of the request are not of the sizes that its first line says.",
                "Send one line of JSON, then exactly the bytes it promises.",
            )  # fmt: skip
        for file in self.open:
            file.seek(0)

    def _begin(self, line: bytes) -> list[int]:
        try:
            head = decode_head(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise HttpError(
                400, f"The first line of the request cannot be read: {error}."
            ) from error
        if any(size < 0 for size in head.sizes) or sum(head.sizes) > FILES_BYTES_MAX:
            raise too_large(FILES_BYTES_MAX)
        self.arguments = head.arguments
        sizes = list(head.sizes)
        self._skip_empty(sizes)
        return sizes

    def _skip_empty(self, sizes: list[int]) -> None:
        while sizes:
            self.open.append(_spooled())
            if sizes[0]:
                return
            sizes.pop(0)

    async def _take(self, sizes: list[int], data: bytes) -> bytes:
        """Write what belongs to the current file; what is left over at the end."""
        while data and sizes:
            part, data = data[: sizes[0]], data[sizes[0] :]
            file = self.open[-1]
            try:
                # In a thread, as a disk may be slow, but for what is small enough for memory.
                if sizes[0] < _IN_MEMORY:
                    file.write(part)
                else:
                    await asyncio.to_thread(file.write, part)
            except OSError as error:
                raise Unavailable(
                    f"The server cannot take the files: {error.strerror or error} in"
                    f" {spool_folder()}. Nothing was changed.",
                    "Make room there, or let TMPDIR of the server name another folder.",
                ) from error
            sizes[0] -= len(part)
            if not sizes[0]:
                sizes.pop(0)
                self._skip_empty(sizes)
        return data

    def close(self) -> None:
        for file in self.open:
            with suppress(OSError):
                file.close()
