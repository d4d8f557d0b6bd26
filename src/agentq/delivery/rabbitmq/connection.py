"""One connection to the broker, with types, time limits and errors in words.

py-amqp knows none of these, so it is spoken to here (and, for frames, in `wire`) and nowhere else.
A `Link` belongs to one thread. Whatever goes wrong with it, it is thrown away and made again: there
is no half-broken state to reason about, and messages are hints, so nothing is lost by that.

Who consumes sends heartbeats while it waits, so that the broker gives its hints to others soon
after its machine is gone. A worker is never away from its inbox for long; if it is, the broker
hangs up, others get the hints, and the next `take` connects again.
"""

from __future__ import annotations

import select
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import amqp
from amqp import exceptions, spec

from agentq.core.errors import AgentqError, Conflict, Invalid, NotFound, Refused, Unavailable
from agentq.delivery.rabbitmq.wire import (
    FRAME_BYTES_MAX,
    BufferedTcp,
    BufferedTls,
    Delivery,
    Frame,
    delivering,
)

CONNECT_SECONDS = 5.0
#: How long the broker may take to answer, or to take what is written.
ANSWER_SECONDS = 20.0
CLOSE_SECONDS = 2.0
HEARTBEAT_SECONDS = 60
#: A prefetch is sixteen bits wide, and nobody has so many free slots.
COUNT_MAX = 10_000
_TLS_FILES = {"cacertfile": "ca_certs", "certfile": "certfile", "keyfile": "keyfile"}
_SHOWN_CHARS = 400
#: How the broker says that a message was not acknowledged within its `consumer_timeout`.
_ACK_LIMIT_WORDS = "delivery acknowledgement on channel"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is. Shown without the password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    virtual_host: str
    tls: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}, virtual host {self.virtual_host!r}"


def read_url(url: str) -> Address:
    """`amqp[s]://user:password@host:port/vhost`, as RabbitMQ's own tools read it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _bad_url(url, "its host or port cannot be read") from None
    if parts.scheme not in ("amqp", "amqps") or not host:
        raise _bad_url(url, "it needs amqp:// or amqps:// and a host")
    _check_text(url, host)
    secure = parts.scheme == "amqps"
    files: dict[str, Any] = {"server_hostname": host}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _TLS_FILES or not secure:
            known = ", ".join(_TLS_FILES)
            raise _bad_url(url, f"{name[:40]!r} is not an option here (amqps:// has {known})")
        files[_TLS_FILES[name]] = value
    virtual_host = unquote(parts.path.removeprefix("/")) or "/"
    return Address(
        host,
        port or (5671 if secure else 5672),
        unquote(parts.username or "guest"),
        unquote(parts.password or "guest"),
        virtual_host,
        files if secure else None,
    )


def _check_text(url: str, host: str) -> None:
    """Refuse text that the resolver or the protocol could not encode, with a clear error."""
    try:
        url.encode()
    except UnicodeError:
        raise _bad_url(url, "it holds bytes that are no text in UTF-8") from None
    try:
        host.encode("idna")
    except UnicodeError:
        why = "a part of its host, between dots, is empty or longer than 63 characters"
        raise _bad_url(url, why) from None
    if not host.isprintable():
        raise _bad_url(url, "its host holds a character that cannot be shown")


def _bad_url(url: str, why: str) -> Invalid:
    place = url.rpartition("@")[2].removeprefix("amqp://").removeprefix("amqps://")
    # Without a host that can be told from the rest, what follows a colon may be a password.
    shown = place.partition("?")[0][:80] if "@" in url or ":" not in place else "…"
    return Invalid(
        f"The address of the broker ({shown!r}) cannot be used: {why}.",
        "For example amqp://user:password@host:5672/vhost.",
    )


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """What the broker says of a queue: how many wait in it, and how many consume it."""

    name: str
    messages: int
    consumers: int


class _Connection(amqp.Connection):  # type: ignore[misc]
    """py-amqp's connection, with buffered reads and raw deliveries."""

    def __init__(self, address: Address, heartbeat: int, purpose: str) -> None:
        host = f"[{address.host}]" if ":" in address.host else address.host
        super().__init__(
            f"{host}:{address.port}",
            userid=address.user,
            password=address.password,
            login_method="PLAIN",
            virtual_host=address.virtual_host,
            ssl=dict(address.tls) if address.tls else False,
            connect_timeout=CONNECT_SECONDS,
            heartbeat=heartbeat,
            frame_max=FRAME_BYTES_MAX,
            frame_handler=delivering,
            client_properties={"product": "agentq", "connection_name": f"agentq {purpose}"},
            on_blocked=self._on_alarm,
            on_unblocked=self._on_all_clear,
            socket_settings=_patience(),
        )
        self.sinks: dict[int, Callable[[Delivery], None]] = {}
        self.alarmed = False

    def Transport(  # noqa: N802 - py-amqp's name for it
        self, host: str, connect_timeout: float, ssl: Any = False, *_: Any, **kwargs: Any
    ) -> Any:
        kind = BufferedTls if ssl else BufferedTcp
        return kind(host, connect_timeout=connect_timeout, ssl=ssl, **kwargs)

    def blocking_read(self, timeout: float | None = None) -> Any:
        if not self.connected:  # py-amqp would quietly connect again, and the state be another
            raise exceptions.RecoverableConnectionError("the connection is closed")
        with self.transport.having_timeout(timeout):
            frame = self.transport.read_frame()
        return self.take_in(frame)

    def take_in(self, frame: Frame) -> Any:
        try:
            return self.on_inbound_frame(frame)
        except (LookupError, ValueError, struct.error) as error:
            raise exceptions.UnexpectedFrame(
                f"a frame came that makes no sense: {error}"
            ) from error

    def deliver(self, channel: int, delivery: Delivery) -> None:
        self.sinks[channel](delivery)

    def _on_alarm(self, _reason: str) -> None:
        self.alarmed = True

    def _on_all_clear(self) -> None:
        self.alarmed = False


def _patience() -> dict[int, int]:
    """A peer that vanished is noticed within half a minute, and one that is slow is waited for."""
    import socket

    return {
        socket.TCP_KEEPIDLE: 15,
        socket.TCP_KEEPINTVL: 5,
        socket.TCP_KEEPCNT: 3,
        socket.TCP_USER_TIMEOUT: 20_000,
    }


class Link:
    """An open connection. Raises `Unavailable` or `Refused` if there is none to be had."""

    def __init__(self, address: Address, purpose: str, heartbeat: int = 0) -> None:
        self.address = address
        self._connection = _Connection(address, heartbeat, purpose)
        try:
            with self.speaking("logging in"):
                self._connection.connect()
        except AgentqError:
            self._connection.collect()
            raise
        self._stream: BufferedTcp | BufferedTls = self._connection.transport
        self._stream.sock.settimeout(ANSWER_SECONDS)
        self._poller = select.poll()
        self._poller.register(self._stream.sock, select.POLLIN)
        self._wake_fd = -1
        self._beat = self._connection.heartbeat / 3 if self._connection.heartbeat else 3600.0

    @property
    def server(self) -> dict[str, Any]:
        """The properties that the broker sent when the connection was opened."""
        properties: dict[str, Any] = self._connection.server_properties
        return properties

    @property
    def alarmed(self) -> bool:
        """Whether the broker has said that it takes no messages now (memory or disk)."""
        return self._connection.alarmed

    @property
    def frame_bytes_max(self) -> int:
        return min(int(self._connection.frame_max), FRAME_BYTES_MAX)

    def channel(self) -> Channel:
        """A new channel of its own."""
        return Channel(self._connection)

    def write(self, frames: bytes) -> None:
        """Send frames that `wire` has made."""
        self._stream.write(frames)
        self._connection.bytes_sent += 1

    def pump(self) -> bool:
        """Take in what has come, without waiting; True if something had."""
        transport, took = self._stream, False
        self._watch_wake_fd(-1)
        while True:
            while (frame := transport.next_frame()) is not None:
                self._connection.take_in(frame)
                took = True
            if not (transport.pending() or self._poller.poll(0)):
                return took
            transport.gulp()

    def wait(self, deadline: float, wake_fd: int = -1) -> bool:
        """Sleep until something came (True), the time is up or the file `wake_fd` can be read."""
        if self.pump():
            return True
        while (left := deadline - time.monotonic()) > 0:
            self._watch_wake_fd(wake_fd)
            ready = self._poller.poll(min(left, self._beat) * 1000)
            self._connection.heartbeat_tick(3)
            if any(fd != wake_fd for fd, _ in ready):
                self._stream.gulp()
                if self.pump():
                    return True
            elif ready:
                return False
        return False

    def beat(self, ended: threading.Event) -> None:
        """Heartbeats until `ended`: for a thread, while nobody else speaks or listens here."""
        with suppress(exceptions.AMQPError, OSError):  # whoever speaks next finds out
            while not ended.wait(self._beat):
                self._connection.send_heartbeat()

    def _watch_wake_fd(self, wake_fd: int) -> None:
        if wake_fd != self._wake_fd:
            if self._wake_fd >= 0:
                self._poller.unregister(self._wake_fd)
            if wake_fd >= 0:
                self._poller.register(wake_fd, select.POLLIN)
            self._wake_fd = wake_fd

    @contextmanager
    def speaking(self, doing: str) -> Iterator[None]:
        """Everything py-amqp and the network may raise, as errors of agentq."""
        try:
            yield
        except exceptions.PreconditionFailed as error:
            if _ACK_LIMIT_WORDS in _error_text(error):
                raise Unavailable(
                    f"The broker at {self.address} took back what was held too long, while {doing}:"
                    f" {_error_text(error)}.",
                    "It gives it out again; `consumer_timeout` of the broker says how long.",
                ) from None
            raise Conflict(
                f"The broker at {self.address} has it declared in another way:"
                f" {_error_text(error)}. Nothing of it was changed.",
                f"Remove the old declaration ({_removing(error)}), or use a virtual host of its own"
                " for agentq.",
            ) from None
        except exceptions.ResourceLocked as error:
            raise Conflict(
                f"Another connection to the broker at {self.address} has it for itself, while"
                f" {doing}: {_error_text(error)}.",
                "Let whoever declared it as exclusive go, or use a virtual host of its own for"
                " agentq; `rabbitmqctl list_queues name owner_pid` shows them.",
            ) from None
        except (exceptions.AccessRefused, exceptions.NotAllowed) as error:
            raise Refused(
                f"The broker at {self.address} refused user {self.address.user!r} while"
                f" {doing}: {_error_text(error)}.",
                "Check user, password and permissions; `agentq init --broker` prints the commands.",
            ) from None
        except exceptions.NotFound as error:
            raise NotFound(
                f"The broker at {self.address} does not have it, while {doing}:"
                f" {_error_text(error)}.",
                "`agentq init --broker` declares what is needed.",
            ) from None
        except (exceptions.AMQPError, OSError, struct.error) as error:
            raise Unavailable(
                f"The broker at {self.address} cannot be reached, or went away while {doing}:"
                f" {_error_text(error)}.",
                "See whether the broker runs, and can be reached from here.",
            ) from None

    @contextmanager
    def asking(self, doing: str) -> Iterator[Channel]:
        """A channel for one question: an error closes a channel, and what is on it."""
        with self.speaking(doing):
            channel = self.channel()
            try:
                yield channel
            finally:
                channel.close()

    def close(self, *, polite: bool = True) -> None:
        """Close the connection. Never raises for a broker that is gone."""
        if polite and self._connection.connected and not self.alarmed:  # else it does not hear us
            with suppress(exceptions.AMQPError, OSError, struct.error):
                self._stream.sock.settimeout(CLOSE_SECONDS)
                self._connection.close()
        self._connection.collect()


def _error_text(error: Exception) -> str:
    text = getattr(error, "reply_text", None) or str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        text = "it did not answer in time"
    return str(text)[:_SHOWN_CHARS].rstrip(".")


def _removing(error: Exception) -> str:
    thing = "exchange" if " for exchange " in _error_text(error) else "queue"
    if thing == "queue":
        return "rabbitmqctl delete_queue NAME"
    return "rabbitmqadmin delete exchange name=NAME"


class Channel:
    """One conversation on a link. Its errors are py-amqp's: callers use `Link.speaking`."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._channel = connection.channel()
        self.number: int = self._channel.channel_id

    # -- declaring ---------------------------------------------------------------------------------

    def exchange(self, name: str, kind: str) -> None:
        self._channel.exchange_declare(name, kind, durable=True, auto_delete=False)

    def look_for_exchange(self, name: str) -> None:
        """An error if there is none of this name, whatever its kind."""
        self._channel.exchange_declare(name, "topic", passive=True)

    def queue(self, name: str, arguments: Mapping[str, str | int] | None = None) -> None:
        """A durable queue."""
        self._channel.queue_declare(
            name, durable=True, auto_delete=False, arguments=dict(arguments or {})
        )

    def private_queue(self) -> str:
        """A queue for this connection alone, named by the broker, gone with the connection."""
        name: str = self._channel.queue_declare("", exclusive=True, auto_delete=True)[0]
        return name

    def bind(
        self, queue: str, exchange: str, key: str, arguments: Mapping[str, str | None] | None = None
    ) -> None:
        self._channel.queue_bind(queue, exchange, key, arguments=dict(arguments or {}))

    def look(self, name: str) -> QueueFacts:
        """Return the depth and the consumers of a queue."""
        return QueueFacts(*self._channel.queue_declare(name, passive=True))

    def purge(self, name: str) -> int:
        return int(self._channel.queue_purge(name) or 0)

    # -- consuming ---------------------------------------------------------------------------------

    def consume(
        self, queue: str, sink: Callable[[Delivery], None], prefetch: int = 0, *, ack: bool = True
    ) -> None:
        """Have messages delivered to `sink`, at most `prefetch` of them unacknowledged (0: any)."""
        if prefetch:
            # Nobody waits for the answer: what counts is the order on the wire.
            self._channel.send_method(spec.Basic.Qos, "lBb", (0, prefetch, False))
        self._connection.sinks[self.number] = sink
        self._channel.basic_consume(queue, consumer_tag="agentq", no_ack=not ack, nowait=True)

    def cancel(self, *, wait: bool) -> None:
        """Have nothing more delivered. With `wait`, all that was under way has come afterwards."""
        self._channel.basic_cancel("agentq", nowait=not wait)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self._channel.basic_ack(tag, multiple)

    def reject(self, tag: int, *, requeue: bool) -> None:
        self._channel.basic_reject(tag, requeue)

    # -- publishing --------------------------------------------------------------------------------

    def confirm(
        self,
        answered: Callable[[int, bool, bool], None],
        returned: Callable[[str, Any], None],
    ) -> None:
        """Have the broker answer for each message, by number and "and all before": taken or not."""
        self._channel.confirm_select()
        self._channel.events["basic_ack"].add(lambda tag, all_: answered(tag, all_, True))
        self._channel.events["basic_nack"].add(lambda tag, all_: answered(tag, all_, False))
        self._channel.events["basic_return"].add(
            lambda error, _exchange, _key, content: returned(_error_text(error), content)
        )

    def close(self) -> None:
        self._connection.sinks.pop(self.number, None)
        self._channel.close()
