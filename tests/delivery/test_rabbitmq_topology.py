"""What agentq declares on a broker, who may use it, and what it says to a broker that differs."""

from __future__ import annotations

import re
import shlex
from contextlib import closing

import amqp
import pytest

from agentq.contracts.delivery import Message, fitting_key
from agentq.core.errors import Conflict, Invalid, Refused, Unavailable
from agentq.delivery.rabbitmq import (
    RabbitConsumer,
    RabbitInbox,
    RabbitPublisher,
    dead_messages,
    declare,
    facts,
    user_commands,
)
from agentq.delivery.rabbitmq.connection import read_url
from tests.delivery.foreign_messages import ROLE, hint, names, publish_raw, stranger
from tests.delivery.users import made_by
from tests.eventually import eventually
from tests.servers.rabbitmq import RabbitServer

pytestmark = pytest.mark.long


def test_declaring_says_what_and_may_be_repeated(rabbitmq_url: str) -> None:
    said = declare(rabbitmq_url, [ROLE, "review.worker:v2", ROLE])
    assert "exchange agentq.tasks (topic)" in said and "queue agentq.dead" in said
    assert said[-5:] == [
        f"queue agentq.role.{ROLE}", f"exchange agentq.control.{ROLE} (direct)",
        "queue agentq.role.review.worker:v2", "exchange agentq.control.review.worker:v2 (direct)",
        "queue results.coordinator",
    ]  # fmt: skip
    # Only what was not there is news.
    assert declare(rabbitmq_url, [ROLE, "review.worker:v2"]) == []
    assert declare(rabbitmq_url, [ROLE, "another"]) == [
        "queue agentq.role.another", "exchange agentq.control.another (direct)",
    ]  # fmt: skip
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
        declare(rabbitmq_url, [ROLE, "another"])
    assert "rabbitmqctl delete_queue" in told.value.remedy
    # Nothing else was made before that was seen.
    known = facts(rabbitmq_url, ["another"])
    assert known.missing == ("agentq.ingest", "agentq.dead", "agentq.role.another")
    assert "x-max-priority" in str(told.value) or "x-dead-letter-exchange" in str(told.value)
    assert f"agentq.role.{ROLE}" in str(told.value)
    assert "guest:guest" not in str(told.value)


def test_a_different_exchange_too(rabbitmq_url: str) -> None:
    with stranger(rabbitmq_url) as channel:
        channel.exchange_declare("agentq.tasks", "direct", durable=True, auto_delete=False)
    with pytest.raises(Conflict, match=r"'topic' but current is 'direct'") as told:
        declare(rabbitmq_url, [])
    assert "delete_queue" not in told.value.remedy
    assert facts(rabbitmq_url).missing == ("agentq.ingest", "agentq.dead")


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


@pytest.mark.usefixtures("users")
def test_users_may_do_their_part_and_no_more(
    rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    host = read_url(rabbitmq_url).virtual_host
    as_up, as_worker, as_coordinator = (
        rabbitmq_server.url_of(host, user, "password")
        for user in ("agentq-up", f"agentq-role-{ROLE}", "agentq-coordinator")
    )
    declare(as_up, [ROLE, "third"])
    with closing(RabbitConsumer(as_coordinator, "results.coordinator")) as results:
        # Before anything was ever sent to it.
        assert results.take(1, 0.1) == []
        assert not results.error
    with (
        closing(RabbitPublisher(as_up)) as up,
        closing(RabbitInbox(as_worker, ROLE, "w:1")) as inbox,
        closing(RabbitInbox(as_worker, "other", "w:2")) as prying,
        closing(RabbitPublisher(as_worker)) as forging,
    ):
        assert up.publish([hint(1), hint(2, "other")]) == ["", ""]
        hints = inbox.take(2, 10)
        assert names(hints) == ["task-1"]
        inbox.settle(hints)
        assert prying.take(1, 0.2) == []
        assert "refused" in prying.error
        (problem,) = forging.publish([hint(3)])
        assert "refused user" in problem
    with pytest.raises(Refused):
        declare(as_worker, [])


@pytest.mark.usefixtures("users")
def test_nobody_hears_whom_another_role_is_to_stop(
    rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    host = read_url(rabbitmq_url).virtual_host
    as_up, as_worker, as_other = (
        rabbitmq_server.url_of(host, user, "password")
        for user in ("agentq-up", f"agentq-role-{ROLE}", "agentq-role-other")
    )
    words = [
        Message(f"s-{role}", f"agentq.control.{role}", "stop.w:1", b"{}")
        for role in (ROLE, "other")
    ]
    with (
        closing(RabbitPublisher(as_up)) as up,
        closing(RabbitInbox(as_worker, ROLE, "w:1")) as inbox,
    ):
        inbox.take(0, 0.05)
        # The word for the other role's holder, of the same name even, comes to nobody.
        assert [bool(problem) for problem in up.publish(words)] == [False, True]
        assert inbox.take(0, 10) == [] and inbox.control_received
    for key in ("stop.w:1", "stop.#", "#", ""):
        for exchange in (f"agentq.control.{ROLE}", "agentq.tasks", "agentq.results"):
            with stranger(as_other) as channel:
                queue = channel.queue_declare("", exclusive=True)[0]
                with pytest.raises(amqp.exceptions.AccessRefused):
                    channel.queue_bind(queue, exchange, key)
    # Nor by way of an exchange that they may write to.
    with stranger(as_other) as channel, pytest.raises(amqp.exceptions.AccessRefused):
        channel.exchange_bind("agentq.status", f"agentq.control.{ROLE}", "stop.w:1")


@pytest.mark.parametrize(
    ("role", "other"), [("a", "a.b"), ("a.b", "aXb"), ("a", "a-b"), ("b", "a.b"), ("A", "a")]
)
def test_roles_with_names_alike_are_told_apart(rabbitmq_url: str, role: str, other: str) -> None:
    lines = user_commands(rabbitmq_url, [role])
    (mine,) = [
        shlex.split(line) for line in lines if "set_permissions" in line and "-role-" in line
    ]
    assert re.search(mine[-1], f"agentq.control.{role}")
    assert not re.search(mine[-1], f"agentq.control.{other}")


def test_rights_from_before_cost_the_words_and_not_the_hints(
    rabbitmq_server: RabbitServer, rabbitmq_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    declare(rabbitmq_url, [ROLE])
    before = [
        line.replace(r"agentq\.control\." + ROLE, r"agentq\.control")
        for line in user_commands(rabbitmq_url, [ROLE])
    ]
    host = read_url(rabbitmq_url).virtual_host
    with made_by(rabbitmq_server, before):
        as_worker = rabbitmq_server.url_of(host, f"agentq-role-{ROLE}", "password")
        with (
            closing(RabbitPublisher(rabbitmq_url)) as up,
            closing(RabbitInbox(as_worker, ROLE, "w:1")) as inbox,
        ):
            assert up.publish([hint(1)]) == [""]
            assert names(inbox.take(1, 10)) == ["task-1"] and not inbox.error
    assert "hears late whom to stop" in caplog.text


def test_no_two_users_have_one_name(rabbitmq_url: str) -> None:
    # Roles may be called as the parts of agentq are.
    lines = user_commands(rabbitmq_url, ["up", "coordinator", "role-up", "results"])
    made = [line.split()[-1] for line in lines if " add_user " in line]
    assert len(made) == len(set(made)) == 6
    rights = [shlex.split(line)[4] for line in lines if " set_permissions " in line]
    assert rights == made


@pytest.mark.usefixtures("users")
def test_a_coordinator_that_cannot_read_an_outcome_leaves_a_trace(
    rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    host = read_url(rabbitmq_url).virtual_host
    as_coordinator = rabbitmq_server.url_of(host, "agentq-coordinator", "password")
    publish_raw(rabbitmq_url, "results.coordinator", b"x" * 200_000)
    publish_raw(rabbitmq_url, "results.coordinator", b"no outcome")
    with closing(RabbitConsumer(as_coordinator, "results.coordinator")) as results:
        (junk,) = results.take(2, 10) or results.take(2, 10)
        results.reject(junk.tag, "it is no outcome")
    eventually(lambda: len(dead_messages(rabbitmq_url)) == 2)
    assert {(each.size, each.queue) for each in dead_messages(rabbitmq_url)} == {
        (10, "results.coordinator"), (200_000, "results.coordinator"),
    }  # fmt: skip
