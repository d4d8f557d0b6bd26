"""A worker's inbox on RabbitMQ: nothing ahead of time, nothing lost, nothing that poisons it."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentq.contracts.delivery import TASKS, Hint, Message
from agentq.core.errors import Invalid, NotFound, Refused, Unavailable
from agentq.delivery.rabbitmq import (
    RabbitConsumer,
    RabbitInbox,
    RabbitPublisher,
    dead_messages,
    declare,
    facts,
    pull_consumer,
    purge,
    requeue,
)
from tests.delivery.foreign_messages import ROLE, all_hints, hint, names, publish_raw, stranger
from tests.eventually import eventually
from tests.servers.missing import go_without
from tests.servers.rabbitmq import RabbitServer

QUEUE = f"agentq.role.{ROLE}"


@pytest.fixture
def publisher(rabbitmq_url: str) -> Iterator[RabbitPublisher]:
    declare(rabbitmq_url, [ROLE])
    made = RabbitPublisher(rabbitmq_url)
    yield made
    made.close()


@pytest.fixture
def inbox(rabbitmq_url: str, publisher: RabbitPublisher) -> Iterator[RabbitInbox]:
    made = RabbitInbox(rabbitmq_url, ROLE, "machine:1")
    yield made
    made.close()


def test_nothing_is_taken_ahead_of_time(
    rabbitmq_url: str, publisher: RabbitPublisher, inbox: RabbitInbox
) -> None:
    """A worker with two slots holds two hints; the third is there for a colleague at once."""
    publisher.publish([hint(number) for number in range(10)])
    mine = inbox.take(2, 10)
    assert names(mine) == ["task-0", "task-1"]
    assert publisher.depth(ROLE) == 8
    inbox.settle(mine)
    with closing(RabbitInbox(rabbitmq_url, ROLE, "machine:2")) as colleague:
        assert all_hints(colleague) == [f"task-{number}" for number in range(2, 10)]


def test_what_came_to_an_idle_worker_goes_back_when_it_has_no_slot(
    publisher: RabbitPublisher, inbox: RabbitInbox
) -> None:
    """It stood open for three when the hints came; meanwhile its slots were filled otherwise."""
    assert inbox.take(3, 0.05) == []
    publisher.publish([hint(number) for number in range(3)])
    eventually(lambda: publisher.depth(ROLE) == 0)
    assert inbox.take(0, 0.05) == []
    eventually(lambda: publisher.depth(ROLE) == 3)
    assert names(inbox.take(2, 10)) == ["task-0", "task-1"]
    assert publisher.depth(ROLE) == 1


def test_idle_for_three_then_asking_for_one(publisher: RabbitPublisher, inbox: RabbitInbox) -> None:
    assert inbox.take(3, 0.05) == []
    publisher.publish([hint(number) for number in range(3)])
    eventually(lambda: publisher.depth(ROLE) == 0)
    assert names(inbox.take(1, 10)) == ["task-0"]
    assert names(inbox.take(5, 10)) == ["task-1", "task-2"]


def test_unsettled_hints_go_to_others_when_the_worker_is_gone(
    rabbitmq_url: str, publisher: RabbitPublisher, inbox: RabbitInbox
) -> None:
    publisher.publish([hint(number) for number in range(6)])
    hints = inbox.take(6, 10)
    inbox.settle([hints[0], hints[1], hints[4]])
    inbox.close()
    with closing(RabbitInbox(rabbitmq_url, ROLE, "machine:2")) as other:
        assert sorted(all_hints(other)) == ["task-2", "task-3", "task-5"]


def test_settled_in_any_order(publisher: RabbitPublisher, inbox: RabbitInbox) -> None:
    publisher.publish([hint(number) for number in range(6)])
    first, second = inbox.take(3, 10), inbox.take(3, 10)
    for some in ([second[1]], [first[2], first[0]], first, second, [Hint("x", 7), Hint()]):
        inbox.settle(some)
    inbox.close()
    assert inbox.take(6, 0.3) == [], "nothing came again"
    assert not inbox.error


def test_twenty_workers_share_the_hints(rabbitmq_url: str, publisher: RabbitPublisher) -> None:
    inboxes = [RabbitInbox(rabbitmq_url, ROLE, f"machine:{number}") for number in range(20)]
    try:
        for each in inboxes:
            assert each.take(1, 0) == []
        publisher.publish([hint(number) for number in range(20)])
        taken = [name for each in inboxes for name in names(each.take(1, 10))]
        assert sorted(taken) == sorted(f"task-{number}" for number in range(20))
    finally:
        for each in inboxes:
            each.close()


def test_a_word_for_a_holder_with_a_long_name(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    holder, control = "ü" * 200, f"agentq.control.{ROLE}"
    with closing(RabbitInbox(rabbitmq_url, ROLE, holder)) as inbox:
        inbox.take(0, 0.05)
        said = publisher.publish([Message("s-1", control, f"stop.{holder}", b"{}")])
        assert said == [""], "mandatory: there is a queue for it"
        started = time.monotonic()
        assert inbox.take(0, 30) == []
        assert inbox.control_received
        assert time.monotonic() - started < 10
    assert publisher.publish([Message("s-2", control, f"stop.{holder}", b"{}")]) != [""]


def test_a_sleeping_worker_is_told_to_stop(publisher: RabbitPublisher, inbox: RabbitInbox) -> None:
    inbox.take(1, 0.01)
    word = Message("s-1", f"agentq.control.{ROLE}", "stop.machine:1", b"{}", mandatory=False)
    woken = threading.Timer(0.1, publisher.publish, [[word]])
    woken.start()
    assert inbox.take(1, 30) == []
    woken.join()
    assert inbox.control_received


def test_who_asks_the_broker_in_vain_hears_why() -> None:
    with pytest.raises(Invalid):
        RabbitInbox("amqp://localhost", "a role", "h")
    with closing(RabbitInbox("amqp://guest:secret@127.0.0.1:1", ROLE, "h")) as inbox:
        started = time.monotonic()
        assert inbox.take(1, 0.4) == []
        assert time.monotonic() - started >= 0.39
        assert "cannot be reached" in inbox.error
        assert "secret" not in inbox.error


# -- what nobody can read --------------------------------------------------------------------------

RUBBISH = {
    "no JSON": b"\xff\xfe rubbish",
    "empty": b"",
    "a list": b"[1, 2]",
    "no task": b'{"v": 1}',
    "a number for a name": b'{"v": 1, "task_id": 7}',
    "an empty name": b'{"v": 1, "task_id": ""}',
    "a long name": json.dumps({"v": 1, "task_id": "x" * 500}).encode(),
    "another version": b'{"v": 2, "task_id": "task-1"}',
    "deep": b'{"task_id": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    "too long": b'{"v": 1, "task_id": "' + b"x" * 70_000 + b'"}',
    "much too long": b"x" * 1_000_000,
}


def test_rubbish_goes_to_the_dead_letters_with_a_reason(
    rabbitmq_url: str, publisher: RabbitPublisher, inbox: RabbitInbox
) -> None:
    for identity, body in RUBBISH.items():
        publish_raw(rabbitmq_url, QUEUE, body, message_id=identity)
    publisher.publish([hint(1)])
    taken: list[str] = []
    while "task-1" not in taken:
        hints = inbox.take(4, 10)
        taken += names(hints)
        inbox.settle(hints)
    assert taken == ["task-1"]
    assert inbox.unreadable == len(RUBBISH)
    eventually(lambda: len(dead_messages(rabbitmq_url)) == len(RUBBISH))
    dead = {each.id: each for each in dead_messages(rabbitmq_url)}
    assert set(dead) == set(RUBBISH)
    assert "version 2" in dead["another version"].reason
    assert "not a task envelope" in dead["no JSON"].reason
    assert "1000000 bytes" in dead["much too long"].reason
    assert dead["much too long"].size == 1_000_000
    assert {each.queue for each in dead.values()} == {QUEUE}
    assert facts(rabbitmq_url).queues[1].messages == len(RUBBISH), "looking takes nothing"


def test_dead_letters_are_sent_again_and_thrown_away(
    rabbitmq_url: str, publisher: RabbitPublisher, inbox: RabbitInbox
) -> None:
    publisher.publish(
        [Message(f"m-{number}", TASKS, ROLE, b"rubbish %d" % number) for number in range(5)]
    )
    publish_raw(rabbitmq_url, QUEUE, b"x" * 1_000_000, message_id="huge")
    assert inbox.take(10, 0.5) == []
    eventually(lambda: len(dead_messages(rabbitmq_url)) == 6)
    keys = {each.id: each.key for each in dead_messages(rabbitmq_url)}
    assert len(dead_messages(rabbitmq_url, limit=2)) == 2
    assert [each.id for each in requeue(rabbitmq_url, [keys["m-1"]])] == ["m-1"]
    assert publisher.depth(ROLE) == 1
    assert inbox.take(10, 0.5) == []
    eventually(lambda: len(dead_messages(rabbitmq_url)) == 6)
    assert purge(rabbitmq_url, [keys["m-2"], keys["m-3"]]) == 2
    with pytest.raises(NotFound):
        purge(rabbitmq_url, [keys["m-2"]])
    with pytest.raises(NotFound):
        requeue(rabbitmq_url, ["nothing"])
    with pytest.raises(Refused, match="1000000 bytes"):
        requeue(rabbitmq_url, [keys["huge"]])
    eventually(lambda: purge(rabbitmq_url) == 4)
    assert dead_messages(rabbitmq_url) == []


def test_hints_that_grew_old_are_no_dead_letters(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    publisher.publish([hint(1, expires_ms=1)])
    eventually(lambda: publisher.depth(ROLE) == 0)
    # One that a reader of any kind refuses goes the same way, and arrives: so the other did not.
    publish_raw(rabbitmq_url, QUEUE, b"{}", message_id="refused")
    with stranger(rabbitmq_url) as channel:
        channel.basic_reject(channel.basic_get(QUEUE).delivery_tag, requeue=False)
    eventually(lambda: [each.id for each in dead_messages(rabbitmq_url)] == ["refused"])


def test_a_consumer_takes_whole_messages_and_settles_each_way(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    for number in range(4):
        publish_raw(
            rabbitmq_url, "agentq.ingest", b"%d" % number, {"x": [1, {"y": True}]},
            message_id=f"m-{number}", reply_to="answers", correlation_id=f"c-{number}",
        )  # fmt: skip
    publish_raw(rabbitmq_url, "agentq.ingest", b"x" * 500_000)
    with closing(RabbitConsumer(rabbitmq_url, "agentq.ingest")) as consumer:
        assert consumer.take(0, 0.01) == []
        first, second = consumer.take(2, 10)
        assert (first.reply_to, first.correlation_id) == ("answers", "c-0")
        assert first.headers["x"] == [1, {"y": True}]
        third, fourth = consumer.take(5, 10)
        consumer.ack([first.tag, third.tag])
        consumer.reject(second.tag, "it makes no sense")
        consumer.reject(second.tag, "twice")
        consumer.give_back([fourth.tag])
        [again] = consumer.take(5, 10)
        assert (again.id, again.redelivered) == ("m-3", True)
    with closing(RabbitConsumer(rabbitmq_url, "agentq.ingest")) as another:
        assert [each.id for each in another.take(5, 10)] == ["m-3"], "unsettled: it comes again"
    reasons = {each.id: each.reason for each in dead_messages(rabbitmq_url)}
    assert reasons["m-1"] == "it makes no sense"
    assert "500000 bytes" in reasons[""]


# -- the line --------------------------------------------------------------------------------------


def test_heartbeats_keep_an_idle_line_and_their_lack_ends_it(
    publisher: RabbitPublisher, inbox: RabbitInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker gives up a peer that is silent for two beats; here a beat is a second."""
    monkeypatch.setattr(pull_consumer, "HEARTBEAT_SECONDS", 1)
    assert inbox.take(1, 3.2) == []
    assert [inbox.control_received] == [False], "a new connection would have said so"
    publisher.publish([hint(1)])
    [held] = inbox.take(1, 10)
    # It does not come back for long: the hint is there for others, and no error when it does.
    eventually(lambda: publisher.depth(ROLE) == 1)
    eventually(lambda: names(inbox.take(1, 1)) == ["task-1"])
    assert [inbox.control_received, inbox.error] == [True, ""], "somebody may have called meanwhile"
    inbox.settle([held])


def test_a_queue_that_was_deleted_is_there_again(
    rabbitmq_url: str, publisher: RabbitPublisher, inbox: RabbitInbox
) -> None:
    assert inbox.take(1, 0.05) == []
    with stranger(rabbitmq_url) as channel:
        channel.queue_delete(QUEUE)
    inbox.take(1, 0.5)
    eventually(lambda: publisher.publish([hint(1)]) == [""])
    eventually(lambda: names(inbox.take(1, 1)) == ["task-1"])


def test_by_tls(
    rabbitmq_server: RabbitServer, rabbitmq_url: str, publisher: RabbitPublisher, tmp_path: Path
) -> None:
    if shutil.which("openssl") is None:
        go_without("openssl", "apt install openssl")
    port = rabbitmq_server.listen_by_tls(tmp_path)
    secure = rabbitmq_url.replace("amqp:", "amqps:").replace(
        f"127.0.0.1:{rabbitmq_server.port}", f"localhost:{port}"
    )
    trusting = f"{secure}?cacertfile={tmp_path}/cert.pem"
    with pytest.raises(Unavailable, match=r"(?i)certificate"):
        declare(secure, [])
    with (
        closing(RabbitPublisher(trusting)) as sending,
        closing(RabbitInbox(trusting, ROLE, "machine:1")) as inbox,
    ):
        long = [hint(number, headers={"x-filler": "y" * 1000}) for number in range(300)]
        assert sending.publish(long) == [""] * 300
        assert inbox.take(0, 0.05) == []
        taken = inbox.take(300, 10)
        inbox.settle(taken)
        assert [*names(taken), *all_hints(inbox)] == [f"task-{number}" for number in range(300)]


# -- outages ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_killed_and_wiped_brokers_are_outlived(
    rabbitmq_server: RabbitServer,
    rabbitmq_url: str,
    publisher: RabbitPublisher,
    inbox: RabbitInbox,
) -> None:
    """Killed: what was confirmed comes again. Its disk lost: everything is declared again."""
    publisher.publish([hint(number) for number in range(4)])
    held = inbox.take(2, 10)
    with closing(RabbitConsumer(rabbitmq_url, "results.me")) as results:
        assert results.take(1, 0) == []
        rabbitmq_server.halt()
        assert inbox.take(1, 0.3) == []
        assert inbox.error
        inbox.settle(held)  # too late, and no error
        assert publisher_is_away(publisher)
        rabbitmq_server.start()
        taken: list[str] = []

        def came_again() -> bool:
            taken.extend(all_hints(inbox))
            return len(taken) >= 4

        eventually(came_again)
        assert sorted(taken) == [f"task-{number}" for number in range(4)]
        assert inbox.control_received, "who knows what was said meanwhile"
        assert not inbox.error
        assert publisher.publish([hint(5)]) == [""]

        rabbitmq_server.wipe()
        assert publisher.depth(ROLE) == 0
        result = Message("r-1", "agentq.results", "results.me", b"{}")
        assert publisher.publish([hint(6), result]) == ["", ""]
        eventually(lambda: names(inbox.take(5, 1)) == ["task-6"])
        eventually(lambda: [each.id for each in results.take(1, 1)] == ["r-1"])


def publisher_is_away(publisher: RabbitPublisher) -> bool:
    try:
        publisher.publish([hint(99)])
    except Unavailable:
        return True
    return False
