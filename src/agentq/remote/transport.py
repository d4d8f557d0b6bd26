"""HTTP/1.1 to one server: what the standard library's client does, in a fraction of its imports.

A command that asks one question must not spend most of its time on importing, and the server at the
other end is ours. Connections are kept and shared between threads, one request on each at a time.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from agentq.core.errors import Invalid, Unavailable
from agentq.settings.addresses import without_password

if TYPE_CHECKING:
    from ssl import SSLContext

_HEADERS_BYTES_MAX = 64 << 10
_BLOCK = 64 << 10
CONNECT_SECONDS = 10.0
#: A server that says nothing for so long is not there any more; long polls end before.
SILENCE_SECONDS = 90.0
#: What was sent and is not acknowledged for so long was lost, and so is a connection on which
#: nothing comes back when the other side is asked whether it is there. TCP by itself would try for
#: a quarter of an hour, at longer and longer intervals: no lease waits for that.
_UNHEARD_SECONDS = 20
_ASKED_AFTER_SECONDS, _ASKED_EVERY_SECONDS = 10, 3


class Broken(Exception):
    """The connection broke. `sent` says whether the server may have read the whole request, and
    then it may have acted on it."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class ServerAddress(NamedTuple):
    """Where the server is: a Unix socket, or a host and a port."""

    text: str
    host: str = ""
    port: int = 0
    tls: bool = False
    socket_path: str = ""
    prefix: str = ""


def parse_address(url: str) -> ServerAddress:
    """`http://host:port/prefix`, `https://…` or `http+unix:/path/to/socket`."""
    if url.startswith("http+unix:"):
        return ServerAddress(url, host="localhost", socket_path=url.removeprefix("http+unix:"))
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if "@" in authority:
        raise Invalid(
            "The address of a server holds no user or password.", "Set AGENTQ_TOKEN instead."
        )
    host, colon, port = authority.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = authority, "443" if scheme == "https" else "80"
    named = scheme in ("http", "https") and host
    if not named or not port.isdigit() or not 0 < int(port) < 65536:
        raise Invalid(
            f"{without_password(url)!r} is no address of a server.", "As in http://127.0.0.1:8765."
        )
    prefix = f"{slash}{path}".rstrip("/")
    return ServerAddress(url, host.strip("[]"), int(port), scheme == "https", "", prefix)


class HttpReply:
    """One answer; its body is read from the connection, which goes back when it was read."""

    def __init__(self, line: _Line, status: int, headers: dict[str, str]) -> None:
        self._line = line
        self.status = status
        self.headers = headers
        length = headers.get("content-length")
        self._chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        self._left = int(length) if length is not None and length.isdigit() else 0
        if status in (204, 304):
            self._left, self._chunked = 0, False
        self._ended = False

    #: The body, once it was read as a whole.
    _body_read: bytes | None = None

    def read(self) -> bytes:
        """The whole body; raises `Broken`, but not again after it was read once."""
        if self._body_read is None:
            self._body_read = b"".join(self.pieces())
        return self._body_read

    def pieces(self) -> Iterator[bytes]:
        """The body, piece by piece; raises `Broken` if it ends before its end."""
        try:
            if self._chunked:
                yield from self._chunks()
            while self._left:
                block = self._line.receive(min(self._left, _BLOCK))
                self._left -= len(block)
                yield block
        except BaseException:  # also when whoever reads has had enough
            self.close()
            raise
        self._ended = True
        self._line.give_back()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            left = size = _chunk_size(self._line.read_line())
            while left:
                block = self._line.receive(min(left, _BLOCK))
                left -= len(block)
                yield block
            self._line.read_line()
            if not size:
                return

    def close(self) -> None:
        """Leave the rest unread; the connection is of no more use then."""
        if not self._ended:
            self._line.close()


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.split(b";")[0], 16)
    except ValueError:
        raise Broken("a part of the answer has no size", sent=True) from None


def _notice_silence(connection: socket.socket) -> None:
    """Let TCP end a connection whose other side is not heard any more."""
    options = (
        ("TCP_USER_TIMEOUT", _UNHEARD_SECONDS * 1000),
        ("TCP_KEEPIDLE", _ASKED_AFTER_SECONDS),
        ("TCP_KEEPINTVL", _ASKED_EVERY_SECONDS),
        ("TCP_KEEPCNT", (_UNHEARD_SECONDS - _ASKED_AFTER_SECONDS) // _ASKED_EVERY_SECONDS),
    )
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options:
        if hasattr(socket, name):  # not every system has each
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _connect_to(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_SECONDS)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


class _Line:
    """One connection."""

    def __init__(self, pool: Transport, connection: socket.socket) -> None:
        self._pool = pool
        self._connection = connection
        self._ahead = b""
        self.reusable = True

    def send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise Broken(str(error), sent=False) from error

    def receive(self, most: int) -> bytes:
        if self._ahead:
            block, self._ahead = self._ahead[:most], self._ahead[most:]
            return block
        try:
            block = self._connection.recv(most)
        except OSError as error:
            raise Broken(str(error), sent=True) from error
        if not block:
            raise Broken("the server closed the connection", sent=True)
        return block

    def read_line(self) -> bytes:
        while b"\n" not in self._ahead:
            if len(self._ahead) > _HEADERS_BYTES_MAX:
                raise Broken("a line of the answer is too long", sent=True)
            held, self._ahead = self._ahead, b""
            self._ahead = held + self.receive(_BLOCK)
        line, _, self._ahead = self._ahead.partition(b"\n")
        return line.rstrip(b"\r")

    def has_spoken(self) -> bool:
        """Whether the server says something already."""
        poller = select.poll()
        poller.register(self._connection, select.POLLIN)
        return bool(poller.poll(0))

    def fileno(self) -> int:
        return self._connection.fileno()

    def set_timeout(self, seconds: float) -> None:
        self._connection.settimeout(seconds)

    def give_back(self) -> None:
        if self.reusable and not self._ahead:
            self._pool.keep(self)
        else:
            self.close()

    def is_alive(self) -> bool:
        """Whether an idle connection can still be used: the server has said nothing on it."""
        if self._pool.address.tls:  # there nobody can peek, and nothing is due
            return not select.select([self._connection], [], [], 0)[0]
        try:
            self._connection.settimeout(0)
            return not self._connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False

    def has_answer(self) -> bool:
        """Whether what came on a readable connection is an answer, or its end. With TLS it may be
        something that only concerns the encryption."""
        if not self._pool.address.tls or self._ahead:
            return True
        from ssl import SSLWantReadError

        before = self._connection.gettimeout()
        self._connection.settimeout(0)
        try:
            self._ahead = self._connection.recv(_BLOCK)
        except SSLWantReadError:
            return False
        except OSError:
            return True  # whoever reads on hears of it
        finally:
            self._connection.settimeout(before)
        return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()


def _send_pieces(line: _Line, body: Iterable[bytes]) -> bool:
    """Send a body; False if the server has answered before its end, and wants no more of it."""
    for piece in body:
        if line.has_spoken():
            return False
        try:
            line.send(piece)
        except Broken:
            if line.has_spoken():  # and has closed the connection since
                return False
            raise
    return True


class Pending:
    """A request that was sent and is not answered yet."""

    def __init__(self, transport: Transport, line: _Line) -> None:
        self._transport = transport
        self._line = line

    def fileno(self) -> int:
        return self._line.fileno()

    def has_answer(self) -> bool:
        """Whether there is something to read for `reply`, once `fileno` is readable."""
        return self._line.has_answer()

    def reply(self) -> HttpReply:
        """The answer; raises `Broken`."""
        try:
            return self._transport.reply(self._line)
        except BaseException:
            self._line.close()
            raise

    def close(self) -> None:
        self._line.close()


class Transport:
    """Sends requests to one server and hands out its replies. For several threads."""

    def __init__(self, url: str) -> None:
        self.address = parse_address(url)
        self._idle: list[_Line] = []
        self._guard = threading.Lock()
        self._tls: SSLContext | None = None

    def send(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | Iterable[bytes] = b"",
        length: int | None = None,
        silence: float = SILENCE_SECONDS,
    ) -> HttpReply:
        """Send one request; its reply, with the body still to be read. Raises `Broken`, or
        `Unavailable` if nobody could be reached."""
        line = self._take()
        try:
            line.set_timeout(silence)
            line.send(self._head(method, target, headers, body, length))
            whole = isinstance(body, bytes) or _send_pieces(line, body)
            reply = self.reply(line)
            # Behind half a body no other request can follow.
            line.reusable = line.reusable and whole
        except BaseException as error:
            line.close()
            if isinstance(error, Broken):
                # The others lead the same way: each would be waited for in vain.
                self.close()
            raise
        return reply

    def begin(self, method: str, target: str, headers: dict[str, str]) -> Pending:
        """Send one request without a body, to be answered later."""
        line = self._take()
        try:
            line.set_timeout(SILENCE_SECONDS)
            line.send(self._head(method, target, headers, b"", None))
        except BaseException:
            line.close()
            raise
        return Pending(self, line)

    def _head(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | Iterable[bytes],
        length: int | None,
    ) -> bytes:
        size = len(body) if isinstance(body, bytes) else length or 0
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        if self.address.port:
            host += f":{self.address.port}"
        lines = [f"{method} {self.address.prefix}{target} HTTP/1.1", f"host: {host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"content-length: {size}")
        head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
        return head + body if isinstance(body, bytes) else head

    def reply(self, line: _Line) -> HttpReply:
        """Read the head of an answer."""
        words = line.read_line().split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            # Whoever read the request, it was no server that acts on it.
            raise Broken("what answers there does not speak HTTP", sent=False)
        headers: dict[str, str] = {}
        while text := line.read_line().decode("latin-1"):
            name, _, value = text.partition(":")
            headers[name.strip().lower()] = value.strip()
        line.reusable = headers.get("connection", "").lower() != "close"
        return HttpReply(line, int(words[1]), headers)

    def _take(self) -> _Line:
        while True:
            with self._guard:
                line = self._idle.pop() if self._idle else None
            if line is None:
                return _Line(self, self._connect())
            if line.is_alive():
                return line
            line.close()

    def _connect(self) -> socket.socket:
        address = self.address
        try:
            if address.socket_path:
                return _connect_to(address.socket_path)
            plain = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_silence(plain)
            return self._encrypted(plain) if address.tls else plain
        except OSError as error:
            raise Unavailable(
                f"No agentq server answers at {address.text}: {error}. Nothing was changed.",
                "Check AGENTQ_URL, and that `agentq serve` or `agentq up` runs there.",
                code="server_away",
            ) from error

    def _encrypted(self, plain: socket.socket) -> socket.socket:
        import ssl

        address = self.address
        try:
            if self._tls is None:  # reading all authorities takes a while
                self._tls = ssl.create_default_context()
            return self._tls.wrap_socket(plain, server_hostname=address.host)
        except ssl.SSLCertVerificationError as error:
            raise Unavailable(
                f"The certificate that {address.text} shows is not to be trusted:"
                f" {error.verify_message}. Nothing was sent.",
                "If it is of an authority of your own, set SSL_CERT_FILE to the certificate of that"
                " authority; else somebody may stand between.",
                code="bad_certificate",
            ) from error
        except ssl.SSLError as error:
            raise Unavailable(
                f"What answers at {address.text} does not speak TLS: {error.reason or error}."
                " Nothing was sent.",
                "A server without a proxy in front of it speaks plain http://.",
                code="bad_certificate",
            ) from error

    def keep(self, line: _Line) -> None:
        """Keep a connection for the next request."""
        with self._guard:
            self._idle.append(line)

    def close(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()
