"""Workers that are no agentq: AMQP and JSON only, in two languages, by docs/protocol.md."""

from __future__ import annotations

import json
import os
import runpy
import select
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from agentq import Queue, State
from agentq.client.broker_results import received
from agentq.client.results import results
from agentq.contracts.delivery import Message
from agentq.daemon import artifact_uploads
from agentq.daemon.loop import Loop
from agentq.daemon.up import Daemon
from agentq.delivery.rabbitmq import RabbitPublisher
from agentq.settings import read_file
from agentq.wiring import WiredInstallation
from tests.architecture.files import ROOT
from tests.delivery.foreign_messages import stranger
from tests.delivery.users import PASSWORD, made_by
from tests.eventually import eventually
from tests.interfaces.conftest import PROGRAM, clean_environment, run_in
from tests.servers.missing import go_without
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.long

EXAMPLES = ROOT / "examples"
ROLE = "counter"
#: What the workers run: the first word of a task says what to do with the rest.
COMMAND = """
read -r what rest
case $what in
  count) printf '%s\\n' "$rest" | wc -w ;;
  break) echo "it is broken" >&2; exit 3 ;;
  hold) echo "$TASK_ID" > "$rest"; read -r word < "$rest.go"; echo "$word" ;;
  show) cat "$rest" ;;
  *) echo "what is $what?"; exit 1 ;;
esac
"""


@pytest.fixture(scope="session")
def node_worker(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The worker in JavaScript, with what it needs installed beside a copy of it."""
    folder = tmp_path_factory.mktemp("js") / "js_worker"
    shutil.copytree(EXAMPLES / "js_worker", folder, ignore=shutil.ignore_patterns("node_modules"))
    node, npm = shutil.which("node"), shutil.which("npm")
    if not (node and npm):
        go_without("JavaScript", "node and npm are not installed")
    words = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    if done.returncode:
        go_without("JavaScript", f"npm ci ended with {done.returncode}: {done.stderr[-500:]}")
    return [node, str(folder / "worker.js")]


@pytest.fixture(params=["python", "js"])
def program(request: pytest.FixtureRequest) -> list[str]:
    """How to start the worker in each language."""
    if request.param == "js":
        words: list[str] = request.getfixturevalue("node_worker")
        return words
    return [sys.executable, str(EXAMPLES / "python_worker" / "worker.py")]


@pytest.fixture
def queue(tmp_path: Path, rabbitmq_url: str) -> Iterator[Queue]:
    """An installation with a broker, and `agentq up` running in it."""
    with installed(tmp_path, rabbitmq_url) as queue, up_in(tmp_path):
        yield queue


@contextmanager
def installed(folder: Path, broker: str) -> Iterator[Queue]:
    run_in(folder, "init", "--broker", broker).ok()
    with Queue(installation=WiredInstallation(read_file(folder / "agentq.toml"))) as queue:
        queue.admin.prepare_broker([ROLE])
        yield queue


@contextmanager
def up_in(folder: Path) -> Iterator[None]:
    with running([*PROGRAM, "up", "--no-workers", "--term", "2s"], folder) as up:
        yield
        assert up.process.poll() is None, up.said


@contextmanager
def up_here(queue: Queue) -> Iterator[Loop]:
    """The same in this process; the loop that takes messages in."""
    daemon = Daemon(queue._client.installation, queue._client.holder)
    thread = threading.Thread(target=daemon.run)
    thread.start()
    try:
        yield next(each.loop for each in daemon.runners if each.name == "ingest")
    finally:
        daemon.stop()
        thread.join(20)


class Running:
    """A program whose words are read as they come."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            words, cwd=folder, env=clean_environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._came = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._came:
                self.lines.append(line.rstrip("\n"))
                self._came.notify_all()

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, words: str, seconds: float = 20) -> str:
        def found() -> str | None:
            return next((line for line in self.lines if words in line), None)

        with self._came:
            assert self._came.wait_for(found, seconds), f"{words!r} was not said:\n{self.said}"
            return found() or ""

    def end(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(20)
        self._reader.join(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@contextmanager
def running(words: Sequence[str], folder: Path) -> Iterator[Running]:
    started = Running(words, folder)
    try:
        yield started
    finally:
        if not started.process.stdout or not started.process.stdout.closed:
            started.end(signal.SIGKILL)


@contextmanager
def a_worker(program: Sequence[str], url: str, folder: Path) -> Iterator[Running]:
    with running([*program, url, ROLE, "--", "sh", "-c", COMMAND], folder) as worker:
        worker.wait_for("ready:")
        yield worker


class Gate:
    """Two pipes: a task that holds says so by the first, and goes on by the second."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"gate-{uuid.uuid4().hex[:6]}"
        self._ends = []
        for path in (self.path, Path(f"{self.path}.go")):
            os.mkfifo(path)
            # Both ways, so that nobody waits for somebody to open it.
            self._ends.append(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))

    def __str__(self) -> str:
        return str(self.path)

    def heard(self) -> str:
        """Which task has come to the gate."""
        ready, _, _ = select.select([self._ends[0]], [], [], 20)
        assert ready, "no task came to the gate"
        return os.read(self._ends[0], 1000).decode().strip()

    def let_through(self, word: str) -> None:
        os.write(self._ends[1], f"{word}\n".encode())

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


@contextmanager
def a_gate(folder: Path) -> Iterator[Gate]:
    gate = Gate(folder)
    try:
        yield gate
    finally:
        gate.close()


def test_a_worker_in_any_language(
    queue: Queue, program: list[str], rabbitmq_url: str, tmp_path: Path
) -> None:
    with a_worker(program, rabbitmq_url, tmp_path) as worker:
        # Given a worker, when a task comes that expects evidence,
        name = worker.wait_for("ready:").removeprefix("ready: ")
        counted = queue.submit(
            to=ROLE, instructions="count one two three", expect="count", reply_to="results.ann"
        )  # fmt: skip
        # then it is done, with evidence that can be checked, and the log says by whom.
        assert queue.wait(counted.id, 60).state is State.COMPLETE
        assert queue.result(counted.id).text().strip() == "3"
        assert {row.name for row in queue.artifacts(counted.id)} == {"count.txt", "result.md"}
        claimed = queue.history(counted.id)[1].event.trigger
        assert getattr(claimed, "holder", "") == name
        # When one fails, then it says why.
        broken = queue.submit(to=ROLE, instructions="break", max_attempts=1, reply_to="results.ann")
        assert queue.wait(broken.id, 60).state is State.FAILED
        assert queue.task(broken.id).reason == "the command ended with 3: it is broken"
        # When one takes longer than its lease, then heartbeats keep it.
        with a_gate(tmp_path) as gate:
            long = queue.submit(to=ROLE, instructions=f"hold {gate}", lease=5)
            assert gate.heard() == long.id
            began = queue.task(long.id).wake_at
            eventually(lambda: queue.task(long.id).wake_at > began + 5000)
            gate.let_through("at last")
            assert queue.wait(long.id, 60).state is State.COMPLETE
            assert (queue.task(long.id).epoch, queue.result(long.id).summary) == (1, "at last")
        # When one is cancelled, then the worker stops it and goes on to the next.
        with a_gate(tmp_path) as gate:
            unwanted = queue.submit(to=ROLE, instructions=f"hold {gate}")
            gate.heard()
            queue.cancel(unwanted.id, "boss")
            worker.wait_for(f"{unwanted.id}: lost")
        # When the worker is told to end, then it gives back what it holds.
        with a_gate(tmp_path) as gate:
            given_back = queue.submit(to=ROLE, instructions=f"hold {gate}")
            gate.heard()
            assert worker.end() == 0, worker.said
            assert worker.lines[-1] == "2 done"
            task = queue.task(given_back.id)
            assert (task.state, task.details.interruptions) == (State.READY, 1)
    # The coordinator hears of both that were to reply to it.
    said = run_in(tmp_path, "results", "ann", "--limit", "2", "--json").ok().lines()
    assert [(each["task_id"], each["status"]) for each in said] == [
        (counted.id, "completed"), (broken.id, "failed")
    ]  # fmt: skip
    assert [problem for _, found in queue.admin.verify() for problem in found] == []


def test_whatever_is_printed_fits_into_a_message(
    queue: Queue, program: list[str], rabbitmq_url: str, tmp_path: Path
) -> None:
    # Given commands that print more than a message may have, in letters that take most room,
    with a_worker(program, rabbitmq_url, tmp_path):
        for number, letter in enumerate(["é", "漢", "😀", "\x01", '"', "word "]):
            printed = tmp_path / f"printed-{number}"
            printed.write_text(f"at first\n{letter * 60_000}", "utf-8")
            check_cut_to_fit(queue, printed)


def check_cut_to_fit(queue: Queue, printed: Path) -> None:
    # when the text is asked for several times over,
    show = f"show {printed}"
    task = queue.submit(to=ROLE, instructions=show, expect=["summary", "again"])
    short = queue.submit(to=ROLE, instructions=show, max_attempts=1, expect=["summary"])
    # then as much is told as there is room for, and that it was cut.
    assert queue.wait(task.id, 60).state is State.COMPLETE
    assert queue.wait(short.id, 60).state is State.COMPLETE
    told, more = (queue.result(each.id).text() for each in (task, short))
    start, _, end = told.rpartition("\n")
    assert end == "[the rest was cut off]"
    assert printed.read_text("utf-8").startswith(start)
    for text, copies in ((told, 3), (more, 2)):
        size = len(json.dumps(text, ensure_ascii=False).encode())
        assert 62_000 < copies * size < 65_536, printed.read_text("utf-8")[9:14]
    assert len(queue.result(task.id).summary) <= 500


def test_a_worker_keeps_no_answers_that_it_did_not_ask_for(
    queue: Queue, rabbitmq_url: str, tmp_path: Path
) -> None:
    worker_py = runpy.run_path(str(EXAMPLES / "python_worker" / "worker.py"))
    with a_gate(tmp_path) as gate:
        # Given a worker whose task goes on for several heartbeats: it takes its lease, which lasts
        # however busy this machine is, for one of a second,
        worker = worker_py["Worker"](rabbitmq_url, ROLE, ["sh", "-c", COMMAND])
        work = worker._work
        worker._work = lambda task, answer: work(task, {**answer, "lease_seconds": 1})
        serving = threading.Thread(target=worker.serve, args=(20,))
        serving.start()
        task = queue.submit(to=ROLE, instructions=f"hold {gate}", lease=60)
        gate.heard()
        began = queue.task(task.id).wake_at
        eventually(lambda: queue.task(task.id).wake_at > began + 1000)
        gate.let_through("done")
        assert queue.wait(task.id, 60).state is State.COMPLETE
        # when it has nothing to do any more, then nothing is left of what it was told meanwhile.
        worker.leaving = True
        serving.join()
        worker.connection.close()
    kept = {name: value for name, value in vars(worker).items() if isinstance(value, dict | list)}
    assert {name for name, value in kept.items() if value} <= {"command", "answer"}
    assert worker.answer["about"] == "completed"


def test_a_worker_that_the_broker_leaves_ends(
    rabbitmq_server: RabbitServer, queue: Queue, program: list[str], rabbitmq_url: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    # Given a worker with nothing to do, and one in the middle of a task,
    with a_gate(tmp_path) as gate, a_worker(program, rabbitmq_url, tmp_path) as busy:
        queue.submit(to=ROLE, instructions=f"hold {gate}")
        gate.heard()
        with a_worker(program, rabbitmq_url, tmp_path) as idle:
            eventually(lambda: role_consumers(rabbitmq_url) == 1)
            # when the broker hangs up, then both end: whoever minds them starts them again.
            rabbitmq_server.call(
                '[rabbit_networking:close_connection(Each, "the test")'
                " || Each <- rabbit_networking:connections()]"
            )
            for worker in (idle, busy):
                assert worker.process.wait(20) == 1, worker.said
                assert worker.wait_for("error: ")
                assert "Traceback" not in worker.said
        # And the command does not go on alone, unheard.
        eventually(lambda: not processes_with(str(gate)))


def role_consumers(url: str) -> int:
    with stranger(url) as channel:
        return int(channel.queue_declare(f"agentq.role.{ROLE}", passive=True).consumer_count)


def processes_with(word: str) -> list[int]:
    """Who holds a pipe of a gate open, but for us."""
    found = []
    for folder in Path("/proc").glob("[0-9]*/fd"):
        if folder.parent.name == str(os.getpid()):
            continue
        with suppress(OSError):
            if any(word in str(each.readlink()) for each in folder.iterdir()):
                found.append(int(folder.parent.name))
    return found


def test_a_worker_that_is_cut_off_undoes_nothing(
    queue: Queue, node_worker: list[str], rabbitmq_url: str, tmp_path: Path
) -> None:
    python = [sys.executable, str(EXAMPLES / "python_worker" / "worker.py")]
    with a_gate(tmp_path) as gate:
        # Given a worker that dies in the middle of a task,
        with a_worker(python, rabbitmq_url, tmp_path) as dying:
            name = dying.wait_for("ready:").removeprefix("ready: ")
            task = queue.submit(to=ROLE, instructions=f"hold {gate}", lease=5)
            gate.heard()
            dying.end(signal.SIGKILL)
            gate.let_through("nobody hears this")
        # when its lease has ended, then a worker of another language takes over;
        with a_worker(node_worker, rabbitmq_url, tmp_path):
            gate.heard()
            assert queue.task(task.id).epoch == 2
            # and what comes late from the first is refused, and changes nothing.
            publisher = RabbitPublisher(rabbitmq_url)
            late = {"message_id": "late", "task_id": task.id, "from": name, "status": "completed",
                    "epoch": 1, "summary": "mine"}  # fmt: skip
            body = json.dumps(late).encode()
            assert publisher.publish([Message("late", "agentq.status", ROLE, body)] * 2) == ["", ""]
            publisher.close()
            eventually(lambda: queue.history(task.id)[-1].event.kind == "report_refused")
            gate.let_through("done by the second")
            assert queue.wait(task.id, 60).state is State.COMPLETE
            assert queue.result(task.id).summary == "done by the second"
    kinds = [entry.event.kind for entry in queue.history(task.id)]
    assert kinds.count("report_refused") == 1
    assert kinds.count("completed") == 1


def test_two_languages_share_a_role_and_each_task_is_done_once(
    queue: Queue, node_worker: list[str], rabbitmq_url: str, tmp_path: Path
) -> None:
    python = [sys.executable, str(EXAMPLES / "python_worker" / "worker.py")]
    tasks = queue.submit_many(
        {"to": ROLE, "instructions": f"count {'word ' * n}", "id": f"task-{n}",
         "reply_to": "results.coordinator"}
        for n in range(30)
    )  # fmt: skip
    with (
        a_worker(python, rabbitmq_url, tmp_path) as first,
        a_worker(node_worker, rabbitmq_url, tmp_path) as second,
    ):
        for task in tasks:
            assert queue.wait(task.id, 30).state is State.COMPLETE
        assert first.end() == 0 and second.end() == 0
    done = [int(worker.lines[-1].split()[0]) for worker in (first, second)]
    assert sum(done) == 30 and min(done) > 0
    for n, task in enumerate(tasks):
        assert queue.result(task.id).text().strip() == str(n)
        kinds = [entry.event.kind for entry in queue.history(task.id)]
        assert kinds.count("completed") == 1 and kinds.count("claimed") == 1
    # The coordinator's queue has each outcome; one that it was not done with comes again.
    name = "results.coordinator"
    with closing(received(queue._client.installation.mailbox(name), name, 5, None, print)) as taken:
        first_heard = next(taken)
    heard_of = [outcome.task_id for outcome in results(queue._client, wait=5, limit=30)]
    assert first_heard.task_id in heard_of
    assert sorted(heard_of) == sorted(task.id for task in tasks)
    assert [each.task_id for each in results(queue._client, wait=0)] == []


def impatient(program: Sequence[str]) -> list[str]:
    """The same worker, but for how long it waits before it says something again."""
    *words, file = program
    text = Path(file).read_text("utf-8")
    short = text.replace(
        "AGAIN_SECONDS, BEAT_SECONDS = 60.0,", "AGAIN_SECONDS, BEAT_SECONDS = 0.3,"
    )
    short = short.replace("AGAIN_MS = 60_000", "AGAIN_MS = 300")
    assert short != text
    copy = Path(file).with_stem(f"impatient-{uuid.uuid4().hex[:6]}")
    copy.write_text(short, "utf-8")
    return [*words, str(copy)]


def test_what_there_is_no_room_for_is_said_again(
    rabbitmq_url: str, node_worker: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = shutil.copy(EXAMPLES / "python_worker" / "worker.py", tmp_path)
    # Given that no report with files can wait any more,
    monkeypatch.setattr(artifact_uploads, "MESSAGES_MAX", 0)
    with installed(tmp_path, rabbitmq_url) as queue, up_here(queue) as ingest:

        def refused() -> int:
            return ingest.tally.counts.get("refused", 0)

        for program in ([sys.executable, str(python)], node_worker):
            # when a worker has such a one, then it is refused each time,
            many = refused() + 4
            with a_worker(impatient(program), rabbitmq_url, tmp_path):
                task = queue.submit(to=ROLE, instructions="count a", expect="n", lease=2)
                eventually(lambda many=many: refused() >= many)  # type: ignore[misc]
                assert queue.task(task.id).state is State.IN_PROGRESS
                # and taken as soon as there is room, from the same attempt.
                monkeypatch.setattr(artifact_uploads, "MESSAGES_MAX", 1000)
                assert queue.wait(task.id, 60).state is State.COMPLETE
                assert queue.task(task.id).epoch == 1
                monkeypatch.setattr(artifact_uploads, "MESSAGES_MAX", 0)


def as_user(url: str, user: str) -> str:
    return url.replace("guest:guest@", f"{user}:{PASSWORD}@")


def test_everybody_needs_no_more_than_the_rights_that_init_prints(
    rabbitmq_server: RabbitServer, rabbitmq_url: str, tmp_path: Path
) -> None:
    # Given the users that `agentq init --broker` proposes,
    python = [sys.executable, str(EXAMPLES / "python_worker" / "worker.py")]
    with ExitStack() as users, installed(tmp_path, rabbitmq_url) as queue:
        users.enter_context(
            made_by(rabbitmq_server, queue._client.installation.broker_users([ROLE]))
        )
        settings = tmp_path / "agentq.toml"
        settings.write_text(as_user(settings.read_text(), "agentq-up"))
        workers_url = as_user(rabbitmq_url, f"agentq-role-{ROLE}")
        # when `agentq up` and a worker are those users, then work is done,
        with up_in(tmp_path), a_worker(python, workers_url, tmp_path) as worker:
            task = queue.submit(to=ROLE, instructions="count one two")
            assert queue.wait(task.id, 60).state is State.COMPLETE
            assert worker.end() == 0, worker.said
        # and the worker can neither speak for another role nor hear its tasks.
        intruder = RabbitPublisher(workers_url)
        foreign = Message("m", "agentq.status", "deployer", b"{}", mandatory=False)
        assert "ACCESS_REFUSED" in intruder.publish([foreign])[0]
        intruder.close()
        queue.admin.prepare_broker(["deployer"])
        with running([*python, workers_url, "deployer", "--", "cat"], tmp_path) as refused:
            refused.wait_for("ACCESS_REFUSED")


def test_the_examples_know_nothing_of_agentq() -> None:
    for file in ("python_worker/worker.py", "js_worker/worker.js"):
        text = (EXAMPLES / file).read_text("utf-8")
        assert "import agentq" not in text and "from agentq" not in text
    lock = json.loads((EXAMPLES / "js_worker" / "package-lock.json").read_text("utf-8"))
    for name, package in lock["packages"].items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-")
