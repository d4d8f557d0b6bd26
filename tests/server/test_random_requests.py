"""Requests by chance: each gets an answer or none, and the server goes on as before."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from tests.processes.server_process import ServerProcess, new_ledger
from tests.server.conftest import ANN, Served
from tests.server.hostile import line_to, memory_kb, status_in
from tests.server.random_requests import RandomRequests
from tests.tiers import made_up

#: How long something that need not be answered is listened to.
_MOMENT = 0.05
THREADS = 4
GROWTH_KB_MAX = 60_000


def send_one(url: str, requests: RandomRequests) -> tuple[int, bytes, bytes]:
    """Send one; its status (0 for none), what was sent, and what was answered."""
    request = requests.draw()
    with line_to(url) as line:
        answer = b""
        try:
            line.sendall(request.data)
            if not request.whole:
                line.settimeout(_MOMENT)
            while b"\r\n\r\n" not in answer:
                piece = line.recv(1 << 16)
                if not piece:
                    break
                answer += piece
                if answer.startswith(b"HTTP/1.1 100"):
                    answer = answer.partition(b"\r\n\r\n")[2]
        except (TimeoutError, ConnectionError):
            assert not request.whole or answer, request.data
        return status_in(answer), request.data, answer


def check(status: int, sent: bytes, answer: bytes) -> None:
    served_later = status == 503 and b"retry-after" in answer
    assert status < 500 or served_later, (sent[:2000], answer[:2000])


def test_a_few(served: Served, session_seed: int) -> None:
    requests = RandomRequests(session_seed, served.tokens.of(ANN))
    seen = Counter[int]()
    for _ in range(150):
        status, sent, answer = send_one(served.url, requests)
        check(status, sent, answer)
        seen[status] += 1
    assert seen[200] and seen[400] and seen[404], seen
    assert served.ask("GET", "/readyz").status == 200


@pytest.mark.fuzz
@pytest.mark.long
def test_thousands(tmp_path: Path, session_seed: int) -> None:
    """The process lives, its memory does not grow, its log has no failure, its ledger is proved."""
    with (
        new_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as (settings, queue, token),
        ServerProcess(settings, tmp_path) as server,
    ):
        pid, seen, failures = server.pid, Counter[int](), list[BaseException]()

        def send_many(count: int, seed: int) -> None:
            requests = RandomRequests(seed, token)
            try:
                for _ in range(count):
                    status, sent, answer = send_one(server.url, requests)
                    check(status, sent, answer)
                    seen[status] += 1
            except BaseException as error:  # noqa: BLE001 - raised again by the test
                failures.append(error)

        def run(count: int, seed: int) -> None:
            senders = [
                threading.Thread(target=send_many, args=(count // THREADS, seed * THREADS + each))
                for each in range(THREADS)
            ]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            if failures:
                raise failures[0]

        run(made_up(1000), session_seed)
        warm = memory_kb(pid)
        run(made_up(3000), session_seed + 1)
        grown = memory_kb(pid) - warm
        assert server.pid == pid and server.answers()
        assert grown < GROWTH_KB_MAX, (
            f"{warm} kB after the first requests, then {grown} kB more: {seen}"
        )
        assert "Traceback" not in server.said, server.said[-4000:]
        server.end()
        assert [problems for _, problems in queue.admin.verify() if problems] == []
