"""A server that is killed amid a burst of webhooks: whatever it has answered is in the ledger."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.access import SYSTEM
from tests.eventually import eventually
from tests.hooks.conftest import signed
from tests.hooks.files import ISSUES, SECRET, write_hook

#: What it shows is shown more briefly in tests/hooks/test_door.py, by a server that lives.
pytestmark = pytest.mark.long

BODY = b'{"action": "opened", "issue": {"number": 7, "title": "It broke"}}'


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`agentq serve` as a process of its own, and its port."""
    write_hook(tmp_path / "hooks", "issues", ISSUES)
    (tmp_path / "agentq.toml").write_text("")
    Queue.create(f"sqlite:///{tmp_path}/.agentq/ledger.db").close()
    said = tmp_path / "serve.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "agentq", "serve", "--port", "0"],
            cwd=tmp_path, env={**os.environ, "HOOK_SECRET": SECRET}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        (port, *_) = eventually(lambda: re.findall(r"http://127\.0\.0\.1:(\d+)", said.read_text()))
        yield process, int(port)
    finally:
        process.kill()
        process.wait()


def test_what_was_answered_survives_the_server(
    server: tuple[subprocess.Popen[bytes], int], tmp_path: Path
) -> None:
    process, port = server
    answered: list[str] = []

    def send(sender: int) -> None:
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            for number in range(1000):
                delivery_id = f"d-{sender}-{number}"
                try:
                    connection.request("POST", "/hooks/issues", BODY, signed(BODY, delivery_id))
                    with connection.getresponse() as answer:
                        answer.read()
                except (OSError, HTTPException):
                    return
                assert answer.status == 202
                answered.append(delivery_id)

    senders = [threading.Thread(target=send, args=(each,)) for each in range(8)]
    for each in senders:
        each.start()
    eventually(lambda: len(answered) >= 200)
    process.send_signal(signal.SIGKILL)
    for each in senders:
        each.join()
    process.wait()
    with Queue(f"sqlite:///{tmp_path}/.agentq/ledger.db") as queue:
        service = queue._client.service
        stored = {each.id for each in service.waiting_deliveries(SYSTEM, 10_000)}
        assert set(answered) <= stored
        # At most one of each sender was stored and could not be told so.
        assert len(stored) <= len(answered) + len(senders)
        assert [problems for _, problems in queue.admin.verify() if problems] == []
