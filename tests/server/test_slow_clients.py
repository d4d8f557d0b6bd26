"""Clients that let the server wait: bounded in time and in number, and others are served."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentq.contracts.routes import FILES_TYPE
from agentq.server import app, body, connections
from tests.eventually import eventually, pause
from tests.server.conftest import Served, serving_ledger
from tests.server.hostile import answer_to, first_answer, head, line_to, status_in

#: What is 15, 30 or 60 s elsewhere.
SOON = 0.5


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server with little patience and room for twenty connections."""
    for name in ("HEAD_SECONDS", "REST_SECONDS", "READ_SECONDS"):
        monkeypatch.setattr(connections, name, SOON)
    monkeypatch.setattr(body, "SILENCE_SECONDS", SOON)
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 20)
    with serving_ledger(tmp_path) as found:
        yield found


def drip(line: socket.socket, data: bytes, stop: threading.Event) -> None:
    """Send a byte now and then until the other side has had enough."""
    for byte in data:
        try:
            line.send(bytes([byte]))
        except OSError:
            return
        if stop.wait(SOON / 10):
            return


def dripping(
    served: Served, before: bytes, data: bytes, then: Callable[[socket.socket], bytes]
) -> bytes:
    """What a client that sends byte after byte gets."""
    stop = threading.Event()
    with line_to(served.url) as line:
        line.sendall(before)
        sending = threading.Thread(target=drip, args=(line, data, stop))
        sending.start()
        try:
            return then(line)
        finally:
            stop.set()
            sending.join()


def test_a_head_that_never_ends(hasty: Served) -> None:
    """Not even if a byte comes all the time; and those who come meanwhile are served."""
    begun = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "
    said = dripping(hasty, begun, b"y" * 10_000, answer_to)
    assert said == b""
    assert hasty.ask("GET", "/healthz").status == 200


@pytest.mark.long
def test_a_connection_that_says_nothing(hasty: Served) -> None:
    with line_to(hasty.url) as line:
        assert answer_to(line) == b""


@pytest.mark.long
def test_a_second_request_that_never_ends(hasty: Served) -> None:
    """What holds for the first request of a connection holds for the next."""
    whole = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    said = dripping(hasty, whole, b"GET /healthz" + b"z" * 10_000, answer_to)
    assert said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "kind", ["application/json", pytest.param(FILES_TYPE, marks=pytest.mark.long)]
)
def test_a_body_that_hardly_comes(hasty: Served, kind: str) -> None:
    lines = ("content-length: 100000", f"content-type: {kind}")
    path = "/tasks" if kind != FILES_TYPE else "/tasks/task-1/attempts/1/artifacts"
    said = dripping(hasty, head(hasty, "POST", path, *lines), b"{" * 10_000, answer_to)
    assert status_in(said) == 408
    assert b"too_slow" in said


@pytest.mark.long
def test_a_body_that_nobody_wants(hasty: Served) -> None:
    """A request is refused by its head; who goes on sending is let go after a moment."""
    refused = head(hasty, "POST", "/tasks", "content-length: 100000", token="wrong")
    said = dripping(hasty, refused, b"{" * 100_000, answer_to)
    assert status_in(said) == 401


@pytest.mark.long
def test_an_answer_that_is_not_read(hasty: Served) -> None:
    """The file is let go, and the connection."""
    queue = hasty.queue()
    task = queue.submit(to="w", instructions="x")
    claim = queue.claim_task(task.id)
    claim.put("large.bin", b"x" * (32 << 20))
    with line_to(hasty.url) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        line.sendall(head(hasty, "GET", f"/tasks/{task.id}/artifacts/large.bin"))
        pause(SOON * 4)  # nothing can be seen without reading
        assert len(answer_to(line)) < 32 << 20
    whole = hasty.ask("GET", f"/api/v1/tasks/{task.id}/artifacts/large.bin")
    assert len(whole.body) == 32 << 20, "who reads gets it"


def test_more_connections_than_there_is_room_for(hasty: Served) -> None:
    """Those that wait longest without a request make room; a request under way is kept."""
    with ExitStack() as open_lines:
        stream = open_lines.enter_context(line_to(hasty.url))
        stream.sendall(head(hasty, "GET", "/events", "accept: text/event-stream"))
        assert status_in(first_answer(stream)) == 200
        lines = [open_lines.enter_context(line_to(hasty.url)) for _ in range(60)]
        for line in lines:
            line.sendall(b"GET /healthz HTTP/1.1\r\n")
        for _ in range(10):
            assert hasty.ask("GET", "/healthz").status == 200
        assert answer_to(lines[0]) == b""
        hasty.queue().submit(to="w", instructions="x", id="task-seen")
        eventually(lambda: b"task-seen" in stream.recv(1 << 16), what="the event")


def test_streams_are_no_work(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many follow the log, whoever has something to do is not asked to come again."""
    monkeypatch.setattr(app, "BUSY_MAX", 4)
    with ExitStack() as open_lines:
        for _ in range(8):
            line = open_lines.enter_context(line_to(served.url))
            line.sendall(head(served, "GET", "/events", "accept: text/event-stream"))
            assert status_in(first_answer(line)) == 200
        assert served.ask("GET", "/api/v1/stats").status == 200


def test_when_all_connections_are_at_work(hasty: Served) -> None:
    """Then there is nothing to make room with: who comes is asked to come again."""
    with ExitStack() as open_lines:
        for _ in range(20):
            line = open_lines.enter_context(line_to(hasty.url))
            line.sendall(head(hasty, "GET", "/events", "accept: text/event-stream"))
            assert status_in(first_answer(line)) == 200
        late = open_lines.enter_context(line_to(hasty.url))
        said = answer_to(late)
        assert status_in(said) == 503
        assert b"retry-after" in said
    assert eventually(lambda: _answers(hasty), what="room")


def _answers(served: Served) -> bool:
    try:
        return served.ask("GET", "/healthz").status == 200
    except OSError:
        return False
