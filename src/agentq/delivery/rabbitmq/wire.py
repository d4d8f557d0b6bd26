"""AMQP frames, where thousands a second count: reading many at once, writing many at once.

py-amqp asks the kernel three times per frame and decodes everything it sees. Here the socket is
emptied in large gulps, a delivery is taken apart only as far as somebody needs it, and a batch of
messages leaves in one write. All else (logging in, declaring, closing) stays with py-amqp.

What comes from the network is bounded: a body longer than `BODY_BYTES_MAX` is counted and thrown
away as it comes, so that nobody can fill a worker's memory by one message.

Only public names of py-amqp are used or overridden. pika was measured in its place (1.4.4, its
`SelectConnection` driven step by step; 20,000 messages of 300 bytes in batches of 500; two cores
under other load). Rates and CPU are medians of three runs, of six for publishing here; latencies
are of 100 messages, and 50 wake-ups, in one run:

                                             here           pika
    published and confirmed/s, CPU each      9,200, 6 us    5,600, 21 us
    consumed and acknowledged/s, CPU each    16,400, 9 us   16,200, 17 us
    latency of an idle consumer, p50         0.93 ms        0.93 ms
    woken by another file, p50               0.08 ms        0.09 ms
    a header with a timestamp in ms          is read        ends the connection (3 of 3)

The last one decides. pika decodes all properties before anybody may object; one message of a worker
whose library writes odd ones would end its reader's connection, come again, and end the next.
Bodies of any length it keeps in memory. Its `BlockingConnection` confirms some 500 messages a
second, as it waits for each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amqp.exceptions import UnexpectedFrame
from amqp.method_framing import frame_handler
from amqp.transport import SSLTransport, TCPTransport

from agentq.contracts.delivery import Message
from agentq.core.limits import ENVELOPE_BYTES_MAX
from agentq.delivery.rabbitmq.properties import read_properties

#: What is kept of a body. Envelopes have less; anything longer is unreadable anyway.
BODY_BYTES_MAX = 2 * ENVELOPE_BYTES_MAX
FRAME_BYTES_MAX = 131_072
_GULP_BYTES = 262_144
_FRAME_END = 0xCE
_DELIVER = b"\x00\x3c\x00\x3c"
_PUBLISH = b"\x00\x3c\x00\x28\x00\x00"
_BASIC = 60
#: Which properties a header has, by their bits in it.
_CONTENT_TYPE, _HEADERS, _DELIVERY_MODE, _PRIORITY = 1 << 15, 1 << 13, 1 << 12, 1 << 11
_REPLY_TO, _EXPIRATION, _MESSAGE_ID, _USER_ID = 1 << 9, 1 << 8, 1 << 7, 1 << 4
#: The broker refuses longer ones. The ledger expires the task, whatever the message does.
_EXPIRES_MS_MAX = 2**32 - 1
_JSON = b"\x10application/json"
_TRANSIENT, _PERSISTENT = 1, 2

Frame = tuple[int, int, bytes]


@dataclass(slots=True)
class Delivery:
    """A message as it came. `body` is None if it was too long to be kept; `size` tells."""

    tag: int
    redelivered: bool
    exchange: str
    routing_key: str
    header: bytes = b""
    body: bytes | None = b""
    size: int = 0

    def properties(self) -> dict[str, Any]:
        """Message id, headers and so on, as far as they can be read."""
        return read_properties(self.header)


class _BufferedTransport:
    """Buffers reads of one of py-amqp's transports: one read takes all that the socket has."""

    sock: Any
    connected: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._got = bytearray()
        self._at = 0

    def read_frame(self, unpack: object = None) -> Frame:
        """The next frame; waits for it as long as the socket may."""
        while (frame := self.next_frame()) is None:
            self.gulp()
        return frame

    def next_frame(self) -> Frame | None:
        """The next frame if all of it is here."""
        got, at = self._got, self._at
        have = len(got) - at
        if have < 8:
            return None
        kind, channel, size = struct.unpack_from(">BHI", got, at)
        if size > FRAME_BYTES_MAX:
            raise UnexpectedFrame(f"a frame of {size} bytes came; {FRAME_BYTES_MAX} were agreed")
        end = at + 7 + size
        if have < size + 8:
            return None
        if got[end] != _FRAME_END:
            raise UnexpectedFrame("a frame came that does not end as frames end")
        payload = bytes(got[at + 7 : end])
        if end + 1 == len(got):
            got.clear()
            self._at = 0
        else:
            self._at = end + 1
        return kind, channel, payload

    def gulp(self) -> None:
        """Read what is there, or wait for it as long as the socket may."""
        if self._at:
            del self._got[: self._at]
            self._at = 0
        if self.sock is None:
            raise ConnectionResetError("the connection is closed")
        try:
            piece = self.sock.recv(_GULP_BYTES)
        except OSError as error:
            self.connected = self.connected and isinstance(error, TimeoutError)
            raise
        if not piece:
            self.connected = False
            raise ConnectionResetError("the broker closed the connection")
        self._got += piece

    def pending(self) -> bool:
        """Whether bytes are here that polling the socket would not tell of."""
        return False


class BufferedTcp(_BufferedTransport, TCPTransport):  # type: ignore[misc]
    """A buffered transport over plain TCP."""


class BufferedTls(_BufferedTransport, SSLTransport):  # type: ignore[misc]
    """TLS, whose layer may hold decrypted bytes of its own."""

    def pending(self) -> bool:
        return bool(self.sock is not None and self.sock.pending())


def delivering(connection: Any, callback: Any) -> Callable[[Frame], bool]:
    """A reader of frames that gives deliveries to `connection.deliver`, and the rest to py-amqp."""
    others: Callable[[Frame], bool] = frame_handler(connection, callback)
    open_deliveries: dict[int, tuple[Delivery, list[bytes], int]] = {}

    def on_frame(frame: Frame) -> bool:
        kind, channel, payload = frame
        if kind == 1 and payload[:4] == _DELIVER:
            connection.bytes_recv += 1
            open_deliveries[channel] = (_opened(payload), [], -1)
            return False
        if channel not in open_deliveries or kind == 8:
            return others(frame)
        connection.bytes_recv += 1
        delivery, chunks, left = open_deliveries[channel]
        if kind == 2 and left < 0:
            delivery.header = payload
            left = delivery.size = struct.unpack_from(">Q", payload, 4)[0]
            if left > BODY_BYTES_MAX:
                delivery.body = None
        elif kind == 3 and left > 0:
            left -= len(payload)
            if delivery.body is not None:
                chunks.append(payload)
        else:
            raise UnexpectedFrame(f"a frame of type {kind} came in the middle of a message")
        if left > 0:
            open_deliveries[channel] = (delivery, chunks, left)
            return False
        del open_deliveries[channel]
        if delivery.body is not None:
            delivery.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        connection.deliver(channel, delivery)
        return True

    return on_frame


def _opened(payload: bytes) -> Delivery:
    at = 5 + payload[4]  # the consumer's tag: there is one consumer on each channel
    tag, redelivered = struct.unpack_from(">QB", payload, at)
    at += 9
    exchange = payload[at + 1 : at + 1 + payload[at]]
    at += 1 + payload[at]
    key = payload[at + 1 : at + 1 + payload[at]]
    return Delivery(tag, bool(redelivered & 1), exchange.decode(errors="replace"),
                    key.decode(errors="replace"))  # fmt: skip


def publishing(channel: int, message: Message, key: str, frame_bytes_max: int) -> bytes:
    """The frames that publish a message under this routing key."""
    flags = _CONTENT_TYPE | _DELIVERY_MODE | _PRIORITY
    mode = _PERSISTENT if message.durable else _TRANSIENT
    rest = bytes((mode, min(max(message.priority, 0), 9)))
    if message.reply_to:
        flags |= _REPLY_TO
        rest += _short(message.reply_to)
    if 0 < message.expires_ms <= _EXPIRES_MS_MAX:
        flags |= _EXPIRATION
        rest += _short(str(message.expires_ms))
    if message.id:
        flags |= _MESSAGE_ID
        rest += _short(message.id)
    if message.user_id:
        flags |= _USER_ID
        rest += _short(message.user_id)
    table = b""
    if message.headers:
        flags |= _HEADERS
        table = _table(message)
    method = (
        _PUBLISH + _short(message.exchange) + _short(key)
        + (b"\x01" if message.mandatory else b"\x00")
    )  # fmt: skip
    body = message.body
    header = struct.pack(">HHQH", _BASIC, 0, len(body), flags) + _JSON + table + rest
    frames = [_frame(1, channel, method), _frame(2, channel, header)]
    step = frame_bytes_max - 8
    frames += [_frame(3, channel, body[at : at + step]) for at in range(0, len(body), step)]
    return b"".join(frames)


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def _table(message: Message) -> bytes:
    fields = b""
    for name, value in message.headers.items():
        fields += _short(name)
        if isinstance(value, int):
            fields += b"l" + struct.pack(">q", value)
        else:
            data = value.encode()
            fields += b"S" + struct.pack(">I", len(data)) + data
    return struct.pack(">I", len(fields)) + fields
