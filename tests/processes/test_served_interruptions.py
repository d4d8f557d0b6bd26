"""A server that is killed in the middle of a file or a stream: what was begun is gone on with, or
was never there."""

from __future__ import annotations

import hashlib
import http.client
import io
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.contracts.artifacts import LIVE_KEEP_BYTES
from agentq.contracts.routes import PREFIX
from agentq.core.errors import Unavailable
from agentq.remote.transport import HttpReply
from tests.eventually import eventually, pause
from tests.processes.server_process import ServerProcess, new_ledger
from tests.processes.warm_parent import WarmParent

pytestmark = pytest.mark.long

CONTENT = random.Random(7).randbytes(24 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Interrupted:
    """A server, a client elsewhere that has reached it once, and the ledger beside it."""

    def __init__(self, server: ServerProcess, there: Queue, here: Queue, token: str) -> None:
        self.server, self.there, self.here, self.token = server, there, here, token
        self.there.admin.stats()  # a server that was reached is waited for
        self._starting: list[threading.Thread] = []

    def replace_server(self) -> None:
        """Kill the server; another comes in a moment, while the caller goes on."""
        self.server.kill()
        starting = threading.Thread(target=self.server.start)
        starting.start()
        self._starting.append(starting)

    def settle(self) -> None:
        for each in self._starting:
            each.join()

    def visible(self, task_id: str) -> list[tuple[str, int]]:
        return [(each.name, each.size) for each in self.here.artifacts(task_id)]


@pytest.fixture
def interrupted(tmp_path: Path, parent: WarmParent) -> Iterator[Interrupted]:
    with (
        new_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", tmp_path) as (settings, here, token),
        ServerProcess(settings, tmp_path, parent=parent) as server,
        server.queue(token) as there,
    ):
        found = Interrupted(server, there, here, token)
        try:
            yield found
        finally:
            found.settle()
        assert [problems for _, problems in here.admin.verify() if problems] == []


class Killing(io.BytesIO):
    """A file in whose middle the server dies, the first time it is read."""

    def __init__(self, interrupted: Interrupted, task_id: str) -> None:
        super().__init__(CONTENT)
        self._interrupted = interrupted
        self._task_id = task_id
        self.read_again = 0

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() == 0:
            self.read_again += 1
        if self.tell() > len(CONTENT) // 2 and self.read_again == 1:
            self.read_again = 2
            self._interrupted.replace_server()
            assert self._interrupted.visible(self._task_id) == []
        return super().read(size)


def test_in_the_middle_of_an_upload(interrupted: Interrupted, tmp_path: Path) -> None:
    """Nothing of the half is seen; the client sends all of it again to the next server."""
    task = interrupted.there.submit(to="w", instructions="x")
    claim = interrupted.there.claim_task(task.id)
    file = Killing(interrupted, task.id)
    stored = claim.put("a.bin", file)
    assert stored.sha256 == SHA256
    assert file.read_again == 3
    assert interrupted.visible(task.id) == [("a.bin", len(CONTENT))]
    assert left_over(tmp_path) == []


def test_anywhere_in_an_upload(interrupted: Interrupted, tmp_path: Path, session_seed: int) -> None:
    """Also while the server stores and records what has come."""
    chance = random.Random(session_seed)
    task = interrupted.there.submit(to="w", instructions="x")
    claim = interrupted.there.claim_task(task.id)
    for number in range(8):
        sending = threading.Thread(target=claim.put, args=(f"{number}.bin", CONTENT))
        sending.start()
        pause(chance.random() * 0.4)
        seen = interrupted.visible(task.id)
        assert all(size == len(CONTENT) for _, size in seen)
        interrupted.server.kill()
        interrupted.server.start()
        sending.join()
    names = sorted(name for name, _ in interrupted.visible(task.id))
    assert names == [f"{number}.bin" for number in range(8)]
    # What the dead servers had not finished is swept away once it is old.
    client = interrupted.here._client
    client.installation.artifacts.sweep(client.now() + 24 * 3600 * 1000, lambda *_: True)
    assert left_over(tmp_path) == []
    assert len(interrupted.visible(task.id)) == 8


def left_over(folder: Path) -> list[Path]:
    return list((folder / "artifacts").rglob(".tmp-*"))


@contextmanager
def killed_while_reading(
    interrupted: Interrupted, monkeypatch: pytest.MonkeyPatch, times: int
) -> Iterator[list[int]]:
    """The server dies when a part of a body was read; yields the statuses of what was read."""
    real, statuses = HttpReply.pieces, list[int]()

    def pieces(self: HttpReply) -> Iterator[bytes]:
        size = 0
        statuses.append(self.status)
        for piece in real(self):
            size += len(piece)
            yield piece
            if size > len(CONTENT) // 4 and len(statuses) <= times:
                size = -len(CONTENT)
                interrupted.replace_server()

    with monkeypatch.context() as patch:
        patch.setattr(HttpReply, "pieces", pieces)
        yield statuses


def test_in_the_middle_of_a_download(
    interrupted: Interrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next server gives what was missing, twice here; whoever reads sees all of it."""
    task = interrupted.there.submit(to="w", instructions="x")
    interrupted.there.claim_task(task.id).put("a.bin", CONTENT)
    service = interrupted.there._client.service
    with killed_while_reading(interrupted, monkeypatch, times=3) as statuses:
        _, _, file = service.open_artifact(interrupted.there.who, task.id, "a.bin")
        with file:
            assert hashlib.sha256(file.read()).hexdigest() == SHA256
    # The first was the task itself.
    assert statuses == [200, 200, 206, 206]


def test_in_the_middle_of_a_result(
    interrupted: Interrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = interrupted.there.submit(to="w", instructions="x")
    interrupted.there.claim_task(task.id).complete(summary="well", result=CONTENT)
    service = interrupted.there._client.service
    with killed_while_reading(interrupted, monkeypatch, times=2):
        _, file = service.open_result(interrupted.there.who, task.id)
        assert file is not None
        with file:
            assert hashlib.sha256(file.read()).hexdigest() == SHA256


def test_a_verification_that_breaks_off_says_so(
    interrupted: Interrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not looked at must not pass for proved."""
    interrupted.there.submit_many({"to": "w", "instructions": str(n)} for n in range(3000))
    real = HttpReply.pieces

    def pieces(self: HttpReply) -> Iterator[bytes]:
        for piece in real(self):
            if interrupted.server.runs():
                interrupted.server.kill()
            yield piece

    with monkeypatch.context() as patch:
        patch.setattr(HttpReply, "pieces", pieces)
        with pytest.raises(Unavailable) as caught:
            list(interrupted.there.admin.verify())
    interrupted.server.start()
    assert "not verified" in str(caught.value)


def test_in_the_middle_of_events(interrupted: Interrupted) -> None:
    """The stream ends; from where it ended the next goes on, without a gap and nothing twice."""
    position, seen = 0, list[int]()
    for round_number in range(3):
        interrupted.here.submit_many({"to": "w", "instructions": str(n)} for n in range(40))
        with stream(interrupted, position) as lines:
            for line in lines:
                if line.startswith(b"id: "):
                    position = int(line[4:])
                    seen.append(position)
                if len(seen) == 40 * round_number + 25:
                    interrupted.server.kill()
        interrupted.server.start()
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 3 * 25


@contextmanager
def stream(interrupted: Interrupted, position: int) -> Iterator[Iterator[bytes]]:
    host = interrupted.server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=60)
    headers = {
        "authorization": f"Bearer {interrupted.token}",
        "accept": "text/event-stream",
        "last-event-id": str(position),
    }

    def lines() -> Iterator[bytes]:
        try:
            connection.request("GET", f"{PREFIX}/events", headers=headers)
            yield from iter(connection.getresponse().readline, b"")
        except (OSError, http.client.HTTPException):
            return  # the server died

    yield lines()
    connection.close()


def test_followers_of_the_sdk_go_on(interrupted: Interrupted) -> None:
    seen = list[int]()

    def follow() -> None:
        for entry in interrupted.there.follow(after=0, timeout=120):
            seen.append(entry.position)
            if entry.task_id == "the-last":
                return

    following = threading.Thread(target=follow)
    following.start()
    for _ in range(4):
        interrupted.here.submit_many({"to": "w", "instructions": str(n)} for n in range(10))
        count = len(seen)
        eventually(lambda count=count: len(seen) > count)  # type: ignore[misc]
        interrupted.server.kill()
        interrupted.server.start()
    interrupted.here.submit(to="w", instructions="x", id="the-last")
    following.join(120)
    assert seen == list(range(1, 42))


def test_a_live_log_goes_on(interrupted: Interrupted) -> None:
    """Its writer and its reader are elsewhere; what was acknowledged is there, in its order."""
    there = interrupted.there
    task = there.submit(to="w", instructions="x")
    epoch = there.claim_task(task.id).epoch
    service, said, read = there._client.service, b"", b""
    for number in range(30):
        if number % 10 == 5:
            interrupted.replace_server()
        line = b"line %d\n" % number
        service.live_append(there.who, task.id, epoch, line, LIVE_KEEP_BYTES)
        said += line
        read += service.live_read(there.who, task.id, epoch, len(read), 1 << 20).data
    assert read == said
