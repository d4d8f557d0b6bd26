"""Outcomes from a broker, for coordinators that are slow, cut off, killed or not let in."""

from __future__ import annotations

import json
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from agentq import Queue
from agentq.client.broker_results import TaskOutcome
from agentq.client.results import results
from agentq.contracts.delivery import Message
from agentq.core.errors import Conflict, Refused, Unavailable
from agentq.delivery.rabbitmq import RabbitMailbox, RabbitPublisher
from agentq.delivery.rabbitmq.connection import HEARTBEAT_SECONDS, Link, read_url
from agentq.settings import read_file
from agentq.wiring import WiredInstallation
from tests.eventually import eventually
from tests.interfaces.conftest import PROGRAM, clean_environment, run_program
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.long

QUEUE = "results.ann"


@pytest.fixture
def home(tmp_path: Path, rabbitmq_url: str) -> Path:
    """An installation with a broker."""
    run_program("init", "--broker", rabbitmq_url, cwd=tmp_path).ok()
    return tmp_path


@contextmanager
def as_user(home: Path, broker: str = "") -> Iterator[Queue]:
    """The installation, as somebody who speaks to its broker by this address."""
    settings = read_file(home / "agentq.toml")
    if broker:
        object.__setattr__(settings, "broker", broker)
    with Queue(installation=WiredInstallation(settings, create=True)) as opened:
        yield opened


def send(url: str, *bodies: bytes, to: str = QUEUE) -> None:
    """Have these in the queue, under ids of their own."""
    with closing(RabbitPublisher(url)) as publisher:
        messages = [Message(uuid.uuid4().hex, "agentq.results", to, body) for body in bodies]
        assert publisher.publish(messages) == [""] * len(bodies)


def outcome(task_id: str) -> bytes:
    plain = {"v": 1, "task_id": task_id, "status": "completed", "summary": "done"}
    return json.dumps(plain).encode()


def waiting(url: str, name: str = QUEUE) -> int:
    """How many are in the queue, and with nobody."""
    link = Link(read_url(url), "looking")
    try:
        with link.asking("looking") as channel:
            return channel.look(name).messages
    finally:
        link.close()


def ids(outcomes: Iterator[TaskOutcome] | Sequence[TaskOutcome]) -> list[str]:
    return [each.task_id for each in outcomes]


# -- slow ones -------------------------------------------------------------------------------------


@contextmanager
def setting(server: RabbitServer, **values: int) -> Iterator[None]:
    """The broker with other settings, for connections that are made now."""
    before = {name: server.call(f"application:get_env(rabbit, {name})").strip() for name in values}
    for name, value in values.items():
        server.call(f"application:set_env(rabbit, {name}, {value})")
    try:
        yield
    finally:
        for name, was in before.items():
            if was == "undefined":
                server.call(f"application:unset_env(rabbit, {name})")
            else:
                old = was.removeprefix("{ok,").removesuffix("}").strip()
                server.call(f"application:set_env(rabbit, {name}, {old})")


def test_who_thinks_longer_than_the_broker_waits_for_heartbeats_keeps_its_connection(
    rabbitmq_server: RabbitServer, rabbitmq_url: str, queue: Queue
) -> None:
    send(rabbitmq_url, outcome("task-0"), outcome("task-1"))
    before = len(rabbitmq_server.log)
    with setting(rabbitmq_server, heartbeat=1):
        heard = []
        for each in results(queue._client, "ann", wait=0):
            # When a coordinator thinks for longer than it takes the broker to hang up on a
            # connection that is silent,
            heard.append(each.task_id)
            if len(heard) == 1:
                silent = Link(read_url(rabbitmq_url), "silent", HEARTBEAT_SECONDS)
                eventually(lambda: "missed heartbeats" in rabbitmq_server.log[before:])
                silent.close(polite=False)
    # then it keeps its connection, and hears of each outcome once.
    assert heard == ["task-0", "task-1"]
    said = rabbitmq_server.log[before:]
    assert said.count("client-provided name: agentq mailbox results.ann") == 1, said
    assert waiting(rabbitmq_url) == 0


@pytest.mark.parametrize("limit", [None, 1])
def test_who_holds_an_outcome_longer_than_the_broker_allows_gets_it_once(
    rabbitmq_server: RabbitServer, rabbitmq_url: str, queue: Queue, limit: int | None
) -> None:
    send(rabbitmq_url, outcome("task-0"), outcome("task-1"))
    before = len(rabbitmq_server.log)
    with setting(rabbitmq_server, consumer_timeout=200, channel_tick_interval=100):
        # Given a coordinator that thinks until the broker has taken its outcome back,
        heard = []
        for each in results(queue._client, "ann", wait=0, limit=limit):
            assert each.task_id not in heard
            heard.append(each.task_id)
            if len(heard) == 1:
                eventually(lambda: "acknowledgement on channel" in rabbitmq_server.log[before:])
    # then it hears of each once all the same; and so does who comes after it.
    heard += ids(results(queue._client, "ann", wait=0))
    assert heard == ["task-0", "task-1"]
    assert waiting(rabbitmq_url) == 0


def test_a_connection_that_breaks_brings_no_outcome_twice(
    rabbitmq_server: RabbitServer, rabbitmq_url: str, queue: Queue
) -> None:
    send(rabbitmq_url, *(outcome(f"task-{n}") for n in range(4)))
    heard = []
    for each in results(queue._client, "ann", wait=0):
        assert each.task_id not in heard
        heard.append(each.task_id)
        rabbitmq_server.call(
            '[rabbit_networking:close_connection(P, "cut") || P <- rabbit_networking:connections()]'
        )
    assert heard == [f"task-{n}" for n in range(4)]
    assert waiting(rabbitmq_url) == 0


def test_nothing_is_taken_ahead_and_many_go_fast(rabbitmq_url: str, queue: Queue) -> None:
    send(rabbitmq_url, *(outcome(f"task-{n}") for n in range(500)))
    began = time.monotonic()
    taken = results(queue._client, "ann", wait=0, limit=500)
    assert next(taken).task_id == "task-0"
    assert waiting(rabbitmq_url) == 499  # there for others, while we think
    assert ids(taken) == [f"task-{n}" for n in range(1, 500)]
    assert time.monotonic() - began < 10


def test_a_coordinator_that_is_killed_in_the_middle_loses_nothing(
    rabbitmq_url: str, home: Path, queue: Queue
) -> None:
    send(rabbitmq_url, outcome("task-0"), outcome("task-1"))
    program = (
        "from agentq import Queue\n"
        "for each in Queue().results('ann'):\n"
        "    print(each.task_id, flush=True)\n"
        "    if each.task_id == 'task-1': input()\n"
    )
    with running([sys.executable, "-c", program], home) as thinking:
        assert thinking.heard("task-1")
        assert waiting(rabbitmq_url) == 0
    assert ids(results(queue._client, "ann", wait=5, limit=1)) == ["task-1"]
    assert waiting(rabbitmq_url) == 0


# -- who is not let in -----------------------------------------------------------------------------


class Running:
    """A program, and what it says."""

    def __init__(self, words: Sequence[str], folder: Path, broker: str = "") -> None:
        self.process = subprocess.Popen(
            words, cwd=folder, env=clean_environment({"AGENTQ_BROKER": broker} if broker else {}),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.said = ""

    def heard(self, words: str, seconds: float = 20) -> str:
        """All it has said, once these words were among it."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + seconds
        while words not in self.said:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.process.stdout], [], [], left)[0], self.said
            piece = self.process.stdout.read1(65536)  # type: ignore[attr-defined]
            assert piece, f"it ended: {self.said}"
            self.said += piece.decode()
        return self.said

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@contextmanager
def running(words: Sequence[str], folder: Path, broker: str = "") -> Iterator[Running]:
    started = Running(words, folder, broker)
    try:
        yield started
    finally:
        started.end()


@pytest.fixture
def coordinator(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Iterator[str]:
    """The address for a user who may read two queues, and nothing else."""
    user, host = f"reader-{uuid.uuid4().hex[:6]}", read_url(rabbitmq_url).virtual_host
    auth = "rabbit_auth_backend_internal"
    rabbitmq_server.call(
        f'{auth}:add_user(<<"{user}">>, <<"secret">>, <<"tests">>)',
        f'{auth}:set_permissions(<<"{user}">>, <<"{host}">>, <<"^$">>, <<"^$">>,'
        ' <<"^results\\\\.(ann|coordinator)$">>, <<"tests">>)',
    )
    yield rabbitmq_server.url_of(host, user, "secret")
    rabbitmq_server.call(f'{auth}:delete_user(<<"{user}">>, <<"tests">>)')


def test_following_ends_with_a_word_where_nobody_is_let_in(
    home: Path, rabbitmq_url: str, coordinator: str, queue: Queue
) -> None:
    # A wrong password, or another's queue: an error, also for who would wait for ever.
    wrong = rabbitmq_url.replace("guest:guest", "guest:wrong")
    answer = run_program("results", "--follow", env={"AGENTQ_BROKER": wrong}, cwd=home)
    answer.refused(4, "refused user 'guest'")
    assert "wrong" not in answer.err.replace("wrong password", "")
    send(rabbitmq_url, outcome("task-0"), to="results.bob")
    with as_user(home, coordinator) as stranger, pytest.raises(Refused, match=r"results\.bob"):
        next(results(stranger._client, "bob"))
    assert waiting(rabbitmq_url, "results.bob") == 1


def test_following_tells_that_the_broker_is_down(home: Path) -> None:
    down = "amqp://127.0.0.1:1/"
    with running([*PROGRAM, "results", "--follow"], home, down) as following:
        following.heard("Waiting for the broker: The broker at 127.0.0.1:1")
        assert following.process.poll() is None
    with as_user(home, down) as queue, pytest.raises(Unavailable, match="They wait there"):
        list(results(queue._client, wait=0))


def test_following_tells_when_the_broker_is_back(home: Path, rabbitmq_url: str) -> None:
    send(rabbitmq_url, outcome("task-0"), outcome("task-1"))
    told: list[str] = []
    with a_way_to(read_url(rabbitmq_url).port) as way:
        address = rabbitmq_url.replace(f":{read_url(rabbitmq_url).port}/", f":{way.port}/")
        with as_user(home, address) as queue:

            def warn(text: str) -> None:
                told.append(text)
                way.open()

            taken = results(queue._client, "ann", limit=2, warn=warn)
            assert next(taken).task_id == "task-0"
            # A line that breaks while the caller thinks is worth no word if it mends at once.
            way.cut()
            assert ids(taken) == ["task-1"]
    assert [text.partition(":")[0] for text in told] == [
        "Waiting for the broker", "The broker answers again."
    ]  # fmt: skip
    assert waiting(rabbitmq_url) == 0


class Way:
    """A line to a broker: closed, then open, and cut as often as one likes."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._door = socket.socket()
        self._door.bind(("127.0.0.1", 0))  # and nobody listens: who knocks is refused
        self.port: int = self._door.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        if not self._threads:
            self._door.listen()
            self._start(self._let_in)

    def _start(self, what: Callable[..., None], *words: socket.socket) -> None:
        self._threads.append(threading.Thread(target=what, args=words))
        self._threads[-1].start()

    def _let_in(self) -> None:
        with suppress(OSError):  # closed
            while True:
                ours, _ = self._door.accept()
                theirs = socket.create_connection(("127.0.0.1", self._to))
                self._ends += [ours, theirs]
                self._start(self._carry, ours, theirs)
                self._start(self._carry, theirs, ours)

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):  # cut
            while piece := one.recv(65536):
                other.sendall(piece)

    def cut(self) -> None:
        while self._ends:
            end = self._ends.pop()
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self.cut()
        for thread in self._threads:
            thread.join(20)


@contextmanager
def a_way_to(port: int) -> Iterator[Way]:
    way = Way(port)
    try:
        yield way
    finally:
        way.close()


def test_a_coordinator_who_may_only_read_waits_for_its_queue(
    home: Path, rabbitmq_url: str, coordinator: str
) -> None:
    # Given a user who may not declare, and a queue that nothing was sent to yet,
    answer = run_program("results", "ann", env={"AGENTQ_BROKER": coordinator}, cwd=home).ok()
    assert "Nothing was sent to results.ann yet" in answer.err
    assert answer.out == ""
    words = [*PROGRAM, "results", "ann", "--follow", "--limit", "1"]
    with running(words, home, coordinator) as following:
        following.heard("Nothing was sent to results.ann yet")
        # when something is, then it comes.
        send(rabbitmq_url, outcome("task-0"))
        assert following.heard("task-0").count("Nothing was sent") == 1
        assert following.process.wait(20) == 0


def test_the_usual_coordinator_needs_no_right_but_to_read(
    home: Path, rabbitmq_url: str, coordinator: str
) -> None:
    # `agentq init --broker` has made its queue.
    answer = run_program("results", env={"AGENTQ_BROKER": coordinator}, cwd=home).ok()
    assert (answer.out, answer.err) == ("", "no results\n")
    send(rabbitmq_url, outcome("task-0"), to="results.coordinator")
    answer = run_program("results", "--json", env={"AGENTQ_BROKER": coordinator}, cwd=home).ok()
    assert [each["task_id"] for each in answer.lines()] == ["task-0"]


# -- what cannot be read ---------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["guest", "coordinator"])
def test_what_cannot_be_read_goes_to_the_dead_letters_and_is_told(
    home: Path, rabbitmq_url: str, coordinator: str, queue: Queue, who: str
) -> None:
    bodies = [b"garbage", b"{}", outcome("task-0"), outcome("task-1")]
    send(rabbitmq_url, *bodies)
    # One that is longer than any envelope: nobody of ours would send it.
    link = Link(read_url(rabbitmq_url), "stranger")
    channel = link.channel()
    channel._channel.basic_publish(_content(b"x" * 200_000), "", QUEUE)
    link.close()
    eventually(lambda: waiting(rabbitmq_url) == 5)
    told: list[str] = []
    with as_user(home, rabbitmq_url if who == "guest" else coordinator) as reader:
        heard = ids(results(reader._client, "ann", wait=0, warn=told.append))
    assert heard == ["task-0", "task-1"]
    # Nothing is lost, and nothing is silent.
    eventually(lambda: len(queue.admin.dead_messages()) == 3)
    assert sorted(each.size for each in queue.admin.dead_messages()) == [2, 7, 200_000]
    assert {each.queue for each in queue.admin.dead_messages()} == {QUEUE}
    assert len(told) == 3 and "200000 bytes" in told[2]
    assert waiting(rabbitmq_url) == 0


def _content(body: bytes) -> object:
    import amqp

    return amqp.Message(body, delivery_mode=2)


def test_what_the_broker_would_drop_stays_and_is_told(rabbitmq_url: str, queue: Queue) -> None:
    # Given a queue that somebody else made, without dead letters,
    link = Link(read_url(rabbitmq_url), "stranger")
    channel = link.channel()
    channel.queue("results.odd")
    channel._channel.basic_publish(_content(b"x" * 200_000), "", "results.odd")
    link.close()
    eventually(lambda: waiting(rabbitmq_url, "results.odd") == 1)
    # then what cannot be read is not thrown away: somebody must say what to do.
    with pytest.raises(Conflict, match=r"results\.odd"):
        list(results(queue._client, "odd", wait=0))
    assert waiting(rabbitmq_url, "results.odd") == 1


def test_the_mailbox_says_whether_the_broker_heard_it(
    rabbitmq_server: RabbitServer, rabbitmq_url: str, queue: Queue
) -> None:
    send(rabbitmq_url, outcome("task-0"))
    with closing(RabbitMailbox(rabbitmq_url, QUEUE)) as box:
        message = box.take(5)
        assert message is not None
        rabbitmq_server.call(
            '[rabbit_networking:close_connection(P, "cut") || P <- rabbit_networking:connections()]'
        )
        eventually(lambda: waiting(rabbitmq_url) == 1)
        assert not box.settle(message.tag)
        again = box.take(5)
        assert again is not None and again.id == message.id
        assert box.settle(again.tag)
        assert not box.settle(again.tag)
    assert waiting(rabbitmq_url) == 0
