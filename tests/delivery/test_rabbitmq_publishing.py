"""Publishing: an answer for each message, and none before the broker has it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agentq.contracts.delivery import Message
from agentq.core.errors import Invalid, Unavailable
from agentq.delivery.rabbitmq import (
    RabbitConsumer,
    RabbitInbox,
    RabbitMessage,
    RabbitPublisher,
    confirm_channel,
    declare,
    facts,
)
from agentq.delivery.rabbitmq.connection import read_url
from tests.delivery.foreign_messages import ROLE, all_hints, hint, names, stranger
from tests.eventually import eventually
from tests.servers.rabbitmq import RabbitServer

#: Somebody who may send hints and nothing else, and declare the queue of one role.
POOR = "poor"


@pytest.fixture
def publisher(rabbitmq_url: str) -> Iterator[RabbitPublisher]:
    made = RabbitPublisher(rabbitmq_url)
    yield made
    made.close()


def test_thousands_arrive_each_once(rabbitmq_url: str, publisher: RabbitPublisher) -> None:
    assert publisher.publish([]) == []
    assert publisher.publish([hint(number) for number in range(3_000)]) == [""] * 3_000
    assert publisher.depth(ROLE) == 3_000
    with closing(RabbitInbox(rabbitmq_url, ROLE, "w:1")) as inbox:
        taken = all_hints(inbox)
    assert taken == [f"task-{number}" for number in range(3_000)]
    assert publisher.depth(ROLE) == 0


def test_a_role_nobody_declared_gets_its_queue(publisher: RabbitPublisher) -> None:
    assert publisher.depth("new-role") == 0
    assert publisher.publish([hint(1, "new-role")]) == [""]
    assert publisher.depth("new-role") == 1


def test_unroutable_is_an_error_and_not_silence(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    lost = Message("m-2", f"agentq.control.{ROLE}", "stop.nobody", b"{}")
    quiet = Message("m-3", f"agentq.control.{ROLE}", "stop.nobody", b"{}", mandatory=False)
    said = publisher.publish([hint(1), lost, quiet, hint(4)])
    assert [bool(problem) for problem in said] == [False, True, False, False]
    assert "no queue takes it" in said[1]
    assert "stop.nobody" in said[1]
    with stranger(rabbitmq_url) as channel:
        channel.queue_delete(f"agentq.role.{ROLE}")
    assert "no queue takes it" in publisher.publish([hint(5)])[0]
    assert publisher.publish([hint(5)]) == [""], "the queue was declared again"


def test_what_cannot_be_sent_is_told_and_the_rest_goes(publisher: RabbitPublisher) -> None:
    huge = Message("m-1", "agentq.tasks", ROLE, b"x" * 200_000)
    odd = Message("m-2", "agentq.tasks", "#", b"{}")
    long = Message("m" * 300, "agentq.tasks", ROLE, b"{}")
    said = publisher.publish([huge, odd, hint(3), long])
    assert "200000 bytes" in said[0]
    assert "role" in said[1]
    assert said[2] == ""
    assert "id" in said[3]
    assert publisher.depth(ROLE) == 1


def test_priority_decides_the_order(rabbitmq_url: str, publisher: RabbitPublisher) -> None:
    publisher.publish([hint(number, priority=number) for number in (1, 9, 5, 0)])
    with closing(RabbitInbox(rabbitmq_url, ROLE, "w:1")) as inbox:
        assert all_hints(inbox) == ["task-9", "task-5", "task-1", "task-0"]


def test_an_expired_hint_is_gone(publisher: RabbitPublisher) -> None:
    ten_years = 10 * 366 * 24 * 3600 * 1000
    assert publisher.publish([hint(1, expires_ms=1), hint(2, expires_ms=ten_years)]) == ["", ""]
    eventually(lambda: publisher.depth(ROLE) == 1)


def test_a_body_of_many_frames_and_headers_arrive_whole(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    body = os.urandom(131_072)
    headers: dict[str, str | int] = {"x-text": "grüße", "x-number": -5}
    sent = Message("m-1", "agentq.status", ROLE, body, headers=headers)
    assert publisher.publish([sent, Message("m-2", "agentq.status", ROLE, b"")]) == ["", ""]
    with closing(RabbitConsumer(rabbitmq_url, "agentq.ingest")) as consumer:
        received: list[RabbitMessage] = []
        while len(received) < 2:
            received += consumer.take(5, 10)
        first, second = received
        assert (first.id, first.body, dict(first.headers)) == ("m-1", body, headers)
        assert (first.routing_key, first.redelivered) == (ROLE, False)
        assert (second.id, second.body) == ("m-2", b"")
        consumer.ack(each.tag for each in received)


def test_results_go_to_their_coordinator(rabbitmq_url: str, publisher: RabbitPublisher) -> None:
    publisher.ensure_results("results.me")
    publisher.ensure_results("results.me")
    sent = [Message(f"r-{to}", "agentq.results", f"results.{to}", b"{}") for to in ("me", "you")]
    assert publisher.publish(sent) == ["", ""]
    with closing(RabbitConsumer(rabbitmq_url, "results.me")) as mine:
        [result] = mine.take(5, 10)
        assert result.id == "r-me"
    for bad in ("agentq.ingest", "results.", "results.#", "results.*.x"):
        with pytest.raises(Invalid):
            publisher.ensure_results(bad)
        assert publisher.publish([Message("r", "agentq.results", bad, b"{}")]) != [""]


def test_a_line_that_broke_while_idle_is_not_noticed(
    rabbitmq_server: RabbitServer, publisher: RabbitPublisher
) -> None:
    publisher.publish([hint(1)])
    hang_up_on_all(rabbitmq_server)
    assert publisher.publish([hint(2)]) == [""]
    assert publisher.connections == 2


def test_a_broker_that_does_not_answer(
    rabbitmq_server: RabbitServer,
    rabbitmq_url: str,
    publisher: RabbitPublisher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped, as by a cut cable: an error within the time limit, and afterwards all is well."""
    publisher.publish([hint(1)])
    with closing(RabbitInbox(rabbitmq_url, ROLE, "w:1")) as inbox:
        assert names(inbox.take(1, 10)) == ["task-1"]
        monkeypatch.setattr(confirm_channel, "ANSWER_SECONDS", 0.5)
        os.kill(rabbitmq_server.pid, signal.SIGSTOP)
        try:
            eventually(lambda: _all_stopped(rabbitmq_server.pid))
            with pytest.raises(Unavailable, match="not confirmed 2 messages"):
                publisher.publish([hint(2), hint(3)])
            assert inbox.take(1, 0.2) == []
        finally:
            os.kill(rabbitmq_server.pid, signal.SIGCONT)
        monkeypatch.undo()
        assert publisher.publish([hint(4)]) == [""]
        taken = names(inbox.take(1, 10)) + all_hints(inbox)
        assert set(taken) >= {"task-4"}, "the others may have arrived or not: nobody was told"


def _all_stopped(pid: int) -> bool:
    """Threads stop one by one, some a little later."""
    states = [each.read_text().rsplit(")", 1)[1].split()[0] for each in
              Path(f"/proc/{pid}/task").glob("*/stat")]  # fmt: skip
    return set(states) == {"T"}


def test_an_alarm_is_told(rabbitmq_server: RabbitServer, publisher: RabbitPublisher) -> None:
    publisher.publish([hint(1)])
    assert facts(rabbitmq_server.url).takes_messages
    rabbitmq_server.call("rabbit_alarm:set_alarm({{resource_limit, memory, node()}, []})")
    try:
        # Its connections hear of it one by one.
        assert "short of memory or disk" in eventually(lambda: _refusal(publisher))
        assert not facts(rabbitmq_server.url).takes_messages
    finally:
        rabbitmq_server.call("rabbit_alarm:clear_alarm({resource_limit, memory, node()})")
    eventually(lambda: _sends(publisher))


def _refusal(publisher: RabbitPublisher) -> str:
    try:
        publisher.publish([hint(2)])
    except Unavailable as error:
        return error.cause
    return ""


def _sends(publisher: RabbitPublisher) -> bool:
    try:
        return publisher.publish([hint(3)]) == [""]
    except Unavailable:
        return False


def test_a_declaration_that_differs_concerns_its_messages_only(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    declare(rabbitmq_url, [])
    with stranger(rabbitmq_url) as channel:
        channel.queue_declare("agentq.role.odd", durable=True, auto_delete=False)
    said = publisher.publish([hint(1), hint(2, "odd"), hint(3)])
    assert [bool(problem) for problem in said] == [False, True, False]
    assert "another way" in said[1]


def test_a_queue_that_somebody_locked_concerns_its_messages_only(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    # Given a role whose queue a stranger has for himself,
    declare(rabbitmq_url, [ROLE])
    with stranger(rabbitmq_url) as channel:
        channel.queue_declare("agentq.role.lock", exclusive=True)
        # when hints for several roles leave together, then those of the others arrive,
        said = publisher.publish([hint(1), hint(2, "lock"), hint(3), hint(4, "other")])
        assert [bool(problem) for problem in said] == [False, True, False, False]
        assert "RESOURCE_LOCKED" in said[1] and "exclusive" in said[1]
        # and one who asks how many wait there is not stopped on the way to the next role.
        assert [publisher.depth(role) for role in ("lock", ROLE, "other")] == [0, 2, 1]
        assert publisher.connections == 1
    # When the stranger has gone, then it goes on by itself.
    eventually(lambda: publisher.publish([hint(2, "lock")]) == [""])


@pytest.fixture
def poor_publisher(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Iterator[RabbitPublisher]:
    host = read_url(rabbitmq_url).virtual_host
    rights = "^agentq.role.mine$", "^agentq.(tasks|rejected|role.mine)$", "^agentq.*$"
    words = ", ".join(f'<<"{word}">>' for word in (POOR, host, *rights, "the test"))
    call = rabbitmq_server.call
    call(f'rabbit_auth_backend_internal:add_user(<<"{POOR}">>, <<"secret">>, <<"the test">>)')
    call(f"rabbit_auth_backend_internal:set_permissions({words})")
    made = RabbitPublisher(rabbitmq_url.replace("guest:guest@", f"{POOR}:secret@"))
    yield made
    made.close()
    call(f'rabbit_auth_backend_internal:delete_user(<<"{POOR}">>, <<"the test">>)')


def test_what_this_user_may_not_do_concerns_its_messages_only(
    rabbitmq_url: str, poor_publisher: RabbitPublisher
) -> None:
    # Given a user who may declare the queue of one role, and send hints only,
    declare(rabbitmq_url, ["there"])
    forbidden = Message("m", "agentq.status", "mine", b"{}")
    # when all kinds of messages leave together,
    said = poor_publisher.publish(
        [hint(1, "there"), forbidden, hint(2, "nowhere"), hint(3, "mine"), forbidden]
    )
    # then each has its own answer.
    assert [bool(problem) for problem in said] == [False, True, True, False, True]
    assert "ACCESS_REFUSED" in said[1] and "agentq.status" in said[4]
    assert "no queue takes it" in said[2]
    # What was sent before the broker said no is sent again: hints may come twice.
    assert poor_publisher.depth("there") in (1, 2)
    assert poor_publisher.depth("mine") == 1
    assert poor_publisher.connections == 1


def test_an_exchange_that_was_deleted_is_declared_again(
    rabbitmq_url: str, publisher: RabbitPublisher
) -> None:
    publisher.publish([hint(1)])
    with stranger(rabbitmq_url) as channel:
        channel.exchange_delete("agentq.status")
    quiet = Message("m-1", "agentq.status", ROLE, b"{}", mandatory=False)
    unknown = Message("m-2", "nobody.knows", "it", b"{}")
    said = publisher.publish([quiet, hint(2), unknown])
    assert [bool(problem) for problem in said] == [False, False, True]
    assert "nobody.knows" in said[2]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("amqp://a..b/", "between dots"),
        (f"amqp://{'x' * 64}.example/", "63 characters"),
        ("amqps://user:geheim@.b/", "between dots"),
        ("amqp://user\udcff:geheim@host/", "no text"),
        ("amqp://ho\x00st/", "cannot be shown"),
    ],
)
def test_an_address_that_no_resolver_takes(url: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as refused:
        RabbitPublisher(url)
    assert "geheim" not in str(refused.value)


def hang_up_on_all(server: RabbitServer) -> None:
    """Close every connection of the broker, from its side."""
    server.call(
        '[rabbit_networking:close_connection(Each, "the test")'
        " || Each <- rabbit_networking:connections()]"
    )
