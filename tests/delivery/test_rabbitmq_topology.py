"""What agentq declares on a broker, who may use it, and what it says to a broker that differs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing

import pytest

from agentq.contracts.delivery import fitting_key
from agentq.core.errors import Conflict, Invalid, Refused, Unavailable
from agentq.delivery.rabbitmq import (
    RabbitConsumer,
    RabbitInbox,
    RabbitPublisher,
    declare,
    facts,
    user_commands,
)
from agentq.delivery.rabbitmq.connection import read_url
from tests.delivery.letters import ROLE, hint, names, stranger
from tests.servers.rabbitmq import RabbitServer


def test_declaring_says_what_and_may_be_repeated(rabbitmq_url: str) -> None:
    said = declare(rabbitmq_url, [ROLE, "review.worker:v2", ROLE])
    assert said == declare(rabbitmq_url, [ROLE, "review.worker:v2"])
    assert "exchange agentq.tasks (topic)" in said
    assert said[-2:] == [f"queue agentq.role.{ROLE}", "queue agentq.role.review.worker:v2"]
    known = facts(rabbitmq_url, [ROLE, "nobody"])
    assert known.product == "RabbitMQ"
    assert known.takes_messages
    assert known.missing == ("agentq.role.nobody",)
    assert [(queue.name, queue.messages) for queue in known.queues] == [
        ("agentq.ingest", 0), ("agentq.dead", 0), (f"agentq.role.{ROLE}", 0),
    ]  # fmt: skip


def test_a_different_declaration_is_named_and_left_alone(rabbitmq_url: str) -> None:
    with stranger(rabbitmq_url) as channel:
        channel.queue_declare(f"agentq.role.{ROLE}", durable=True, auto_delete=False)
    with pytest.raises(Conflict) as told:
        declare(rabbitmq_url, [ROLE])
    assert "x-max-priority" in str(told.value) or "x-dead-letter-exchange" in str(told.value)
    assert f"agentq.role.{ROLE}" in str(told.value)
    assert "guest:guest" not in str(told.value)


def test_a_different_exchange_too(rabbitmq_url: str) -> None:
    with stranger(rabbitmq_url) as channel:
        channel.exchange_declare("agentq.tasks", "direct", durable=True, auto_delete=False)
    with pytest.raises(Conflict, match=r"'topic' but current is 'direct'"):
        declare(rabbitmq_url, [])


@pytest.mark.parametrize(
    "url",
    ["amqp://", "http://x", "amqp://u:secret@h:port/", "amqp://u:secret@h/v?verify=no", "nonsense"],
)
def test_a_bad_address_is_an_error_without_the_password(url: str) -> None:
    with pytest.raises(Invalid) as told:
        RabbitPublisher(url)
    assert "secret" not in str(told.value)


def test_addresses_are_read_as_others_read_them() -> None:
    address = read_url("amqp://me:p%40ss@[::1]:7777/team%2Fa")
    assert (address.host, address.port, address.user) == ("::1", 7777, "me")
    assert (address.password, address.virtual_host) == ("p@ss", "team/a")
    assert "p@ss" not in repr(address) + str(address)
    assert read_url("amqp://host").virtual_host == read_url("amqp://host/").virtual_host == "/"
    secure = read_url("amqps://host?cacertfile=ca.pem")
    assert secure.port == 5671
    assert secure.tls == {"server_hostname": "host", "ca_certs": "ca.pem"}


def test_long_keys_stay_apart() -> None:
    keys = [fitting_key(f"stop.{'ä' * 200}{end}") for end in ("", "1", "2")]
    assert len(set(keys)) == 3
    assert all(len(key.encode()) <= 255 for key in keys)
    assert fitting_key("stop.a") == "stop.a"


def test_nobody_there_a_wrong_password_and_no_such_host_are_told_apart(
    rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        declare("amqp://guest:secret@127.0.0.1:1/", [])
    with pytest.raises(Refused) as told:
        declare(rabbitmq_url.replace("guest:guest", "guest:secret"), [])
    assert "secret" not in str(told.value)
    with pytest.raises(Refused, match="not found"):
        declare(rabbitmq_server.url_of("nowhere"), [])
    with pytest.raises(Refused, match="not found"):
        facts(rabbitmq_server.url_of("nowhere"))


# -- least privilege -------------------------------------------------------------------------------


@pytest.fixture
def users(rabbitmq_server: RabbitServer, rabbitmq_url: str) -> Iterator[None]:
    """Everybody that the printed commands make, made by what those commands call."""
    declare(rabbitmq_url, [ROLE, "other"])
    made = []
    for line in user_commands(rabbitmq_url, [ROLE, "other"]):
        words = shlex.split(line, comments=True)
        if not words or words[1] == "set_policy":
            continue
        module = "rabbit_auth_backend_internal"
        if words[1] == "add_user":
            arguments = [words[2], "password", "tests"]
            made.append(words[2])
        else:
            assert words[2] == "-p"
            arguments = [words[4], words[3], *words[5:], "tests"]
        listed = ", ".join('<<"' + word.replace("\\", "\\\\") + '">>' for word in arguments)
        rabbitmq_server.call(f"{module}:{words[1]}({listed})")
    yield
    for user in made:
        rabbitmq_server.call(f'rabbit_auth_backend_internal:delete_user(<<"{user}">>, <<"tests">>)')


@pytest.mark.usefixtures("users")
def test_users_may_do_their_part_and_no_more(
    rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    host = read_url(rabbitmq_url).virtual_host
    as_up, as_worker, as_coordinator = (
        rabbitmq_server.url_of(host, user, "password")
        for user in ("agentq-up", f"agentq-{ROLE}", "agentq-coordinator")
    )
    declare(as_up, [ROLE, "third"])
    with (
        closing(RabbitPublisher(as_up)) as up,
        closing(RabbitInbox(as_worker, ROLE, "w:1")) as inbox,
        closing(RabbitInbox(as_worker, "other", "w:2")) as prying,
        closing(RabbitPublisher(as_worker)) as forging,
        closing(RabbitConsumer(as_coordinator, "results.coordinator")) as results,
    ):
        assert up.publish([hint(1), hint(2, "other")]) == ["", ""]
        hints = inbox.take(2, 10)
        assert names(hints) == ["task-1"]
        inbox.settle(hints)
        assert prying.take(1, 0.2) == []
        assert "refused" in prying.trouble
        with pytest.raises(Unavailable, match="refused user"):
            forging.publish([hint(3)])
        up.ensure_results("results.coordinator")
        assert results.take(1, 0.1) == []
        assert not results.trouble
    with pytest.raises(Refused):
        declare(as_worker, [])
