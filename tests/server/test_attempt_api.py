"""The API of an attempt: what it offers, what it refuses, and what it bears."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentq import Queue
from agentq.contracts.routes import ATTEMPT_CALLS, PREFIX, ROUTES
from agentq.core import access
from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.core.task import Task
from agentq.remote.installation import RemoteInstallation
from agentq.server import attempt_socket
from agentq.server.attempt_api import AttemptApi
from agentq.server.attempt_socket import AttemptSocket, remove_left_over
from agentq.settings import Settings
from agentq.wiring import open_installation
from tests.eventually import eventually
from tests.server.conftest import Served


@dataclass
class Agent:
    """One attempt, its socket, and the queue of whoever runs the installation."""

    queue: Queue
    task: Task
    server: AttemptSocket

    @property
    def path(self) -> str:
        return self.server.url.removeprefix("http+unix:")

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        try:
            connection.connect(self.path)
        except OSError:
            connection.close()
            raise
        return connection

    def send(self, data: bytes) -> tuple[int, Any]:
        """Send these bytes, and nothing more; the status and the body that came."""
        with self.connect() as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            return _answer(b"".join(iter(lambda: connection.recv(65536), b"")))

    def ask(self, method: str, path: str, body: object = None, token: str = "") -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {PREFIX}{path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            f"authorization: Bearer {token or self.server.token}\r\n"
            f"content-length: {len(data)}\r\n\r\n"
        )
        return self.send(head.encode() + data)

    def own(self, verb: str) -> str:
        return f"/tasks/{self.task.id}/attempts/{self.task.epoch}/{verb}"

    def inside(self) -> Queue:
        """The SDK as the agent has it."""
        settings = Settings(self.server.url, "nowhere", "the test", token=self.server.token)
        who = access.attempt(self.task.id, self.task.epoch, self.task.to)
        return Queue(installation=RemoteInstallation(settings), who=who)


def _answer(data: bytes) -> tuple[int, Any]:
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    settings = Settings(f"sqlite:///{tmp_path / 'ledger.db'}", str(tmp_path / "files"), "the test")
    with Queue(installation=open_installation(settings, create=True)) as queue:
        queue.submit(to="worker", instructions="do it")
        claim = queue.claim("worker")
        assert claim is not None
        installation = queue._client.installation
        who = access.attempt(claim.id, claim.epoch, "worker")
        server = AttemptSocket(AttemptApi(installation.service, installation.doorbell, who))
        server.start()
        yield Agent(queue, claim.task, server)
        server.close()


def test_only_this_user_may_reach_it(agent: Agent) -> None:
    made, folder = Path(agent.path).stat(), agent.server.folder.stat()
    assert stat.S_IMODE(made.st_mode) == 0o600
    assert stat.S_IMODE(folder.st_mode) == 0o700
    assert [each.name for each in agent.server.folder.iterdir()] == ["socket"]


def test_the_verbs_of_an_attempt_by_the_sdk(agent: Agent, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(3 << 20))
    own = agent.task.id
    with agent.inside() as inside:
        assert inside.task(own).id == own
        assert inside.context(own) == "do it"
        assert inside.progress(own, 40, "half").details.progress_percent == 40
        inside.put(own, "big", big)
        inside.put(own, "empty", b"")
        stored = {each.name: each for each in inside.artifacts(own)}
        assert stored["big"].read() == big.read_bytes() and stored["empty"].size == 0
        inside.comment(own, "me", "slow today", epoch=agent.task.epoch)
        child = inside.submit(to="helper", instructions="help")
        assert child.spec.parent == own
        helper = agent.queue.claim("helper", wait=5)
        assert helper is not None
        helps = threading.Timer(0.1, helper.complete, ("helped",))
        helps.start()
        assert inside.wait(child.id, timeout=20).state is State.COMPLETE
        helps.join()
        assert inside.result(child.id).text() == "helped"
        assert inside.complete(own, "done", "# done").state is State.COMPLETE
    assert agent.queue.result(own).text() == "# done"


@pytest.mark.parametrize("verb", ["block", "fail"])
def test_it_may_block_and_fail(agent: Agent, verb: str) -> None:
    status, said = agent.ask("POST", agent.own(verb), {"reason": "which?"})
    assert status == 200, said
    assert agent.queue.task(agent.task.id).state in (State.BLOCKED, State.PENDING)


def test_what_is_not_for_an_attempt_is_refused(agent: Agent) -> None:
    """Every other route of the table, whatever it is asked with."""
    for route in ROUTES:
        if route.call in ATTEMPT_CALLS:
            continue
        path = route.path.replace("{task_id}", agent.task.id).replace("{epoch}", "1")
        path = path.replace("{ref}", agent.task.id).replace("{", "").replace("}", "")
        status, said = agent.ask(route.method, path, {} if route.method != "GET" else None)
        assert (status, said["error"]["code"]) == (403, "not_permitted"), route.call


def test_it_cannot_say_that_its_work_was_checked(agent: Agent) -> None:
    status, said = agent.ask("POST", agent.own("complete"), {"summary": "x", "verified": True})
    assert (status, said["error"]["code"]) == (403, "not_permitted")
    assert agent.queue.task(agent.task.id).state is State.IN_PROGRESS


def test_nobody_without_its_token(agent: Agent) -> None:
    for token in ("x", "agqa_", agent.server.token[:-1], f"{agent.server.token}x", "\xe9"):
        status, said = agent.ask("GET", f"/tasks/{agent.task.id}", token=token)
        assert (status, said["error"]["code"]) == (401, "bad_token")
    status, _ = agent.send(f"GET {PREFIX}/clock HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert status == 401


def test_after_its_end_nothing_is_answered(agent: Agent) -> None:
    agent.server.end()
    status, said = agent.ask("GET", f"/tasks/{agent.task.id}")
    assert (status, said["error"]["code"]) == (409, "stale")
    agent.server.close()
    with pytest.raises(FileNotFoundError):
        agent.connect()
    assert not agent.server.folder.exists()
    agent.server.close()  # twice is fine


def test_a_request_that_is_sent_again_acts_once(agent: Agent) -> None:
    body = json.dumps({"text": "once"})
    data = (
        f"POST {PREFIX}/tasks/{agent.task.id}/comments HTTP/1.1\r\nidempotency-key: k\r\n"
        f"authorization: Bearer {agent.server.token}\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()
    first, again = agent.send(data), agent.send(data)
    assert first == again and first[0] == 200
    notes = [each for each in agent.queue.history(agent.task.id) if "once" in str(each)]
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000, 431),
        (b"POST / HTTP/1.1\r\nTOKEN\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTOKEN\r\ncontent-length: -1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nTOKEN\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTOKEN\r\nFILES\r\ncontent-length: 9999999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTOKEN\r\nFILES\r\ncontent-length: 3\r\n\r\n{}\n", 400),
        ((b'POST / HTTP/1.1\r\nTOKEN\r\nFILES\r\ncontent-length: 32\r\n\r\n'
         b'{"arguments":{},"sizes":[-4,4]}\n'), 400),
        (b"GET /api/v1/nothing HTTP/1.1\r\nTOKEN\r\n\r\n", 404),
        (b"GET /api/v1/wakeups?since=0&seconds=x HTTP/1.1\r\nTOKEN\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_bad_requests(agent: Agent, data: bytes, status: int) -> None:
    data = data.replace(b"TOKEN", f"authorization: Bearer {agent.server.token}".encode())
    data = data.replace(b"FILES", b"content-type: application/vnd.agentq.files")
    assert agent.send(data)[0] == status
    assert agent.ask("GET", "/clock")[0] == 200


def test_requests_that_end_in_the_middle_change_nothing(agent: Agent) -> None:
    whole = (
        f"POST {PREFIX}{agent.own('fail')} HTTP/1.1\r\nauthorization: Bearer {agent.server.token}"
        '\r\ncontent-length: 16\r\n\r\n{"reason": "no"}'
    ).encode()
    for length in range(0, len(whole) - 1, 7):
        with agent.connect() as connection:
            connection.sendall(whole[:length])
    assert agent.ask("GET", "/clock")[0] == 200
    assert agent.queue.task(agent.task.id).state is State.IN_PROGRESS


def test_connections_are_bounded_and_more_wait(agent: Agent) -> None:
    held = [agent.connect() for _ in range(attempt_socket.CONNECTIONS_MAX + 5)]
    eventually(
        lambda: len(agent.server._connections) == attempt_socket.CONNECTIONS_MAX, what="no room"
    )
    asked = threading.Timer(0, lambda: answers.append(agent.ask("GET", "/clock")[0]))
    answers: list[int] = []
    asked.start()
    for each in held:
        each.close()
    asked.join(30)
    assert answers == [200]


def test_a_silent_connection_is_ended(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_socket, "SILENCE_SECONDS", 0.1)
    with agent.connect() as connection:
        connection.sendall(b"GET /api")
        assert connection.recv(100) == b""


def test_what_a_killed_worker_left_is_taken_away(
    agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(agent.server.folder.parent))
    left = Path(tempfile.mkdtemp(prefix="agentq-attempt-"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(left / "socket"))
    remove_left_over()
    assert not left.exists() and agent.server.folder.exists()


class TestBehindAServer:
    """A worker whose ledger is elsewhere asks for its agent, which may less than itself."""

    def test_its_agent_is_an_attempt_there_too(self, served: Served) -> None:
        people = served.queue()
        other = people.submit(to="another", instructions="not yours")
        people.submit(to="worker", instructions="do it")
        queue = served.queue(access.worker("w1", "worker"))
        claim = queue._client.claim("worker")
        assert claim is not None
        installation = queue._client.installation
        who = access.attempt(claim.id, claim.epoch, "worker", [access.Action.CANCEL])
        server = AttemptSocket(AttemptApi(installation.service, installation.doorbell, who))
        server.start()
        try:
            with Agent(queue, claim.task, server).inside() as inside:
                for call in (
                    lambda: inside.task(other.id),
                    lambda: inside.cancel(other.id, by="boss"),
                    lambda: list(inside.tasks()),
                ):
                    with pytest.raises(Refused) as caught:
                        call()
                    assert caught.value.code == "not_permitted"
                child = inside.submit(to="helper", instructions="help")
                assert child.spec.parent == claim.id
                assert inside.complete(claim.id, "done").state is State.COMPLETE
        finally:
            server.close()

    @pytest.mark.parametrize("header", ["x", "a/b/c", "a/1", "a/1/worker fly"])
    def test_a_bad_header_is_named(self, served: Served, header: str) -> None:
        found = served.ask("GET", f"{PREFIX}/clock", headers={"agentq-attempt": header})
        assert found.status == 400
