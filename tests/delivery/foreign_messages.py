"""Messages as tests write them, and what they look at a broker with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import amqp

from agentq.contracts.delivery import TASKS, Hint, Message
from agentq.delivery.rabbitmq import RabbitInbox
from agentq.delivery.rabbitmq.connection import read_url

ROLE = "implementation-worker"


def hint(number: int, role: str = ROLE, **fields: Any) -> Message:
    """The hint of one task, as the relay sends it."""
    body = json.dumps({"v": 1, "task_id": f"task-{number}", "epoch": 0, "to": role}).encode()
    return Message(f"agentq-{number}", TASKS, role, body, **fields)


def names(hints: list[Hint]) -> list[str]:
    return [each.task_id for each in hints]


def all_hints(inbox: RabbitInbox, quiet: float = 0.3) -> list[str]:
    """Take and settle until nothing comes any more."""
    taken: list[str] = []
    while hints := inbox.take(50, quiet):
        inbox.settle(hints)
        taken += names(hints)
    return taken


@contextmanager
def stranger(url: str) -> Iterator[Any]:
    """A channel of somebody who knows nothing of agentq."""
    address = read_url(url)
    connection = amqp.Connection(
        f"{address.host}:{address.port}",
        address.user,
        address.password,
        virtual_host=address.virtual_host,
    )
    connection.connect()
    with closing(connection):
        yield connection.channel()


def publish_raw(
    url: str, queue: str, body: bytes, headers: Mapping[str, Any] | None = None, **properties: Any
) -> None:
    """Put anything at all into a queue."""
    with stranger(url) as channel:
        content = amqp.Message(body, application_headers=dict(headers or {}), **properties)
        channel.basic_publish_confirm(content, "", queue)
