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
from agentq.daemon import artifact_uploads
from agentq.delivery.rabbitmq import dead_messages
from agentq.settings import Settings
from agentq.wiring import WiredInstallation
from tests.daemon.foreign_worker import ROLE, ForeignWorker, connect_foreign_worker, ingesting
from tests.eventually import eventually
from tests.servers.rabbitmq import RabbitServer
from tests.servers.seaweed import SeaweedServer

pytestmark = pytest.mark.long

LEASE = 1


@contextmanager
def installed(tmp_path: Path, broker_url: str, root: str, **options: str) -> Iterator[Queue]:
    settings = Settings(
        f"sqlite:///{tmp_path}/ledger.db", root, "the test", broker=broker_url,
        artifacts_options=options, local=str(tmp_path),
    )  # fmt: skip
    with Queue(installation=WiredInstallation(settings, create=True)) as opened:
        opened.admin.prepare_broker([ROLE])
        yield opened


@pytest.fixture
def queue(broker_url: str, tmp_path: Path) -> Iterator[Queue]:
    """An installation whose artifacts go to a folder that can be taken away."""
    with installed(tmp_path, broker_url, str(tmp_path / "files")) as opened:
        yield opened


@pytest.fixture
def foreign_worker(queue: Queue, broker_url: str) -> Iterator[ForeignWorker]:
    with connect_foreign_worker(broker_url) as foreign_worker:
        yield foreign_worker


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


def begun(queue: Queue, foreign_worker: ForeignWorker, sender: str, lease: int = LEASE) -> str:
    task = queue.submit(to=ROLE, instructions="do it", lease=lease)
    assert foreign_worker.ask("started", task.id, sender) == "accepted"
    return task.id


def outlive(queue: Queue, leases: float, meanwhile: Callable[[], None]) -> None:
    """Let so many leases pass, ending those that nobody renewed as `agentq up` would."""
    deadline = time.monotonic() + leases * LEASE
    while time.monotonic() < deadline:
        meanwhile()
        queue._client.installation.ledger.tick()


@pytest.mark.parametrize("how", ["killed", "hanging"])
def test_an_object_store_that_is_away_costs_nobody_a_lease(
    tmp_path: Path, broker_url: str, s3_server: SeaweedServer, how: str
) -> None:
    options = {"endpoint": s3_server.endpoint, "region": "us-east-1"}
    with (
        installed(tmp_path, broker_url, s3_server.fresh_root(), **options) as queue,
        connect_foreign_worker(broker_url) as foreign_worker,
        ingesting(queue, broker_url),
    ):
        done, busy = begun(queue, foreign_worker, "a"), begun(queue, foreign_worker, "b")
        try:
            # Given a store that went away, when one reports with a result and is silent then,
            if how == "killed":
                s3_server.kill()
            else:
                os.kill(s3_server.pid, signal.SIGSTOP)
            report = foreign_worker.send_status("completed", done, "a", epoch=1, result="# It")
            # then another who beats is answered at once, every time,

            def beat() -> None:
                assert (
                    foreign_worker.answer(
                        foreign_worker.send_status("heartbeat", busy, "b", epoch=1), 1
                    )["epoch"]
                    == 1
                )
                assert foreign_worker.answers.popitem()[1]["status"] == "accepted"

            outlive(queue, 3, beat)
            # both hold what they held, and the report is neither answered nor lost.
            for task_id, holder in ((done, "a"), (busy, "b")):
                task = queue.task(task_id)
                assert (task.state, task.holder, task.epoch) == (State.IN_PROGRESS, holder, 1)
            assert report not in foreign_worker.answers
        finally:
            if how == "killed":
                s3_server.start()
            else:
                os.kill(s3_server.pid, signal.SIGCONT)
        # When it is back, the report is accepted.
        assert foreign_worker.answer(report, 30)["status"] == "accepted"
        assert queue.result(done).content == b"# It"
        assert foreign_worker.ask("completed", busy, "b", epoch=1, result="# Too") == "accepted"


def test_nothing_is_acknowledged_before_it_is_in_the_ledger(
    queue: Queue, foreign_worker: ForeignWorker, broker_url: str, away: Folder
) -> None:
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, foreign_worker, "a", 60)
        report = foreign_worker.send_status("completed", task_id, "a", epoch=1, result="# It")
        eventually(lambda: len(loop._waiting) == 1)
    # When that process ends while the report waits, then it is there for the next.
    eventually(lambda: foreign_worker.waiting() == 1)
    away.return_()
    with ingesting(queue, broker_url):
        assert foreign_worker.answer(report)["status"] == "accepted"
    assert foreign_worker.waiting() == 0


def test_what_one_says_keeps_its_order(
    queue: Queue, foreign_worker: ForeignWorker, broker_url: str, away: Folder
) -> None:
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, foreign_worker, "a", 60)
        said = [
            foreign_worker.send_status("completed", task_id, "a", epoch=1, result="# It"),
            foreign_worker.send_status("failed", task_id, "a", epoch=1, summary="or not"),
            foreign_worker.send_status("progress", task_id, "a", epoch=1, percent=99),
        ]
        # A sign of life overtakes them, and nobody else waits behind them.
        assert foreign_worker.ask("heartbeat", task_id, "a", epoch=1) == "accepted"
        assert foreign_worker.ask("heartbeat", task_id, "eve", epoch=1) == "stale"
        eventually(lambda: len(loop._waiting) == 3)
        away.return_()
        codes = [foreign_worker.answer(each).get("code", "accepted") for each in said]
        assert codes == ["accepted", "stale", "stale"]
    assert queue.task(task_id).state is State.COMPLETE


def test_a_report_that_is_sent_again_while_it_waits_waits_once(
    queue: Queue,
    foreign_worker: ForeignWorker,
    broker_url: str,
    rabbitmq_server: RabbitServer,
    away: Folder,
) -> None:
    """Its sender grows impatient; and the connection breaks, so that the broker gives it again."""
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, foreign_worker, "a", 60)
        for _ in range(3):
            foreign_worker.send_status(
                "completed", task_id, "a", epoch=1, result="# It", message_id="report"
            )
        assert foreign_worker.ask("heartbeat", task_id, "a", epoch=1) == "accepted"
        eventually(lambda: len(loop._waiting) == 1)
        consumer = loop._consumer
        assert consumer is not None
        held = next(iter(loop._waiting._turns.values())).entries
        (before,) = [entry.received.tag for entry in held.values()]
        consumer._pull_consumer._link._connection.transport.sock.shutdown(2)  # type: ignore[attr-defined]
        eventually(
            lambda: [entry.received.tag for entry in held.values()] != [before], what="a copy"
        )
        assert len(loop._waiting) == 1
        away.return_()
        assert foreign_worker.answer("report")["status"] == "accepted"
    assert queue.task(task_id).state is State.COMPLETE
    assert foreign_worker.waiting() == 0
    assert dead_messages(broker_url) == []


def test_a_copy_of_another_role_is_refused_and_takes_no_place(
    queue: Queue, foreign_worker: ForeignWorker, broker_url: str, away: Folder
) -> None:
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, foreign_worker, "a", 60)
        report = {"epoch": 1, "result": "# It", "message_id": "report"}
        foreign_worker.send_status("completed", task_id, "a", **report)
        eventually(lambda: len(loop._waiting) == 1)
        # Given a report that waits, when another role's user sends the very same bytes,
        foreign_worker.send_status("completed", task_id, "a", role="other", **report)
        # then that is refused at once, and the report waits on.
        assert "came by 'other'" in foreign_worker.answer("report")["reason"]
        assert len(loop._waiting) == 1
        foreign_worker.answers.clear()
    # Neither was lost with that process: the honest one is there for the next, and is accepted.
    eventually(lambda: foreign_worker.waiting() == 1)
    away.return_()
    with ingesting(queue, broker_url):
        assert foreign_worker.answer("report")["status"] == "accepted"
    assert queue.task(task_id).state is State.COMPLETE
    assert foreign_worker.waiting() == 0


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "later"])
def test_one_attempt_does_not_take_the_room_of_others(
    queue: Queue,
    foreign_worker: ForeignWorker,
    broker_url: str,
    away: Folder,
    monkeypatch: pytest.MonkeyPatch,
    together: bool,
) -> None:
    monkeypatch.setattr(artifact_uploads, "MESSAGES_MAX", 30)
    monkeypatch.setattr(artifact_uploads, "TURN_MAX", 5)
    with ingesting(queue, broker_url):
        loud, calm, done = (begun(queue, foreign_worker, name, 60) for name in ("a", "b", "c"))

    def talk() -> list[str]:
        report = foreign_worker.send_status("completed", loud, "a", epoch=1, result="# It")
        eventually(lambda: together or len(loop._waiting) == 1)
        news = [
            foreign_worker.send_status("progress", loud, "a", epoch=1, percent=1) for _ in range(60)
        ]
        return [
            report,
            *news,
            foreign_worker.send_status("failed", loud, "a", epoch=1, summary="or not"),
        ]

    said = talk() if together else []
    with ingesting(queue, broker_url) as loop:
        said = said or talk()
        # When one says more than may wait, then others are heard, and may wait too.
        assert foreign_worker.ask("heartbeat", calm, "b", epoch=1) == "accepted"
        report = foreign_worker.send_status("completed", done, "c", epoch=1, result="# Mine")
        eventually(lambda: len(loop._waiting) == 6)
        # News of the work is heard out of order, rather than that a worker is told to stop,
        assert {foreign_worker.answer(each)["status"] for each in said[5:-1]} == {"accepted"}
        # and another end is refused, with what to do.
        refusal = foreign_worker.answer(said[-1])
        assert (refusal["code"], "again in a minute" in refusal["remedy"]) == ("unavailable", True)
        assert not {report, *said[:5]} & set(foreign_worker.answers)
        away.return_()
        assert foreign_worker.answer(report)["status"] == "accepted"
        codes = [foreign_worker.answer(each).get("code", "accepted") for each in said[:5]]
        assert codes == ["accepted"] + ["stale"] * 4
        assert (len(loop._waiting), loop._waiting._bytes) == (0, 0)


def test_those_that_wait_keep_their_leases_while_nobody_can_be_answered(
    queue: Queue,
    foreign_worker: ForeignWorker,
    broker_url: str,
    away: Folder,
    rabbitmq_server: RabbitServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentq.daemon.loop._BACKOFF_SECONDS", 30.0)  # as after many failures
    with ingesting(queue, broker_url):
        done, busy = begun(queue, foreign_worker, "a"), begun(queue, foreign_worker, "b", 60)
    report = foreign_worker.send_status("completed", done, "a", epoch=1, result="# It")
    beat = foreign_worker.send_status("heartbeat", busy, "b", epoch=1)
    # Given a broker that is short of memory, and takes no answers,
    rabbitmq_server.call("rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []})")
    try:
        with ingesting(queue, broker_url) as loop:
            eventually(lambda: len(loop._waiting) == 1)
            # when more than a lease passes, then the report has not lost its own.
            outlive(queue, 2, foreign_worker.listen)
            assert beat not in foreign_worker.answers
            assert (queue.task(done).state, queue.task(done).epoch) == (State.IN_PROGRESS, 1)
            rabbitmq_server.call("rabbit_alarm:clear_alarm({resource_limit, memory, node()})")
            assert foreign_worker.answer(beat)["status"] == "accepted"
            away.return_()
            assert foreign_worker.answer(report)["status"] == "accepted"
    finally:
        rabbitmq_server.call("rabbit_alarm:clear_alarm({resource_limit, memory, node()})")


def test_no_more_is_held_than_there_is_room_for(
    queue: Queue,
    foreign_worker: ForeignWorker,
    broker_url: str,
    away: Folder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(artifact_uploads, "MESSAGES_MAX", 3)
    monkeypatch.setattr("agentq.daemon.loops.ingest.BATCH", 1)
    with ingesting(queue, broker_url) as loop:
        tasks = [begun(queue, foreign_worker, f"w{number}") for number in range(5)]
        reports = [
            foreign_worker.send_status(
                "completed", task_id, f"w{number}", epoch=1, result=f"# {number}"
            )
            for number, task_id in enumerate(tasks)
        ]
        # Those that cannot wait are told, and whoever beats is heard:
        assert {foreign_worker.answer(each)["code"] for each in reports[3:]} == {"unavailable"}

        def beat() -> None:
            for number in (3, 4):
                asked = foreign_worker.ask("heartbeat", tasks[number], f"w{number}", epoch=1)
                assert asked == "accepted"

        # nobody loses a lease.
        outlive(queue, 2, beat)
        assert (len(loop._waiting), foreign_worker.waiting()) == (3, 0)
        holders = [(task.holder, task.epoch) for task in map(queue.task, tasks)]
        assert holders == [(f"w{number}", 1) for number in range(5)]
        away.return_()
        assert [foreign_worker.answer(each)["status"] for each in reports[:3]] == ["accepted"] * 3
        # The same messages again, as they were told, are accepted too.
        for number in (3, 4):
            report = {"epoch": 1, "result": f"# {number}", "message_id": reports[number]}
            del foreign_worker.answers[reports[number]]
            assert (
                foreign_worker.ask("completed", tasks[number], f"w{number}", **report) == "accepted"
            )
        assert (len(loop._waiting), loop._waiting._bytes) == (0, 0)


def test_a_task_that_is_cancelled_while_its_report_waits_leaves_no_file(
    queue: Queue, foreign_worker: ForeignWorker, broker_url: str, away: Folder, tmp_path: Path
) -> None:
    with ingesting(queue, broker_url) as loop:
        task_id = begun(queue, foreign_worker, "a", 60)
        report = foreign_worker.send_status("completed", task_id, "a", epoch=1, result="# It")
        eventually(lambda: len(loop._waiting) == 1)
        queue.cancel(task_id, "boss")
        away.return_()
        assert foreign_worker.answer(report)["code"] == "stale"
        place = tmp_path / "files" / "artifacts" / task_id / "1" / "result.md"
        eventually(lambda: not place.exists())
