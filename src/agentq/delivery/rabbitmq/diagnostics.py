"""Diagnostics of a broker, for `agentq doctor`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from agentq.contracts.delivery import DEAD, INGEST, Message, role_queue
from agentq.core.errors import NotFound, Unavailable
from agentq.delivery.rabbitmq.ack_limit import AckLimit, ack_limit
from agentq.delivery.rabbitmq.confirm_channel import ConfirmChannel
from agentq.delivery.rabbitmq.connection import Link, QueueFacts, read_url


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
    #: How long a consumer may hold a message, where that can be learned.
    ack_limit: AckLimit


def facts(url: str, roles: Sequence[str] = ()) -> BrokerFacts:
    """Ask the broker. Raises `Unavailable` or `Refused` if it cannot be asked."""
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
        server = {name: str(link.server.get(name, "")) for name in ("product", "version")}
        return BrokerFacts(
            str(link.address), server["product"], server["version"],
            str(link.server.get("cluster_name", "")), takes,
            (time.monotonic() - started) * 1000, tuple(queues), tuple(missing),
            ack_limit(link.address),
        )  # fmt: skip
    finally:
        link.close()


def _takes_messages(link: Link) -> bool:
    """Send one that no queue takes. A broker under alarm says so, and confirms nothing."""
    try:
        ConfirmChannel(link).send(
            [Message("agentq-doctor", "", "agentq.nobody", b"{}", mandatory=False)]
        )
    except Unavailable:
        if link.alarmed:
            return False
        raise
    return True
