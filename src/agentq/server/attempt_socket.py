"""The API of one attempt on a Unix socket: HTTP/1.1 in a few lines.

A worker needs no web framework, and an agent no other address than this one. The socket lies in a
folder of its own that only this user may enter. What an agent sends is bounded: connections at
once, headers, bodies, and how long it may say nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, cast

import msgspec

from agentq.contracts.framing import (
    BODY_BYTES_MAX,
    FILES_BYTES_MAX,
    HEAD_BYTES_MAX,
    decode_head,
)
from agentq.contracts.routes import FILES_TYPE
from agentq.core.errors import AgentqError, Unavailable
from agentq.private_files import spool_folder
from agentq.server.api import Request, Response, refusal
from agentq.server.attempt_api import AttemptApi, request_of
from agentq.server.errors import HttpError, too_large

log = logging.getLogger("agentq.attempt")

#: Connections of one agent at once; more wait, so many at the most.
CONNECTIONS_MAX = 16
_WAITING_MAX = 128
HEADERS_BYTES_MAX = 64 << 10
#: How long an agent may say nothing within a request, and between two on one connection.
SILENCE_SECONDS = 30.0
IDLE_SECONDS = 5.0
_BLOCK = 1 << 18
_IN_MEMORY = 1 << 20
_PREFIX = "agentq-attempt-"
_NAME = "socket"


class _Gone(EOFError):
    """A request ended before its end: the agent has closed its connection."""


class RequestHead(NamedTuple):
    """The first lines of a request."""

    method: str
    target: str
    headers: Mapping[str, str]


class AttemptSocket:
    """Listens from `start` to `close` and hands each request to the API of its attempt."""

    def __init__(self, api: AttemptApi) -> None:
        self._api = api
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._guard = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        #: The folder of the socket: 0700, and nothing else is in it.
        self.folder = Path()

    @property
    def url(self) -> str:
        """What AGENTQ_URL is for the agent."""
        return f"http+unix:{self.folder / _NAME}"

    @property
    def token(self) -> str:
        """What AGENTQ_TOKEN is for the agent."""
        return self._api.token

    def start(self) -> None:
        """Make the socket and answer in threads of its own."""
        try:
            # Not in the workspace: the path of a socket has no more than 107 bytes.
            self.folder = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX)))
            self._listener = listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            # Under its name only once it listens: one that does not is taken for a dead one.
            made = self.folder / f".{_NAME}"
            listener.bind(str(made))
            made.chmod(0o600)
            listener.listen(_WAITING_MAX)
            made.rename(self.folder / _NAME)
        except OSError as error:
            self.close()
            raise Unavailable(
                f"The worker cannot make a socket for its agent in {tempfile.gettempdir()}:"
                f" {error.strerror or error}.",
                "Make room there, or set TMPDIR for the worker to another folder.",
            ) from error
        threading.Thread(
            target=self._accept, args=(listener,), name="attempt-socket", daemon=True
        ).start()

    def end(self) -> None:
        """Refuse what comes from now on, and say why: the attempt is over."""
        self._api.end()

    def close(self) -> None:
        """Response nothing any more, and take the socket away. Closing twice is fine."""
        self._api.end()
        listener, self._listener = self._listener, None
        if listener is not None:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in accept
            listener.close()
        with self._guard:
            connections = list(self._connections)
        for each in connections:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        if self.folder.name.startswith(_PREFIX):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            self._room.acquire()  # those who come meanwhile wait to be accepted
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # closed
            with self._guard:
                self._connections.add(connection)
            threading.Thread(
                target=self._serve, args=(connection,), name="attempt-request", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as incoming:
                connection.settimeout(IDLE_SECONDS)
                while incoming.peek(1):
                    connection.settimeout(SILENCE_SECONDS)
                    if not self._one(connection, incoming):
                        return
                    connection.settimeout(IDLE_SECONDS)
        except (OSError, _Gone) as error:
            log.debug("a connection of an agent ended: %s", error)
        finally:
            with self._guard:
                self._connections.discard(connection)
            self._room.release()

    def _one(self, connection: socket.socket, incoming: IO[bytes]) -> bool:
        """Response one request; whether another may follow on the same connection."""
        with ExitStack() as files:
            keep = False
            try:
                head = _read_head(incoming)
                self._api.check_token(head.headers.get("authorization", ""))
                if head.headers.get("expect", "").lower() == "100-continue":
                    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                request = read_request(head, incoming, files)
                keep = head.headers.get("connection", "").lower() != "close"
                answer = self._api.answer(request, head.headers.get("idempotency-key", "")[:200])
            except AgentqError as error:  # what follows on this connection cannot be told
                answer = refusal(error)
            for piece in _answer_bytes(answer, keep=keep):
                connection.sendall(piece)
            return keep


def remove_left_over() -> None:
    """Take away the sockets of workers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
            if folder.stat().st_uid != os.geteuid() or folder.is_symlink():
                continue
            try:
                caller.connect(str(folder / _NAME))
            except ConnectionRefusedError:
                shutil.rmtree(folder, ignore_errors=True)


# -- reading ---------------------------------------------------------------------------------------


def _read_head(incoming: IO[bytes]) -> RequestHead:
    left = HEADERS_BYTES_MAX
    lines: list[str] = []
    while True:
        line = incoming.readline(left + 1)
        left -= len(line)
        if left < 0:
            raise HttpError(431, f"The headers are longer than {HEADERS_BYTES_MAX} bytes.")
        if not line.endswith(b"\n"):
            raise _Gone("in the middle of a request" if line or lines else "in good order")
        text = line.rstrip(b"\r\n").decode("latin-1")
        if not text:
            if lines:
                break
            continue
        lines.append(text)
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(400, "This is no request of HTTP/1.1.")
    headers: dict[str, str] = {}
    for text in lines[1:]:
        name, colon, value = text.partition(":")
        name = name.lower()
        if not colon or name != name.strip() or name in headers:
            raise HttpError(400, f"A header cannot be read, or came twice: {text[:80]!r}.")
        headers[name] = value.strip()
    return RequestHead(words[0], words[1], headers)


def read_request(head: RequestHead, incoming: IO[bytes], files: ExitStack) -> Request:
    """The request that follows its first lines; its files are closed by `files`."""
    length = head.headers.get("content-length", "0")
    if "transfer-encoding" in head.headers or not length.isascii() or not length.isdigit():
        raise HttpError(411, "A request says by content-length how long its body is.")
    size = int(length[:20])
    request = request_of(head.method, head.target)
    if head.headers.get("content-type", "") != FILES_TYPE:
        if size > BODY_BYTES_MAX:
            raise too_large(BODY_BYTES_MAX)
        request.body = _exactly(incoming, size)
        return request
    if size > FILES_BYTES_MAX:
        raise too_large(FILES_BYTES_MAX)
    line = incoming.readline(min(size, HEAD_BYTES_MAX) + 1)
    if len(line) > min(size, HEAD_BYTES_MAX):
        raise too_large(HEAD_BYTES_MAX)
    try:
        said = decode_head(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, f"The first line of the request cannot be read: {error}.") from error
    if any(each < 0 for each in said.sizes) or len(line) + sum(said.sizes) != size:
        raise HttpError(
            400, "The files of the request are not of the sizes that its first line says.",
            "Send one line of JSON, then exactly the bytes it promises.",
        )  # fmt: skip
    request.arguments = said.arguments
    request.files = [_spooled(incoming, each, files) for each in said.sizes]
    return request


def _exactly(incoming: IO[bytes], size: int) -> bytes:
    found = incoming.read(size)
    if len(found) != size:
        raise _Gone("in the middle of a request")
    return found


def _spooled(incoming: IO[bytes], size: int, files: ExitStack) -> BinaryIO:
    """A file of the request, on disk if it is large."""
    spooled = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=spool_folder())  # noqa: SIM115
    files.callback(spooled.close)
    while size:
        block = _exactly(incoming, min(size, _BLOCK))
        spooled.write(block)
        size -= len(block)
    spooled.seek(0)
    return cast("BinaryIO", spooled)


# -- answering -------------------------------------------------------------------------------------


def _answer_bytes(answer: Response, *, keep: bool) -> Iterator[bytes]:
    headers, body = dict(answer.headers), answer.body
    if isinstance(body, bytes):
        headers["content-length"] = str(len(body))
    chunked = "content-length" not in headers
    if chunked:
        headers["transfer-encoding"] = "chunked"
    if not keep:
        headers["connection"] = "close"
    status = HTTPStatus(answer.status)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    start = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
    if isinstance(body, bytes):
        yield start + body
        return
    yield start
    try:
        for piece in iter(lambda: body.read(_BLOCK), b"") if hasattr(body, "read") else body:
            yield b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
        if chunked:
            yield b"0\r\n\r\n"
    finally:
        if hasattr(body, "close"):
            body.close()
