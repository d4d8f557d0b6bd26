"""`agentq serve` that is told to end while many wait on it: it ends within three seconds."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentq.contracts.routes import FILES_TYPE, PREFIX
from tests.processes.server_process import ServerProcess, new_ledger
from tests.server.hostile import answer_to, first_answer, line_to, status_in

pytestmark = pytest.mark.long

END_SECONDS_MAX = 3.0


class Crowd:
    """Connections to one server, each with a request under way."""

    def __init__(self, server: ServerProcess, token: str, stack: ExitStack) -> None:
        self._server, self._token, self._stack = server, token, stack

    def begin(self) -> None:
        """A request whose head does not end."""
        self._stack.enter_context(line_to(self._server.url)).sendall(b"GET / HTTP/1.1\r\n")

    def ask(self, method: str, path: str, *lines: str, body: bytes = b"") -> socket.socket:
        line = self._stack.enter_context(line_to(self._server.url))
        head = [f"{method} {PREFIX}{path} HTTP/1.1", "host: 127.0.0.1", *lines]
        head.append(f"authorization: Bearer {self._token}")
        if body:
            head.append(f"content-length: {len(body)}")
        line.sendall("\r\n".join([*head, "", ""]).encode() + body)
        return line


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[ServerProcess, Crowd, str]]:
    with (
        new_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as (settings, queue, token),
        ServerProcess(settings, tmp_path) as server,
        ExitStack() as stack,
    ):
        task = queue.submit(to="w", instructions="x")
        queue.claim_task(task.id).put("large.bin", b"x" * (32 << 20))
        yield server, Crowd(server, token, stack), task.id


def seconds_to_end(server: ServerProcess) -> float:
    began = time.monotonic()
    server.end()
    return time.monotonic() - began


def test_streams_and_long_polls_are_ended_in_order(
    served: tuple[ServerProcess, Crowd, str],
) -> None:
    server, crowd, _ = served
    streams = [crowd.ask("GET", "/events", "accept: text/event-stream") for _ in range(50)]
    for line in streams:
        assert status_in(first_answer(line)) == 200
    claim = json.dumps({"role": "none", "count": 1, "holder": "me", "wait_seconds": 60}).encode()
    polls = [crowd.ask("POST", "/claims", body=claim) for _ in range(25)]
    cursor = crowd.ask("GET", "/wakeups?topic=none")
    since = json.loads(first_answer(cursor).partition(b"\r\n\r\n")[2] or cursor.recv(4096))
    ring = f"/wakeups?topic=none&since={since['cursor']}&seconds=60"
    polls += [crowd.ask("GET", ring) for _ in range(25)]
    assert status_in(first_answer(crowd.ask("GET", "/stats"))) == 200  # the others came before
    took = seconds_to_end(server)
    assert took <= END_SECONDS_MAX, f"{took:.1f} s"
    for line in streams:
        assert answer_to(line).endswith(b"0\r\n\r\n"), "the stream has an end"
    for line in polls:
        assert status_in(answer_to(line)) == 200
    assert "Traceback" not in server.said, server.said


def test_nobody_who_stalls_holds_it_up(served: tuple[ServerProcess, Crowd, str]) -> None:
    """Bodies that do not come, answers that are not read, heads that are not finished."""
    server, crowd, task_id = served
    for _ in range(10):
        crowd.ask("POST", "/tasks", "content-length: 1000")
        crowd.ask("POST", f"/tasks/{task_id}/attempts/1/artifacts", f"content-type: {FILES_TYPE}",
                  "content-length: 1000000")  # fmt: skip
        crowd.ask("GET", f"/tasks/{task_id}/artifacts/large.bin")
        crowd.begin()
    assert status_in(first_answer(crowd.ask("GET", "/stats"))) == 200
    took = seconds_to_end(server)
    assert took <= END_SECONDS_MAX, f"{took:.1f} s"
