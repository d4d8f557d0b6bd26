"""Requests by chance: some nearly right, some HTTP, some only bytes. A seed repeats them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from agentq.contracts.route_types import shape_of
from agentq.contracts.routes import FILES_TYPE, JSON_TYPE, PREFIX, ROUTES, WAKEUPS_PATH, Route

_METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW", "get")
_TEXTS = (
    "", "task-1", "task-2", "w", "0", "1", "-1", "99999999999999999999", "1e308", "nan", "true",
    "null", "..", "../../etc/passwd", "%2e%2e%2f", "%00", "%ff", "a" * 3000, "'; DROP TABLE", "é",
    "\ud83d\ude00", "\x1b[2J", "sqlite:///x", "{}", "[]", " ", "\t",
)  # fmt: skip
_HEADERS = (
    "accept: */*", "range: bytes=0-", "range: bytes=5-1", "range: bytes=-", "expect: 100-continue",
    "idempotency-key: same", "if-match: 7", "last-event-id: x", "upgrade: websocket",
    "connection: upgrade", "connection: close", "agentq-attempt: task-1/1/w",
    "agentq-attempt: ///", "content-encoding: gzip", "x-forwarded-for: 10.0.0.1", "cookie: a=b",
    "origin: http://evil.example", "x: \xff\xfe", "x-long: " + "y" * 5000, "te: trailers",
)  # fmt: skip


@dataclass(frozen=True)
class RandomRequest:
    """What to send, and whether it is a whole request that must be answered."""

    data: bytes
    whole: bool


class RandomRequests:
    """Requests to one server, drawn one by one."""

    def __init__(self, seed: int, token: str, host: str = "127.0.0.1") -> None:
        self._chance = random.Random(seed)
        self._token = token
        self._host = host

    def draw(self) -> RandomRequest:
        kind = self._chance.random()
        if kind < 0.6:
            return RandomRequest(self._request(), whole=True)
        if kind < 0.8:
            return RandomRequest(self._damaged(self._request()), whole=False)
        if kind < 0.9:
            return RandomRequest(self._framed_wrongly(), whole=False)
        return RandomRequest(self._chance.randbytes(self._chance.randrange(1, 3000)), whole=False)

    def _request(self) -> bytes:
        route = self._chance.choice(ROUTES)
        body = self._body(route)
        lines = [f"{self._method(route)} {self._target(route)} HTTP/1.1", *self._headers()]
        lines.append(f"content-type: {self._chance.choice((JSON_TYPE, FILES_TYPE, 'text/plain'))}")
        lines.append(f"content-length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace") + body

    def _method(self, route: Route) -> str:
        return route.method if self._chance.random() < 0.9 else self._chance.choice(_METHODS)

    def _target(self, route: Route) -> str:
        if self._chance.random() < 0.03:
            return f"{PREFIX}{WAKEUPS_PATH}?topic={self._text()}&since=x.1&seconds=0"
        if self._chance.random() < 0.05:
            return "/" + self._text()
        parts = [self._text() if part.startswith("{") else part for part in route.path.split("/")]
        pairs = [
            f"{self._chance.choice([*shape_of(route.call).request.__struct_fields__, 'x'])}"
            f"={self._text()}"
            for _ in range(self._chance.randrange(3) if route.method == "GET" else 0)
        ]
        return PREFIX + "/".join(parts) + ("?" + "&".join(pairs) if pairs else "")

    def _text(self) -> str:
        text = self._chance.choice(_TEXTS)
        return "".join(c if c.isalnum() or c in "-._~%/" else f"%{ord(c) % 256:02X}" for c in text)

    def _headers(self) -> list[str]:
        lines = [f"host: {self._host}"]
        if self._chance.random() < 0.97:
            lines.append(f"authorization: Bearer {self._token}")
        count = self._chance.choice((0, 0, 1, 3))
        return lines + self._chance.sample(_HEADERS, count)

    def _body(self, route: Route) -> bytes:
        if route.method == "GET":
            return b""
        names = [*shape_of(route.call).request.__struct_fields__, "unknown"]
        few = self._chance.sample(names, self._chance.randrange(len(names) + 1))
        plain = {name: self._value(3) for name in few if name != "wait_seconds"}
        body = json.dumps(plain).encode("utf-8", "replace")
        if self._chance.random() < 0.2:
            return json.dumps({"arguments": plain, "sizes": self._value(1)}).encode() + b"\n" + body
        return body if self._chance.random() < 0.9 else body[: self._chance.randrange(len(body))]

    def _value(self, depth: int) -> Any:
        choice = self._chance.randrange(8 if depth else 6)
        if choice == 6:
            return [self._value(depth - 1) for _ in range(self._chance.randrange(4))]
        if choice == 7:
            known = ("id", "to", "instructions", "task_id", "epoch", "lease_ms", "name", "file")
            return {self._chance.choice(known): self._value(depth - 1) for _ in range(3)}
        simple = (None, True, -1, 2**70, 1.5, self._chance.choice(_TEXTS))
        return simple[choice]

    def _damaged(self, data: bytes) -> bytes:
        """The same with bytes changed, left out, doubled or put in."""
        found = bytearray(data)
        for _ in range(self._chance.randrange(1, 6)):
            place = self._chance.randrange(len(found) or 1)
            how = self._chance.randrange(4)
            if how == 0:
                found[place : place + 1] = self._chance.randbytes(1)
            elif how == 1:
                del found[place : place + self._chance.randrange(1, 40)]
            elif how == 2:
                found[place:place] = found[place : place + 40]
            else:
                found[place:place] = self._chance.choice((b"\r\n", b"\x00", b": ", b"\n\n", b" "))
        return bytes(found)

    def _framed_wrongly(self) -> bytes:
        head = "\r\n".join([f"POST {PREFIX}/tasks HTTP/1.1", *self._headers()]).encode("utf-8")
        framing = self._chance.choice(
            (
                b"content-length: 5\r\ncontent-length: 6\r\n\r\n{}   ",
                b"content-length: -5\r\n\r\n{}",
                b"content-length: 99999999999999999999999\r\n\r\n{}",
                b"content-length: 50\r\n\r\n{}",
                b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
                b"transfer-encoding: chunked\r\n\r\nffffffffffffffffffff\r\n{}\r\n0\r\n\r\n",
                b"transfer-encoding: chunked\r\n\r\n2;" + b"x" * 70000 + b"\r\n{}\r\n0\r\n\r\n",
                b"transfer-encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
                b"transfer-encoding: gzip\r\n\r\n{}",
                b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
            )
        )
        return head + b"\r\n" + framing
