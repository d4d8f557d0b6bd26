"""Sending one webhook: to where it is meant to go, and to nowhere else.

Whoever can choose an address must not reach through us what they could not reach themselves: a
name is resolved once, addresses of this machine and of private networks are refused unless
settings allow them, and the connection goes to the very address that was looked at. No redirect is
followed. What comes back is read for a bounded time, and a bounded part of it.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple
from urllib.parse import urlsplit

from agentq.core.errors import Refused, Unavailable

#: For a connection, and for everything together.
CONNECT_SECONDS = 5.0
TOTAL_SECONDS = 15.0
_ANSWER_BYTES_MAX = 16 << 10
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class PostAnswer(NamedTuple):
    """What a target said."""

    status: int
    text: str = ""

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


def post(
    url: str, headers: Mapping[str, str], body: bytes, *, allow_private: bool,
    total_seconds: float = TOTAL_SECONDS,
) -> PostAnswer:  # fmt: skip
    """Post to this address; raises `Refused` if that must not be, `Unavailable` if it cannot."""
    parts = urlsplit(url)
    assert parts.hostname is not None  # settings say so
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    address = _resolved(parts.hostname, port, allow_private=allow_private)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection: http.client.HTTPConnection | None = None
    timer: threading.Timer | None = None
    try:
        raw = socket.create_connection((address, port), CONNECT_SECONDS)
        # A target that sends a byte now and then must not hold its thread for ever.
        timer = threading.Timer(total_seconds, _cut, (raw,))
        timer.daemon = True
        timer.start()
        connection = http.client.HTTPConnection(parts.hostname, port, timeout=total_seconds)
        raw.settimeout(total_seconds)
        connection.sock = _tls().wrap_socket(raw, server_hostname=parts.hostname) if secure else raw
        connection.request("POST", path, body, {**headers, "Host": parts.netloc})
        answer = connection.getresponse()
        text = answer.read(_ANSWER_BYTES_MAX).decode("utf-8", "replace")
        return PostAnswer(answer.status, text)
    except (OSError, http.client.HTTPException) as error:
        said = str(error) or type(error).__name__
        raise Unavailable(f"{parts.hostname} does not take it: {said[:200]}.") from error
    finally:
        if timer is not None:
            timer.cancel()
        if connection is not None:
            connection.close()


def _cut(raw: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended just now
        raw.shutdown(socket.SHUT_RDWR)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _resolved(host: str, port: int, *, allow_private: bool) -> str:
    """One address of the host that may be connected to."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"{host} has no address: {error}.") from error
    addresses = [str(each[4][0]) for each in found]
    good = [each for each in addresses if allow_private or is_public(each)]
    if not good:
        raise Refused(
            f"{host} is at {addresses[0]}, an address of this machine or of a private network."
            " Nothing was sent.",
            "If that is meant: allow_private = true.",
            code="private_address",
        )
    return good[0]


def is_public(address: str) -> bool:
    """Whether an address is one that anybody on the internet can reach."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast
