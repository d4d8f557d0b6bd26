"""What a broker tells of itself by AMQP alone, for `agentq doctor`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from agentq.contracts.delivery import DEAD, INGEST, Message, role_queue
from agentq.core.errors import AgentqError, NotFound, Unavailable
from agentq.delivery.rabbitmq.connection import Link, QueueFacts, read_url
from agentq.delivery.rabbitmq.sending import Sender


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """How the broker stands."""

    where: str
    product: str
    version: str
    cluster: str
    #: Whether it takes messages; if not, it is short of memory or disk.
    takes_messages: bool
    #: How long a message took to be confirmed.
    confirm_ms: float
    queues: tuple[QueueFacts, ...]
    #: Queues that should be there and are not.
    missing: tuple[str, ...]


def facts(url: str, roles: Sequence[str] = ()) -> BrokerFacts:
    """Ask the broker. Raises `Unavailable` or `Refused` if it cannot be asked.

    AMQP does not tell `consumer_timeout`: agentq never holds a message for long, so it only matters
    to foreign workers who acknowledge late.
    """
    link = Link(read_url(url), "doctor")
    try:
        queues, missing = [], []
        for name in (INGEST, DEAD, *map(role_queue, roles)):
            try:
                with link.asking(f"looking at {name}") as channel:
                    queues.append(channel.look(name))
            except NotFound:
                missing.append(name)
        started = time.monotonic()
        takes = _takes_messages(link)
        said = {name: str(link.server.get(name, "")) for name in ("product", "version")}
        return BrokerFacts(
            str(link.address), said["product"], said["version"],
            str(link.server.get("cluster_name", "")), takes,
            (time.monotonic() - started) * 1000, tuple(queues), tuple(missing),
        )  # fmt: skip
    finally:
        link.close()


def alarms(url: str) -> list[str]:
    """What is wrong with the broker, in words; nothing if all is well."""
    try:
        known = facts(url)
    except AgentqError as error:
        return [str(error)]
    said = []
    if not known.takes_messages:
        said.append("it takes no messages at the moment: it is short of memory or disk")
    if known.missing:
        said.append(f"it lacks {', '.join(known.missing)}; `agentq init --broker` declares them")
    return said


def _takes_messages(link: Link) -> bool:
    """Send one that no queue takes. A broker under alarm says so, and confirms nothing."""
    try:
        Sender(link).send([Message("agentq-doctor", "", "agentq.nobody", b"{}", mandatory=False)])
    except Unavailable:
        if link.alarmed:
            return False
        raise
    return True
