"""Dead letters: who is believed about where a message was, and where it may be sent again."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import amqp
import pytest
from amqp.exceptions import AccessRefused, PreconditionFailed

from agentq.contracts.delivery import (
    DEAD,
    INGEST,
    REJECTED,
    RESULTS,
    STATUS,
    TASKS,
    DeadMessage,
    Message,
    role_queue,
)
from agentq.core.errors import Refused
from agentq.delivery.rabbitmq import (
    RabbitConsumer,
    RabbitInbox,
    RabbitMessage,
    RabbitPublisher,
    dead_letters,
    dead_messages,
    declare,
    requeue,
)
from agentq.delivery.rabbitmq.connection import read_url
from tests.delivery.foreign_messages import ROLE, stranger
from tests.eventually import eventually
from tests.servers.rabbitmq import RabbitServer

WORKER = f"agentq-role-{ROLE}"
OTHER = "other"


@pytest.fixture
def publisher(rabbitmq_url: str) -> Iterator[RabbitPublisher]:
    declare(rabbitmq_url, [ROLE, OTHER])
    with closing(RabbitPublisher(rabbitmq_url)) as made:
        yield made


@pytest.fixture
def worker_url(rabbitmq_server: RabbitServer, rabbitmq_url: str, users: None) -> str:
    """The broker as a worker of one role sees it."""
    host = read_url(rabbitmq_url).virtual_host
    return rabbitmq_server.url_of(host, WORKER, "password")


def send(
    url: str,
    exchange: str,
    key: str,
    body: bytes = b"{}",
    headers: Mapping[str, Any] | None = None,
    **properties: Any,
) -> None:
    """As a stranger who writes what he likes; raises if the broker will not have it."""
    with stranger(url) as channel:
        content = amqp.Message(body, application_headers=dict(headers or {}), **properties)
        channel.basic_publish_confirm(content, exchange, key)


def only_dead(url: str) -> DeadMessage:
    eventually(lambda: len(dead_messages(url)) == 1)
    return dead_messages(url)[0]


def reject_first(url: str, queue: str, reason: str) -> None:
    with closing(RabbitConsumer(url, queue)) as reader:
        (message,) = reader.take(1, 10)
        reader.reject(message.tag, reason)


def taken(url: str, queue: str) -> list[RabbitMessage]:
    with closing(RabbitConsumer(url, queue)) as reader:
        messages = reader.take(10, 0.5)
        reader.ack(each.tag for each in messages)
        return messages


@pytest.mark.usefixtures("publisher")
def test_a_report_goes_back_as_it_came(rabbitmq_url: str) -> None:
    identity = "i" * 200
    send(rabbitmq_url, STATUS, ROLE, b"{ no json", message_id=identity, reply_to="answers",
         user_id="guest")  # fmt: skip
    reject_first(rabbitmq_url, INGEST, "it is no JSON")
    letter = only_dead(rabbitmq_url)
    assert (letter.reason, letter.queue, letter.routing_key) == ("it is no JSON", INGEST, ROLE)
    assert (letter.certain, letter.stuck, letter.user) == (True, "", "guest")
    requeue(rabbitmq_url, [letter.key])
    (again,) = taken(rabbitmq_url, INGEST)
    assert (again.id, again.body, again.routing_key) == (identity, b"{ no json", ROLE)
    assert again.reply_to == "answers"
    assert dead_messages(rabbitmq_url) == []


@pytest.mark.parametrize(
    ("exchange", "key", "queue"),
    [(TASKS, ROLE, role_queue(ROLE)), (RESULTS, "results.coordinator", "results.coordinator")],
)
@pytest.mark.parametrize("copied", [True, False])
def test_hints_and_outcomes_go_back_too(
    rabbitmq_url: str, publisher: RabbitPublisher, exchange: str, key: str, queue: str, copied: bool
) -> None:
    assert publisher.publish([Message("m-1", exchange, key, b"junk")]) == [""]
    if copied:
        reject_first(rabbitmq_url, queue, "it is junk")
    else:
        with stranger(rabbitmq_url) as channel:
            channel.basic_reject(channel.basic_get(queue).delivery_tag, requeue=False)
    letter = only_dead(rabbitmq_url)
    assert letter.certain and letter.queue == queue
    requeue(rabbitmq_url, [letter.key])
    (again,) = taken(rabbitmq_url, queue)
    assert (again.id, again.body, again.routing_key) == ("m-1", b"junk", key)


FORGERIES: dict[str, Mapping[str, Any]] = {
    "an outcome": {"x-agentq-reason": "?", "x-agentq-queue": "results.coordinator",
                   "x-agentq-routing-key": "results.coordinator"},
    "another role's report": {"x-agentq-reason": "?", "x-agentq-queue": INGEST,
                              "x-agentq-exchange": STATUS, "x-agentq-routing-key": OTHER},
    "another role's hint": {"x-agentq-reason": "?", "x-agentq-queue": role_queue(OTHER),
                            "x-agentq-exchange": TASKS, "x-agentq-routing-key": OTHER},
    "the broker's word": {
        "x-agentq-reason": "?", "x-first-death-reason": "rejected",
        "x-first-death-queue": "results.coordinator",
        "x-death": [{"queue": "results.coordinator", "reason": "rejected", "count": 1,
                     "exchange": RESULTS, "routing-keys": ["results.coordinator"]}],
    },
}  # fmt: skip


@pytest.mark.parametrize("user", ["", WORKER])
@pytest.mark.parametrize("headers", FORGERIES.values(), ids=FORGERIES)
def test_what_a_worker_says_of_a_dead_letter_is_not_believed(
    rabbitmq_url: str, worker_url: str, headers: Mapping[str, Any], user: str
) -> None:
    # Given a worker who writes to the dead letters that his message was elsewhere,
    signed = {"user_id": user} if user else {}
    send(worker_url, DEAD, "results.coordinator", b'{"forged": 1}', headers, **signed)
    # then a person sees who it was, as far as the broker knows,
    letter = only_dead(rabbitmq_url)
    assert not letter.certain
    assert letter.user == user
    assert (user or "unknown") in letter.stuck
    # and cannot be brought to send it on with greater rights.
    with pytest.raises(Refused, match="cannot be sent again"):
        requeue(rabbitmq_url, [letter.key])
    with stranger(rabbitmq_url) as channel:
        for queue in (INGEST, role_queue(OTHER), "results.coordinator"):
            assert channel.queue_declare(queue, passive=True).message_count == 0
    assert len(dead_messages(rabbitmq_url)) == 1


def test_nobody_can_pass_for_agentq_or_the_broker(rabbitmq_url: str, worker_url: str) -> None:
    reason = {"x-agentq-reason": "?", "x-first-death-reason": "rejected"}
    with pytest.raises(PreconditionFailed, match="user_id"):
        send(worker_url, DEAD, "", headers=reason, user_id="agentq-up")
    with pytest.raises(AccessRefused):
        send(worker_url, REJECTED, OTHER, headers=reason)
    with stranger(worker_url) as channel, pytest.raises(AccessRefused):
        channel.queue_declare("", exclusive=True, arguments={"x-dead-letter-exchange": REJECTED})
    assert dead_messages(rabbitmq_url) == []


def test_a_report_that_brings_a_record_of_its_own_speaks_for_its_sender_only(
    rabbitmq_url: str, worker_url: str
) -> None:
    # Given a report with a forged record of where it has been,
    death = {"queue": INGEST, "reason": "rejected", "count": 1, "exchange": STATUS}
    headers = {
        "x-death": [{**death, "routing-keys": [OTHER]}], "x-first-death-reason": "rejected",
        "x-first-death-queue": "results.coordinator", "x-agentq-routing-key": OTHER,
    }  # fmt: skip
    send(worker_url, STATUS, ROLE, headers=headers)
    # when its reader refuses it and the broker moves it,
    with stranger(rabbitmq_url) as channel:
        channel.basic_reject(channel.basic_get(INGEST).delivery_tag, requeue=False)
    # then it goes back as what its sender was allowed to send.
    letter = only_dead(rabbitmq_url)
    assert (letter.certain, letter.queue, letter.routing_key) == (True, INGEST, ROLE)
    requeue(rabbitmq_url, [letter.key])
    assert [each.routing_key for each in taken(rabbitmq_url, INGEST)] == [ROLE]


def test_a_worker_s_own_refusal_is_shown_with_its_name(rabbitmq_url: str, worker_url: str) -> None:
    send(rabbitmq_url, TASKS, ROLE, b"no hint")
    with closing(RabbitInbox(worker_url, ROLE, "w:1")) as inbox:
        assert inbox.take(1, 0.5) == []
        assert inbox.unreadable == 1
    letter = only_dead(rabbitmq_url)
    assert "not a task envelope" in letter.reason
    assert (letter.user, letter.certain) == (WORKER, False)


def test_who_is_known_to_the_broker_by_another_name_still_refuses(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    # Given a reader whose name the broker will not have (tokens and certificates do that),
    publisher.publish([Message("m-1", STATUS, ROLE, b"junk")])
    with closing(RabbitConsumer(rabbitmq_url, INGEST)) as reader:
        (message,) = reader.take(1, 10)
        pull_consumer = reader._pull_consumer
        pull_consumer._address = read_url(rabbitmq_url.replace("guest:", "other:"))
        reader.reject(message.tag, "it is junk")
    # then the broker moves the message itself.
    letter = only_dead(rabbitmq_url)
    assert letter.certain and "its reader refused it" in letter.reason


def test_one_name_is_not_for_two_senders(rabbitmq_url: str, worker_url: str) -> None:
    send(rabbitmq_url, STATUS, ROLE, b"junk", message_id="m")
    reject_first(rabbitmq_url, INGEST, "it is junk")
    genuine = only_dead(rabbitmq_url)
    send(worker_url, DEAD, "", b"junk", FORGERIES["another role's report"], message_id="m")
    assert len({each.key for each in dead_messages(rabbitmq_url)}) == 2
    requeue(rabbitmq_url, [genuine.key])
    assert len(taken(rabbitmq_url, INGEST)) == 1


def test_looking_for_one_does_not_hold_all_of_them(
    rabbitmq_url: str, publisher: RabbitPublisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {"x-agentq-reason": "?", "x-agentq-queue": INGEST}
    body = b"x" * 100_000
    publisher.publish(
        [Message(f"m-{number}", DEAD, "", body, headers=headers) for number in range(100)]
    )
    wanted = dead_messages(rabbitmq_url)[-1]
    assert (wanted.id, wanted.size) == ("m-99", 100_000)
    monkeypatch.setattr(dead_letters, "_AT_ONCE", 10)
    tracemalloc.start()
    try:
        assert dead_messages(rabbitmq_url, begins=wanted.key[:8]) == [wanted]
        assert len(dead_messages(rabbitmq_url)) == 100
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 * len(body)
