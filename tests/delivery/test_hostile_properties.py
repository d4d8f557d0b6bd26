"""Properties of messages are anybody's words: none may stop a reader, or lose a good one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import amqp
import pytest
from amqp.serialization import GenericContent
from hypothesis import example, given
from hypothesis import strategies as st

from agentq.contracts.delivery import Message
from agentq.delivery.rabbitmq import (
    RabbitConsumer,
    RabbitInbox,
    RabbitPublisher,
    dead_messages,
    declare,
)
from agentq.delivery.rabbitmq.wire import Delivery
from tests.delivery.foreign_messages import ROLE, all_hints, hint, publish_raw
from tests.eventually import eventually

INGEST, QUEUE = "agentq.ingest", f"agentq.role.{ROLE}"
FIXED = ("content_type", "correlation_id", "reply_to", "message_id", "type", "user_id", "app_id")


def header_of(**properties: Any) -> bytes:
    """A content header as py-amqp writes one."""
    written: bytes = amqp.Message(**properties)._serialize_properties()
    return struct.pack(">HHQ", 60, 0, 5) + written


def properties_of(header: bytes) -> dict[str, Any]:
    return Delivery(1, False, "x", "k", header).properties()


def with_table(fields: bytes, **properties: Any) -> bytes:
    """A header with these bytes for its table of headers, and these properties besides."""
    empty = header_of(application_headers={}, **properties)
    at = 14 + (1 + len(properties["content_type"]) if "content_type" in properties else 0)
    assert empty[at : at + 4] == bytes(4)
    return empty[:at] + struct.pack(">I", len(fields)) + fields + empty[at + 4 :]


def field(name: bytes, letter: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + letter + value


def encodes(value: object) -> bool:
    """Whether every text within can be written again."""
    if isinstance(value, str):
        return value.encode().decode() == value
    if isinstance(value, dict):
        return all(encodes(key) and encodes(inner) for key, inner in value.items())
    return all(map(encodes, value)) if isinstance(value, list) else True


# -- any bytes -------------------------------------------------------------------------------------

WORDS = st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
VALUES = st.recursive(
    st.tuples(
        st.sampled_from([bytes((n,)) for n in b"tbBsUuIilLfdTDVSxFA?"]), st.binary(max_size=30)
    ).map(b"".join)
    | WORDS.map(lambda word: b"S" + struct.pack(">I", len(word)) + word),
    lambda inner: st.lists(inner, max_size=4).map(
        lambda values: b"A" + struct.pack(">I", sum(map(len, values))) + b"".join(values)
    ),
    max_leaves=10,
)
TABLES = st.lists(
    st.tuples(WORDS, VALUES).map(lambda each: bytes((len(each[0]),)) + each[0] + each[1])
).map(b"".join)


@given(st.binary(max_size=300))
def test_no_bytes_whatever_raise(header: bytes) -> None:
    assert encodes(properties_of(header))
    assert encodes(properties_of(struct.pack(">HHQ", 60, 0, 5) + header))


@given(TABLES, st.text(max_size=60).filter(lambda text: len(text.encode()) < 256))
@example(field(b"at", b"T", struct.pack(">Q", 1_700_000_000 * 10**9)), "answers")
@example(field(b"at", b"T", struct.pack(">Q", 1_700_000_000 * 1000)), "answers")
@example(b"".join(b"\x01aA" + struct.pack(">I", 2**31) for _ in range(3000)), "answers")
def test_odd_headers_lose_no_other_property(table: bytes, reply_to: str) -> None:
    found = properties_of(with_table(table, content_type="a/b", reply_to=reply_to, message_id="m"))
    assert (found["reply_to"], found["message_id"], found["content_type"]) == (reply_to, "m", "a/b")
    assert encodes(found["application_headers"])


@given(st.dictionaries(st.sampled_from(FIXED), st.binary(max_size=255)))
def test_what_is_no_text_is_empty_and_the_rest_stays(words: dict[str, bytes]) -> None:
    found = properties_of(header_of(priority=3, **words))
    assert found["priority"] == 3
    for name, word in words.items():
        try:
            expected = word.decode()
        except UnicodeDecodeError:
            expected = ""
        assert found[name] == expected


def test_tables_within_tables_without_end() -> None:
    value = b""
    for _ in range(20_000):
        value = b"A" + struct.pack(">I", len(value)) + value
    found = properties_of(with_table(field(b"deep", b"", value), reply_to="answers"))
    assert found["reply_to"] == "answers"


# -- the same as py-amqp, where that can read ------------------------------------------------------

GOOD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=20), GOOD, max_size=5), st.text(max_size=30))
def test_good_properties_are_read_as_they_were_written(headers: Any, text: str) -> None:
    header = header_of(application_headers=headers, message_id=text, delivery_mode=2, timestamp=7)
    theirs: GenericContent = amqp.Message()
    theirs.inbound_header(header)
    assert properties_of(header) == {**theirs.properties, "application_headers": headers}


# -- through a broker ------------------------------------------------------------------------------


@contextmanager
def prepared(url: str) -> Iterator[RabbitPublisher]:
    declare(url, [ROLE])
    with closing(RabbitPublisher(url)) as publisher:
        yield publisher


@pytest.mark.parametrize("name", ["message_id", "reply_to", "correlation_id"])
def test_half_a_character_comes_as_nothing(rabbitmq_url: str, name: str) -> None:
    with (
        prepared(rabbitmq_url),
        closing(RabbitConsumer(rabbitmq_url, INGEST)) as consumer,
    ):
        good = {"message_id": "m", "reply_to": "answers", "correlation_id": "c"}
        publish_raw(rabbitmq_url, INGEST, b"{}", {}, **{**good, name: "x\ud800"})
        (came,) = consumer.take(1, 10)
        found = {"message_id": came.id, "reply_to": came.reply_to,
                 "correlation_id": came.correlation_id}  # fmt: skip
        assert found == {**good, name: ""}
        # and it can be set aside, whatever it is called.
        consumer.reject(came.tag, "it makes no sense")
        assert not consumer.error
        eventually(lambda: [each.body for each in dead_messages(rabbitmq_url)] == [b"{}"])


def test_what_cannot_be_written_is_not_sent_and_says_so(rabbitmq_url: str) -> None:
    with prepared(rabbitmq_url) as publisher:
        bad = "x\ud800"
        said = publisher.publish(
            [
                Message(bad, "", INGEST, b"1"),
                Message("2", "", INGEST, b"2", reply_to=bad),
                Message("3", "", INGEST, b"3", headers={"x": bad}),
                Message("4", "", INGEST, b"4", headers={bad: "x"}),
                Message("5", "", INGEST, b"5"),
            ]
        )
        assert ["not text" in problem for problem in said] == [True] * 4 + [False]
        assert said[4] == ""


def test_a_hint_that_names_no_task_harms_no_worker(rabbitmq_url: str) -> None:
    """No ledger could even look for such a name; and the next worker would be given it again."""
    names = ["a\\u0000b", "..", "a/b", "a b", "\\u00e9", "x" * 129]
    with (
        prepared(rabbitmq_url) as publisher,
        closing(RabbitInbox(rabbitmq_url, ROLE, "machine:1")) as inbox,
    ):
        for name in names:
            publish_raw(rabbitmq_url, QUEUE, b'{"v": 1, "task_id": "%s"}' % name.encode())
        publish_raw(rabbitmq_url, QUEUE, b"no JSON", message_id="x\ud800")
        publisher.publish([hint(1)])
        taken: list[str] = []
        while not taken:
            taken = all_hints(inbox)
        assert taken == ["task-1"]
        assert inbox.unreadable == len(names) + 1
        eventually(lambda: len(dead_messages(rabbitmq_url)) == len(names) + 1)
        reasons = sorted(each.reason for each in dead_messages(rabbitmq_url))
        assert "not a task envelope" in reasons[0]
        assert all("names no task" in reason for reason in reasons[1:])


def test_what_is_too_long_to_keep_is_told_of(rabbitmq_url: str) -> None:
    with (
        prepared(rabbitmq_url),
        closing(RabbitConsumer(rabbitmq_url, INGEST)) as consumer,
    ):
        publish_raw(rabbitmq_url, INGEST, b"x" * 200_000, message_id="m", reply_to="answers")
        assert consumer.take(1, 10) == []
        ((came, size),) = consumer.too_long
        assert (came.id, came.reply_to, came.body, size) == ("m", "answers", b"", 200_000)
        assert consumer.take(1, 0.05) == []
        assert consumer.too_long == []
        eventually(lambda: [each.size for each in dead_messages(rabbitmq_url)] == [200_000])
