"""While the artifact store is away, reports that bring files wait, and nobody loses a lease."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentq.client.queue import Queue
from agentq.core.states import State
from agentq.daemon import filing
from agentq.delivery.rabbitmq import dead_messages
from agentq.settings import Settings
from agentq.wiring import Parts
from tests.daemon.talking import ROLE, Talker, ingesting, talking
from tests.daemon.watching import until
from tests.servers.rabbitmq import RabbitServer
from tests.servers.seaweed import SeaweedServer

LEASE = 1


@contextmanager
def installed(tmp_path: Path, broker_url: str, root: str, **options: str) -> Iterator[Queue]:
    settings = Settings(
        f"sqlite:///{tmp_path}/ledger.db", root, "the test", broker=broker_url,
        artifacts_options=options, local=str(tmp_path),
    )  # fmt: skip
    with Queue(parts=Parts(settings)) as opened:
        opened.prepare_broker([ROLE])
        yield opened


@pytest.fixture
def queue(broker_url: str, tmp_path: Path) -> Iterator[Queue]:
    """An installation whose artifacts go to a folder that can be taken away."""
    with installed(tmp_path, broker_url, str(tmp_path / "files")) as opened:
        yield opened


@pytest.fixture
def talker(queue: Queue, broker_url: str) -> Iterator[Talker]:
    with talking(broker_url) as talker:
        yield talker


class Folder:
    """The folder of the artifacts, which a file stands in the way of."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_text("no folder")

    def return_(self) -> None:
        self._path.unlink()


@pytest.fixture
def away(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "files")


def begun(queue: Queue, talker: Talker, sender: str, lease: int = LEASE) -> str:
    task = queue.submit(to=ROLE, instructions="do it", lease_seconds=lease)
    assert talker.ask("started", task.id, sender) == "accepted"
    return task.id


def outlive(queue: Queue, leases: float, meanwhile: Callable[[], None]) -> None:
    """Let so many leases pass, ending those that nobody renewed as `agentq up` would."""
    deadline = time.monotonic() + leases * LEASE
    while time.monotonic() < deadline:
        meanwhile()
        queue.parts.ledger.tick()


@pytest.mark.parametrize("how", ["killed", "hanging"])
def test_an_object_store_that_is_away_costs_nobody_a_lease(
    tmp_path: Path, broker_url: str, s3_server: SeaweedServer, how: str
) -> None:
    options = {"endpoint": s3_server.endpoint, "region": "us-east-1"}
    with (
        installed(tmp_path, broker_url, s3_server.fresh_root(), **options) as queue,
        talking(broker_url) as talker,
        ingesting(queue, broker_url),
    ):
        done, busy = begun(queue, talker, "a"), begun(queue, talker, "b")
        try:
            # Given a store that went away, when one reports with a result and is silent then,
            if how == "killed":
                s3_server.kill()
            else:
                os.kill(s3_server.pid, signal.SIGSTOP)
            report = talker.say("completed", done, "a", epoch=1, result="# It")
            # then another who beats is answered at once, every time,

            def beat() -> None:
                assert talker.answer(talker.say("heartbeat", busy, "b", epoch=1), 1)["epoch"] == 1
                assert talker.answers.popitem()[1]["status"] == "accepted"

            outlive(queue, 3, beat)
            # both hold what they held, and the report is neither answered nor lost.
            for task_id, holder in ((done, "a"), (busy, "b")):
                task = queue.task(task_id)
                assert (task.state, task.holder, task.epoch) == (State.IN_PROGRESS, holder, 1)
            assert report not in talker.answers
        finally:
            if how == "killed":
                s3_server.start()
            else:
                os.kill(s3_server.pid, signal.SIGCONT)
        # When it is back, the report is accepted.
        assert talker.answer(report, 30)["status"] == "accepted"
        assert queue.result(done).content == b"# It"
        assert talker.ask("completed", busy, "b", epoch=1, result="# Too") == "accepted"


def test_nothing_is_acknowledged_before_it_is_in_the_ledger(
    queue: Queue, talker: Talker, broker_url: str, away: Folder
) -> None:
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, talker, "a", 60)
        report = talker.say("completed", task_id, "a", epoch=1, result="# It")
        until(lambda: len(loop._waiting) == 1)
    # When that process ends while the report waits, then it is there for the next.
    until(lambda: talker.waiting() == 1)
    away.return_()
    with ingesting(queue, broker_url):
        assert talker.answer(report)["status"] == "accepted"
    assert talker.waiting() == 0


def test_what_one_says_keeps_its_order(
    queue: Queue, talker: Talker, broker_url: str, away: Folder
) -> None:
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, talker, "a", 60)
        said = [
            talker.say("completed", task_id, "a", epoch=1, result="# It"),
            talker.say("failed", task_id, "a", epoch=1, summary="or not"),
            talker.say("progress", task_id, "a", epoch=1, percent=99),
        ]
        # A sign of life overtakes them, and nobody else waits behind them.
        assert talker.ask("heartbeat", task_id, "a", epoch=1) == "accepted"
        assert talker.ask("heartbeat", task_id, "eve", epoch=1) == "stale"
        until(lambda: len(loop._waiting) == 3)
        away.return_()
        codes = [talker.answer(each).get("code", "accepted") for each in said]
        assert codes == ["accepted", "stale", "stale"]
    assert queue.task(task_id).state is State.COMPLETE


def test_a_report_that_is_sent_again_while_it_waits_waits_once(
    queue: Queue, talker: Talker, broker_url: str, rabbitmq_server: RabbitServer, away: Folder
) -> None:
    """Its sender grows impatient; and the connection breaks, so that the broker gives it again."""
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, talker, "a", 60)
        for _ in range(3):
            talker.say("completed", task_id, "a", epoch=1, result="# It", message_id="report")
        assert talker.ask("heartbeat", task_id, "a", epoch=1) == "accepted"
        until(lambda: len(loop._waiting) == 1)
        consumer = loop._consumer
        assert consumer is not None
        held = next(iter(loop._waiting._turns.values())).entries
        (before,) = [entry.received.tag for entry in held.values()]
        consumer._tap._link._connection.transport.sock.shutdown(2)  # type: ignore[attr-defined]
        until(lambda: [entry.received.tag for entry in held.values()] != [before], what="a copy")
        assert len(loop._waiting) == 1
        away.return_()
        assert talker.answer("report")["status"] == "accepted"
    assert queue.task(task_id).state is State.COMPLETE
    assert talker.waiting() == 0
    assert dead_messages(broker_url) == []


def test_no_more_is_held_than_there_is_room_for(
    queue: Queue, talker: Talker, broker_url: str, away: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filing, "LETTERS_MAX", 3)
    monkeypatch.setattr("agentq.daemon.loops.ingest.BATCH", 1)
    with ingesting(queue, broker_url) as loop:
        tasks = [begun(queue, talker, f"w{number}") for number in range(5)]
        reports = [
            talker.say("completed", task_id, f"w{number}", epoch=1, result=f"# {number}")
            for number, task_id in enumerate(tasks)
        ]
        until(lambda: len(loop._waiting) == 3)
        # Those that wait keep their leases, those that nobody has taken cannot.
        outlive(queue, 2, talker.listen)
        assert len(loop._waiting) == 3
        assert talker.waiting() == 2
        assert [queue.task(task_id).epoch for task_id in tasks] == [1] * 5
        assert [queue.task(task_id).holder for task_id in tasks[:3]] == ["w0", "w1", "w2"]
        away.return_()
        outcomes = [talker.answer(each)["status"] for each in reports]
        assert outcomes == ["accepted"] * 3 + ["refused"] * 2
        assert (len(loop._waiting), loop._waiting._bytes) == (0, 0)


def test_a_task_that_is_cancelled_while_its_report_waits_leaves_no_file(
    queue: Queue, talker: Talker, broker_url: str, away: Folder, tmp_path: Path
) -> None:
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, talker, "a", 60)
        report = talker.say("completed", task_id, "a", epoch=1, result="# It")
        until(lambda: len(loop._waiting) == 1)
        queue.cancel(task_id, "boss")
        away.return_()
        assert talker.answer(report)["code"] == "stale"
        place = tmp_path / "files" / "artifacts" / task_id / "1" / "result.md"
        until(lambda: not place.exists())
