"""Bytes on a connection, for clients that do not behave."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from agentq.contracts.routes import PREFIX
from tests.server.conftest import ANN, Served

PATIENCE_SECONDS = 30.0


@contextmanager
def line_to(url: str) -> Iterator[socket.socket]:
    """A plain connection to a server."""
    address = urlsplit(url)
    with socket.create_connection((str(address.hostname), address.port or 80)) as line:
        line.settimeout(PATIENCE_SECONDS)
        yield line


def head(served: Served, method: str, path: str, *lines: str, token: str | None = None) -> bytes:
    """The head of a request of a client with a good token."""
    shown = served.tokens.of(ANN) if token is None else token
    words = [f"{method} {PREFIX}{path} HTTP/1.1", "host: 127.0.0.1", *lines]
    if shown:
        words.append(f"authorization: Bearer {shown}")
    return "\r\n".join([*words, "", ""]).encode("latin-1")


def answer_to(line: socket.socket) -> bytes:
    """All that the server says until it closes the connection."""
    found = bytearray()
    try:
        while piece := line.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        return bytes(found)
    return bytes(found)


def first_answer(line: socket.socket) -> bytes:
    """What the server says first: its status line, and maybe more."""
    found = b""
    while b"\r\n\r\n" not in found:
        piece = line.recv(1 << 16)
        if not piece:
            break
        found += piece
    return found


def status_in(answer: bytes) -> int:
    """The status of an answer; 0 if there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def memory_kb(pid: int, field: str = "VmRSS") -> int:
    """What a process has in memory; `VmHWM` is the most that it ever had."""
    lines: Iterable[str] = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))
