"""Connections that nobody can hold for nothing: bounded in number, and in time wherever a client
could let the server wait.

uvicorn waits without end for the rest of a head, for a client that does not read its answer, and
for the rest of a body that nobody wants. Here each of these has a deadline that no trickle of bytes
puts off. When there are too many connections, the one that has waited longest for its next request
makes room: whoever has a request under way keeps it, and whoever comes is served.
"""

from __future__ import annotations

import asyncio
import enum
import resource
import sys
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from agentq.server.api import encode
from agentq.server.errors import RETRY_SECONDS, HttpError, error_plain

#: For the first line and the headers of a request.
HEAD_SECONDS = 15.0
#: For the rest of a body after its answer, so that a client that still sends can read the answer.
REST_SECONDS = 5.0
#: For a client to read anything of what it was sent.
READ_SECONDS = 60.0
#: For an answer to leave, once its connection is to be closed.
_CLOSE_SECONDS = 5.0
#: Between two requests of one client.
IDLE_SECONDS = 75.0
CONNECTIONS_MAX = 4096
#: What else in the process opens files: the ledger, artifacts on their way, the listeners.
_OTHER_FILES = 256


class _Phase(enum.Enum):
    """What a connection is doing."""

    HEAD = "a request has begun to come"
    WORK = "a request is answered"
    REST = "a body goes on whose request was answered"
    IDLE = "nothing"


class _Deadlines:
    """How long each phase may last; a request itself is bounded where its body is read."""

    def __init__(self) -> None:
        self.seconds = {
            _Phase.HEAD: HEAD_SECONDS,
            _Phase.REST: REST_SECONDS,
            _Phase.IDLE: IDLE_SECONDS,
        }
        self.read_seconds = READ_SECONDS


class BoundedProtocol(H11Protocol):
    """One connection. `bounded` makes the class for one server."""

    most: ClassVar[int]
    deadlines: ClassVar[_Deadlines]
    #: Connections without a request under way, by how long they have been so.
    waiting: ClassVar[dict[BoundedProtocol, None]]

    _phase: _Phase | None = None
    _deadline: asyncio.TimerHandle | None = None
    _read_deadline: asyncio.TimerHandle | None = None

    # -- what the event loop calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            oldest = next(iter(self.waiting), None)
            if oldest is None:
                self._turn_away()
                return
            oldest.end()
        self._begin(_Phase.HEAD)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        _cancel(self._read_deadline)
        seconds = self.deadlines.read_seconds
        self._read_deadline = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._read_deadline)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()
        _cancel(self._read_deadline)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, in the one shape of errors."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # whoever still works on it has nobody to answer
        hint = getattr(sys.exception(), "error_status_hint", 400)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._write_refusal(
                HttpError(
                    431 if hint == 431 else 400, "What came is no request that can be read.",
                    "Send HTTP/1.1, with a head of 64 KiB at most.", code="no_http",
                )
            )  # fmt: skip
        self.end()

    # -- deadlines ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Notice what the connection is doing now."""
        if self.transport.is_closing():
            self._forget()
            return
        now = self._current()
        if now is not self._phase:  # else the deadline stays: a byte now and then puts off nothing
            self._begin(now)

    def _current(self) -> _Phase:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        if cycle is not None and not cycle.response_complete:
            return _Phase.WORK
        if self.conn.their_state is h11.SEND_BODY:
            return _Phase.REST
        return _Phase.HEAD if self.conn.trailing_data[0] else _Phase.IDLE

    def _begin(self, phase: _Phase) -> None:
        _cancel(self._deadline)
        self._phase = phase
        if phase is _Phase.WORK:
            self.waiting.pop(self, None)
            return
        self.waiting.setdefault(self)
        self._deadline = self.loop.call_later(self.deadlines.seconds[phase], self.end)

    def end(self) -> None:
        """Close the connection, whether or not the client takes what is left to send."""
        self._forget()
        if not self.transport.is_closing():
            self.transport.close()
            self._deadline = self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)

    def _forget(self) -> None:
        self.waiting.pop(self, None)
        _cancel(self._deadline)

    def _turn_away(self) -> None:
        self._write_refusal(
            HttpError(503, "The server has as many connections as it takes.",
                      "Try again in a moment.", code="busy")
        )  # fmt: skip
        self.end()

    def _write_refusal(self, error: HttpError) -> None:
        body = encode({"error": error_plain(error)})
        words = {400: "Bad Request", 431: "Request Header Fields Too Large"}
        reason = words.get(error.status, "Service Unavailable")
        self.transport.write(
            f"HTTP/1.1 {error.status} {reason}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nretry-after: {RETRY_SECONDS}\r\n"
            "connection: close\r\n\r\n".encode()
            + body
        )


def bounded() -> type[BoundedProtocol]:
    """The protocol of one server, which counts its own connections."""
    most = min(CONNECTIONS_MAX, max(_files_max() - _OTHER_FILES, _OTHER_FILES))
    return type(
        "ServerProtocol",
        (BoundedProtocol,),
        {"most": most, "deadlines": _Deadlines(), "waiting": {}},
    )


def allow_many_files() -> None:
    """Let this process open as many files as its connections and itself need, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + _OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _files_max() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
