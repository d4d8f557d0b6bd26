"""Messages that were made to do harm: each is set aside, and whoever comes after it is heard."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentq.client.queue import Queue
from agentq.core.errors import Damaged
from agentq.core.states import State
from agentq.delivery.rabbitmq import dead_messages
from agentq.settings import Settings
from tests.daemon.foreign_worker import ROLE, ForeignWorker, connect_foreign_worker, ingesting
from tests.eventually import eventually

BAD = "x\ud800"


@pytest.fixture
def settings(broker_url: str, tmp_path: Path) -> Settings:
    return Settings(
        f"sqlite:///{tmp_path}/ledger.db", str(tmp_path / "files"), "the test", broker=broker_url
    )


@pytest.fixture(autouse=True)
def _prepared(queue: Queue) -> None:
    queue.admin.prepare_broker([ROLE])


@pytest.fixture
def foreign_worker(queue: Queue, broker_url: str) -> Iterator[ForeignWorker]:
    with connect_foreign_worker(broker_url) as foreign_worker, ingesting(queue, broker_url):
        yield foreign_worker


def progress(task_id: str, id: str) -> bytes:
    said = {"v": 1, "message_id": id, "task_id": task_id, "from": "stranger", "epoch": 1,
            "status": "progress", "percent": 1}  # fmt: skip
    return json.dumps(said).encode()


class _OddTime:
    """A time, in whatever unit its sender likes."""


@pytest.mark.parametrize(
    "properties",
    [
        {"reply_to": BAD},
        {"message_id": BAD},
        {"correlation_id": BAD, "app_id": BAD, "type": BAD, "content_type": BAD},
        {"application_headers": {BAD: BAD, "deep": [[[[[[[[[[[[1]]]]]]]]]]]]}},
        {"message_id": "\x00\n", "reply_to": "\x00"},
        {"reply_to": "amq.rabbitmq.reply-to.g1h2%%"},
        {"reply_to": "agentq.ingest"},
    ],
    ids=["reply_to", "message_id", "other texts", "headers", "control", "direct", "ours"],
)
def test_no_property_stops_the_loop(
    queue: Queue, foreign_worker: ForeignWorker, broker_url: str, properties: dict[str, Any]
) -> None:
    task = queue.submit(to=ROLE, instructions="do it")
    assert foreign_worker.ask("started", task.id) == "accepted"
    # When one message with odd properties is fine otherwise, and another is not,
    foreign_worker.send(progress(task.id, "odd"), **properties)
    foreign_worker.send(b"no JSON", **properties)
    # then whoever speaks after them is heard;
    assert foreign_worker.ask("heartbeat", task.id, epoch=1) == "accepted"
    # the first was taken in, and the second is among the dead letters.
    assert queue.task(task.id).details.progress_percent == 1
    eventually(lambda: [each.body for each in dead_messages(broker_url)] == [b"no JSON"])


@pytest.mark.parametrize("unit", [1, 1000, 10**9], ids=["seconds", "milliseconds", "nanoseconds"])
def test_an_odd_time_in_a_header_costs_nobody_an_answer(
    queue: Queue, foreign_worker: ForeignWorker, monkeypatch: pytest.MonkeyPatch, unit: int
) -> None:
    from amqp import serialization

    task = queue.submit(to=ROLE, instructions="do it")
    write = serialization._write_item

    def write_time(value: Any, put: Any, bits: Any) -> None:
        if isinstance(value, _OddTime):
            put(b"T" + struct.pack(">Q", 1_700_000_000 * unit))
        else:
            write(value, put, bits)

    monkeypatch.setattr(serialization, "_write_item", write_time)
    assert foreign_worker.ask("started", task.id) == "accepted"
    foreign_worker.send(progress(task.id, f"at-{unit}"), application_headers={"at": _OddTime()})
    assert foreign_worker.answer(f"at-{unit}")["status"] == "accepted"


@pytest.mark.parametrize("length", [70_000, 200_000])
def test_who_sends_too_much_is_told_and_the_message_is_kept(
    queue: Queue, foreign_worker: ForeignWorker, broker_url: str, length: int
) -> None:
    task = queue.submit(to=ROLE, instructions="do it")
    assert foreign_worker.ask("started", task.id) == "accepted"
    said = {"v": 1, "task_id": task.id, "from": "stranger", "epoch": 1, "status": "completed",
            "message_id": "m-long", "summary": "x" * length}  # fmt: skip
    foreign_worker.send(json.dumps(said).encode(), message_id="m-long")
    answer = foreign_worker.answer("m-long")
    assert (answer["status"], answer["code"]) == ("refused", "too_large")
    assert str(len(json.dumps(said))) in answer["reason"]
    # The attempt goes on, so it may say less.
    assert foreign_worker.ask("completed", task.id, epoch=1, summary="well") == "accepted"
    eventually(lambda: [each.id for each in dead_messages(broker_url)] == ["m-long"])


# -- what the ledger cannot bear -------------------------------------------------------------------


@pytest.mark.damages
def test_one_that_the_ledger_cannot_bear_is_set_aside_alone(queue: Queue, broker_url: str) -> None:
    """Here the row of one task is damaged, so that nobody can even load it."""
    bad, good = (queue.submit(to=ROLE, instructions="do it").id for _ in "ab")
    _damage(queue, bad)
    with connect_foreign_worker(broker_url) as foreign_worker:
        for name in ("m-a", "m-b"):
            foreign_worker.send_status("started", good, message_id=name)
            foreign_worker.send_status("heartbeat", bad, epoch=1, message_id=f"bad-{name}")
        with ingesting(queue, broker_url):
            assert foreign_worker.answer("m-a")["status"] == "accepted"
            assert foreign_worker.answer("m-b")["status"] == "refused"
            assert foreign_worker.ask("completed", good, epoch=1) == "accepted"
            eventually(lambda: len(dead_messages(broker_url)) == 2)
    assert all("cannot be taken in" in each.reason for each in dead_messages(broker_url))
    assert queue.task(good).state is State.COMPLETE


def test_a_ledger_that_serves_nobody_sets_no_message_aside(
    queue: Queue, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it says: the messages are not to blame, and wait."""
    task = queue.submit(to=ROLE, instructions="do it")
    write, broken, tries = queue._client.installation.store.write, [True], []

    def refuse(change: Any) -> Any:
        tries.append(1)
        if broken:
            raise Damaged("The ledger is in pieces.")
        return write(change)

    monkeypatch.setattr(queue._client.installation.store, "write", refuse)
    with connect_foreign_worker(broker_url) as foreign_worker, ingesting(queue, broker_url):
        started = foreign_worker.send_status("started", task.id)
        eventually(lambda: len(tries) > 3)
        broken.clear()
        assert foreign_worker.answer(started)["status"] == "accepted"
        assert foreign_worker.waiting() == 0
    assert dead_messages(broker_url) == []


def _damage(queue: Queue, task_id: str) -> None:
    key = queue._client.installation.ledger.queries.find(task_id)[0]

    def change(tx: Any) -> None:
        tx.connection.execute("UPDATE tasks SET memo = '{' WHERE key = ?", (key,))

    queue._client.installation.store.write(change)
