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
from agentq.core.errors import Refused, Unavailable
from agentq.core.states import State
from agentq.core.task import Task
from agentq.remote.installation import RemoteInstallation
from agentq.server import attempt_mailbox, attempt_socket
from agentq.server.attempt_api import AttemptApi
from agentq.server.attempt_mailbox import AttemptMailbox
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
    mailbox: AttemptMailbox
    #: Whether it asks by files, as where every connection is denied.
    by_files: bool = False

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

    def put(self, name: str, request: object) -> Path:
        """Put a request into the outbox; where its answer will be."""
        outbox = Path(self.mailbox.outbox)
        (outbox / f"{name}.part").write_text(json.dumps(request))
        (outbox / f"{name}.part").rename(outbox / f"{name}.json")
        return outbox / f"{name}.answer"

    def ask(self, method: str, path: str, body: object = None, token: str = "") -> tuple[int, Any]:
        if self.by_files:
            headers = {"Authorization": f"Bearer {token or self.server.token}"}
            request = {"method": method, "target": PREFIX + path, "headers": headers}
            answer = self.put("ask", {**request, "body": body})
            eventually(answer.exists, what="an answer")
            said = json.loads(answer.read_text())
            answer.unlink()
            return said["status"], said["body"]
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
        url = "http+unix:/nowhere" if self.by_files else self.server.url
        settings = Settings(
            url, "nowhere", "the test", token=self.server.token, outbox=self.mailbox.outbox
        )
        who = access.attempt(self.task.id, self.task.epoch, self.task.to)
        return Queue(installation=RemoteInstallation(settings), who=who)


def _answer(data: bytes) -> tuple[int, Any]:
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(body)


@pytest.fixture(params=["socket", "mailbox"])
def either(agent: Agent, request: pytest.FixtureRequest) -> Agent:
    """The agent, that asks one way or the other."""
    agent.by_files = request.param == "mailbox"
    return agent


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    monkeypatch.setattr(attempt_mailbox, "POLL_SECONDS", 0.01)
    settings = Settings(f"sqlite:///{tmp_path / 'ledger.db'}", str(tmp_path / "files"), "the test")
    with Queue(installation=open_installation(settings, create=True)) as queue:
        queue.submit(to="worker", instructions="do it")
        claim = queue.claim("worker")
        assert claim is not None
        installation = queue._client.installation
        who = access.attempt(claim.id, claim.epoch, "worker")
        api = AttemptApi(installation.service, installation.doorbell, who)
        server, mailbox = AttemptSocket(api), AttemptMailbox(api)
        server.start()
        mailbox.start(tmp_path)
        yield Agent(queue, claim.task, server, mailbox)
        mailbox.close()
        server.close()


def test_only_this_user_may_reach_it(agent: Agent) -> None:
    made, folder = Path(agent.path).stat(), agent.server.folder.stat()
    assert stat.S_IMODE(made.st_mode) == 0o600
    assert stat.S_IMODE(folder.st_mode) == 0o700
    assert [each.name for each in agent.server.folder.iterdir()] == ["socket"]


def test_the_verbs_of_an_attempt_by_the_sdk(either: Agent, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(3 << 20))
    own = either.task.id
    with either.inside() as inside:
        assert inside.task(own).id == own
        assert inside.context(own) == "do it"
        assert inside.progress(own, 40, "half").details.progress_percent == 40
        inside.put(own, "big", big)
        inside.put(own, "empty", b"")
        stored = {each.name: each for each in inside.artifacts(own)}
        assert stored["big"].read() == big.read_bytes() and stored["empty"].size == 0
        inside.comment(own, "me", "slow today", epoch=either.task.epoch)
        child = inside.submit(to="helper", instructions="help")
        assert child.spec.parent == own
        helper = either.queue.claim("helper", wait=5)
        assert helper is not None
        helps = threading.Timer(0.1, helper.complete, ("helped",))
        helps.start()
        assert inside.wait(child.id, timeout=20).state is State.COMPLETE
        helps.join()
        assert inside.result(child.id).text() == "helped"
        assert inside.complete(own, "done", "# done").state is State.COMPLETE
    assert either.queue.result(own).text() == "# done"


@pytest.mark.parametrize("verb", ["block", "fail"])
def test_it_may_block_and_fail(either: Agent, verb: str) -> None:
    status, said = either.ask("POST", either.own(verb), {"reason": "which?"})
    assert status == 200, said
    assert either.queue.task(either.task.id).state in (State.BLOCKED, State.PENDING)


def test_what_is_not_for_an_attempt_is_refused(either: Agent) -> None:
    """Every other route of the table, whatever it is asked with."""
    for route in ROUTES:
        if route.call in ATTEMPT_CALLS:
            continue
        path = route.path.replace("{task_id}", either.task.id).replace("{epoch}", "1")
        path = path.replace("{ref}", either.task.id).replace("{", "").replace("}", "")
        status, said = either.ask(route.method, path, {} if route.method != "GET" else None)
        assert (status, said["error"]["code"]) == (403, "not_permitted"), route.call


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/tasks/{ref}/approve", {}),
        ("POST", "/tasks/{ref}/reject", {"reason": "no"}),
        ("POST", "/tasks/{ref}/requeue", {}),
        ("POST", "/tasks/{ref}/cancel", {}),
        ("POST", "/tasks/{ref}/comments", {"text": "hello"}),
        ("POST", "/tasks/{ref}/attempts/1/complete", {}),
        ("POST", "/tasks/{ref}/attempts/1/fail", {"reason": "no"}),
        ("POST", "/leases", {"leases": [{"task_id": "{ref}", "epoch": 1, "lease_ms": 1000}]}),
        ("GET", "/tasks/{ref}", None),
        ("GET", "/tasks/{ref}/artifacts", None),
        ("GET", "/tasks", None),
        ("GET", "/events?position=0", None),
        ("GET", "/limits", None),
    ],
)
def test_the_table_judges_what_is_offered(
    either: Agent, method: str, path: str, body: object
) -> None:
    other = either.queue.submit(to="another", instructions="risky", irreversible=True)
    body = json.loads(json.dumps(body).replace("{ref}", other.id))
    status, said = either.ask(method, path.replace("{ref}", other.id), body)
    assert (status, said["error"]["code"]) == (403, "not_permitted"), said
    assert either.queue.task(other.id).version == other.version


def test_it_cannot_say_that_its_work_was_checked(either: Agent) -> None:
    status, said = either.ask("POST", either.own("complete"), {"summary": "x", "verified": True})
    assert (status, said["error"]["code"]) == (403, "not_permitted")
    assert either.queue.task(either.task.id).state is State.IN_PROGRESS


def test_nobody_without_its_token(either: Agent) -> None:
    for token in ("x", "agqa_", either.server.token[:-1], f"{either.server.token}x", "\xe9"):
        status, said = either.ask("GET", f"/tasks/{either.task.id}", token=token)
        assert (status, said["error"]["code"]) == (401, "bad_token")


def test_what_it_is_refused_is_in_the_audit_log(either: Agent) -> None:
    other = either.queue.submit(to="another", instructions="risky", irreversible=True)
    either.ask("POST", f"/tasks/{other.id}/approve", {})
    either.ask("PUT", "/limits/worker", {})
    either.ask("GET", "/clock", token="agqa_guessed")
    with either.inside() as inside, pytest.raises(Refused):
        inside.cancel(either.task.id, by="me")
    cancel, login, limits, approve = either.queue.admin.audit(refused=True).entries
    way = "mailbox" if either.by_files else "socket"
    for entry, action in ((approve, "approve"), (limits, "set_limits"), (cancel, "cancel")):
        assert (entry.action, entry.kind, entry.who) == (action, "attempt", "worker")
        assert entry.how == f"attempt {either.task.id}/1"
        assert entry.origin == f"{way} on {os.uname().nodename}"
    assert (approve.subject, cancel.subject) == (other.id, either.task.id)
    assert (login.who, login.action, login.code) == ("", "login", "bad_token")
    assert login.origin == f"{way} of attempt {either.task.id}/1"


def test_nor_without_any(agent: Agent) -> None:
    status, _ = agent.send(f"GET {PREFIX}/clock HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert status == 401


def test_when_the_attempt_is_over_it_says_so(either: Agent) -> None:
    either.server.end()
    status, said = either.ask("GET", f"/tasks/{either.task.id}")
    assert (status, said["error"]["code"]) == (409, "stale")


def test_after_its_end_nothing_is_answered(agent: Agent) -> None:
    agent.server.close()
    with pytest.raises(FileNotFoundError):
        agent.connect()
    assert not agent.server.folder.exists()
    agent.server.close()  # twice is fine
    agent.mailbox.close()
    unanswered = agent.put("late", {})
    agent.mailbox.close()
    assert not unanswered.exists()


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
    status, refused = agent.send(data.replace(b"once", b"else"))
    assert (status, refused["error"]["code"]) == (409, "key_reused")
    assert agent.queue.history(agent.task.id)[-1] == notes[0]


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


class TestTheOutbox:
    """The agent owns the folder: whatever it puts there reaches nothing else."""

    def good(self, agent: Agent) -> dict[str, object]:
        headers = {"authorization": f"Bearer {agent.server.token}"}
        return {"method": "GET", "target": f"{PREFIX}/clock", "headers": headers}

    def answered(self, path: Path) -> dict[str, Any]:
        eventually(path.exists, what="an answer")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def goes_on(self, agent: Agent) -> None:
        """It still answers, and nothing is left of what it has answered."""
        assert self.answered(agent.put("last", self.good(agent)))["status"] == 200
        outbox = Path(agent.mailbox.outbox)
        eventually(lambda: not list(outbox.glob("*.json")), what="all to be taken")

    @pytest.mark.parametrize(
        "request_", [[], {"method": "GET"}, {"method": "GET", "target": "/", "x": 1}, None]
    )
    def test_bad_requests_are_named(self, agent: Agent, request_: object) -> None:
        said = self.answered(agent.put("bad", request_))
        assert (said["status"], said["body"]["error"]["code"]) == (400, "invalid")
        self.goes_on(agent)

    def test_a_link_is_not_followed(self, agent: Agent, tmp_path: Path) -> None:
        outbox = Path(agent.mailbox.outbox)
        secret = tmp_path / "secret"
        secret.write_text(json.dumps(self.good(agent)))
        (outbox / "link.json").symlink_to(secret)
        assert self.answered(outbox / "link.answer")["status"] == 400
        (outbox / "body.body").symlink_to(secret)
        said = self.answered(agent.put("body", {**self.good(agent), "body_file": True}))
        assert said["status"] == 400
        assert secret.exists()
        self.goes_on(agent)

    def test_an_answer_is_not_written_through_a_link(self, agent: Agent, tmp_path: Path) -> None:
        victim = tmp_path / "victim"
        victim.write_text("precious")
        answer = Path(agent.mailbox.outbox) / "trap.answer"
        answer.symlink_to(victim)
        agent.put("trap", self.good(agent))
        eventually(lambda: not answer.is_symlink(), what="the link to be replaced")
        assert victim.read_text() == "precious"
        self.goes_on(agent)

    def test_what_is_no_file_is_refused(self, agent: Agent) -> None:
        outbox = Path(agent.mailbox.outbox)
        os.mkfifo(outbox / "pipe.json")
        (outbox.parent / "folder" / "more").mkdir(parents=True)
        (outbox.parent / "folder").rename(outbox / "folder.json")  # it is removed once it is seen
        for name in ("pipe", "folder"):
            assert self.answered(outbox / f"{name}.answer")["status"] == 400
        self.goes_on(agent)

    def test_an_answer_that_cannot_be_written(self, agent: Agent) -> None:
        (Path(agent.mailbox.outbox) / "full.answer").mkdir()
        agent.put("full", self.good(agent))
        self.goes_on(agent)

    def test_sizes_and_names_are_bounded(self, agent: Agent) -> None:
        outbox = Path(agent.mailbox.outbox)
        with (outbox / "big.json").open("wb") as file:
            file.truncate(attempt_mailbox.REQUEST_BYTES_MAX + 1)
        assert self.answered(outbox / "big.answer")["status"] == 413
        for name in ("a b.json", "ä.json", ".json", f"{'x' * 65}.json"):
            (outbox / name).write_text("{}")
        assert self.answered(agent.put("last", self.good(agent)))["status"] == 200
        assert not list(outbox.glob("x*.answer"))

    def test_the_folder_replaced_by_a_link(self, agent: Agent, tmp_path: Path) -> None:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        outbox = Path(agent.mailbox.outbox)
        outbox.rename(tmp_path / "moved")
        outbox.symlink_to(elsewhere)
        (elsewhere / "a.json").write_text(json.dumps(self.good(agent)))
        # What it holds is the folder that it has made, wherever that is now.
        moved = tmp_path / "moved" / "b.json"
        moved.with_suffix(".part").write_text(json.dumps(self.good(agent)))
        moved.with_suffix(".part").rename(moved)
        assert self.answered(moved.with_suffix(".answer"))["status"] == 200
        agent.mailbox.close()
        assert [each.name for each in elsewhere.iterdir()] == ["a.json"]

    def test_nothing_may_lie_in_its_place(self, agent: Agent, tmp_path: Path) -> None:
        agent.mailbox.close()
        other, precious = tmp_path / "other", tmp_path / "precious"
        other.mkdir()
        (other / "outbox").symlink_to(precious)
        with pytest.raises(Unavailable, match="cannot make"):
            agent.mailbox.start(other)
        assert not precious.exists()


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
        api = AttemptApi(installation.service, installation.doorbell, who)
        server = AttemptSocket(api)
        server.start()
        try:
            with Agent(queue, claim.task, server, AttemptMailbox(api)).inside() as inside:
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
                assert inside.complete(claim.id, "x", leave_children=True).state is State.COMPLETE
        finally:
            server.close()

    @pytest.mark.parametrize("header", ["x", "a/b/c", "a/1", "a/1/worker fly"])
    def test_a_bad_header_is_named(self, served: Served, header: str) -> None:
        found = served.ask("GET", f"{PREFIX}/clock", headers={"agentq-attempt": header})
        assert found.status == 400


def test_a_worker_of_one_role_asks_for_no_attempt_of_another(served: Served) -> None:
    """Whatever role it writes beside the attempt: the task's own is what its token must be for."""
    queue = served.queue()
    queue.submit(to="tester", instructions="x", id="task-1")
    queue.claim_task("task-1")
    builder = access.worker("host:1", "builder")
    path = f"{PREFIX}/tasks/task-1/attempts/1/progress"
    for role, status in (("builder", 403), ("tester", 403)):
        headers = {"agentq-attempt": f"task-1/1/{role}"}
        found = served.ask("POST", path, {"percent": 5}, who=builder, headers=headers)
        assert (found.status, found.error["code"]) == (status, "not_permitted")
    tester = access.worker("host:1", "tester")
    headers = {"agentq-attempt": "task-1/1/tester"}
    assert served.ask("POST", path, {"percent": 5}, who=tester, headers=headers).status == 200
