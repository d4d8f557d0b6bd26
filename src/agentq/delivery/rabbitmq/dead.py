"""Messages that nobody could read: looking at them, sending them again, throwing them away.

Looking takes them off the queue and puts them back, so two who look at once see half each: these
are for a person, not for a loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Any

from agentq.contracts.delivery import DEAD, DeadMessage, Message
from agentq.core.errors import NotFound, Refused, Unavailable
from agentq.delivery.rabbitmq.publisher import RabbitPublisher
from agentq.delivery.rabbitmq.tap import Tap
from agentq.delivery.rabbitmq.wire import Delivery

#: How many are looked through at most to find the ones that are named.
LOOKED_THROUGH_MAX = 10_000
_AT_ONCE = 200
_PATIENCE_SECONDS = 5.0
_KEY_CHARS = 12


def dead_messages(url: str, limit: int = 100) -> list[DeadMessage]:
    """Those that wait, the oldest first. They stay where they are."""
    found: list[DeadMessage] = []
    with closing(_tap(url)) as tap:
        for _, dead in _through(tap):
            found.append(dead)
            if len(found) >= limit:
                break
    return found


def requeue(url: str, keys: Collection[str]) -> list[DeadMessage]:
    """Send these once more to the queue they were read from; which were there.

    Raises `NotFound` if none is, and `Refused` if one cannot be sent: it stays then.
    """
    sent: list[DeadMessage] = []
    with closing(_tap(url)) as tap, closing(RabbitPublisher(url)) as publisher:
        for tag, dead in _through(tap):
            if dead.key in keys:
                _send_again(publisher, dead)
                tap.ack([tag])
                sent.append(dead)
    _check_found(sent, keys)
    return sent


def purge(url: str, keys: Collection[str] | None = None) -> int:
    """Throw these away, or all; how many it were."""
    gone = []
    with closing(_tap(url)) as tap:
        if keys is None:
            return tap.purge()
        for tag, dead in _through(tap):
            if dead.key in keys:
                tap.ack([tag])
                gone.append(dead)
    _check_found(gone, keys)
    return len(gone)


def _tap(url: str) -> Tap:
    return Tap(url, DEAD, "dead letters")


def _through(tap: Tap) -> Iterator[tuple[int, DeadMessage]]:
    """All that wait now. What is not acknowledged is back in its place when the tap is closed."""
    left = min(tap.waiting(), LOOKED_THROUGH_MAX)
    while left > 0:
        taken = tap.take(min(left, _AT_ONCE), _PATIENCE_SECONDS)
        if not taken:
            if tap.trouble:
                raise Unavailable(tap.trouble)
            return  # somebody else looks too, and has them
        left -= len(taken)
        for delivery in taken:
            properties = delivery.properties()
            headers = properties.get("application_headers") or {}
            identity = str(properties.get("message_id", ""))
            yield delivery.tag, _described(delivery, identity, headers)


def _described(delivery: Delivery, identity: str, headers: dict[str, Any]) -> DeadMessage:
    body = delivery.body or b""
    deaths = headers.get("x-death")
    death = deaths[0] if isinstance(deaths, list) and deaths else {}
    keys = death.get("routing-keys") or [delivery.routing_key]
    digest = hashlib.sha256(identity.encode(errors="replace") + b"\0" + body).hexdigest()
    origin = {
        "reason": _broker_reason(death, delivery.size),
        "queue": headers.get("x-first-death-queue", ""),
        "exchange": death.get("exchange", ""),
        "routing-key": keys[0],
    }
    said = {name: str(headers.get(f"x-agentq-{name}", other)) for name, other in origin.items()}
    return DeadMessage(
        digest[:_KEY_CHARS], identity, body, delivery.size,
        said["reason"], said["queue"], said["exchange"], said["routing-key"],
    )  # fmt: skip


def _broker_reason(death: dict[str, Any], size: int) -> str:
    reason = death.get("reason", "")
    if reason == "rejected":
        return f"its reader refused it ({size} bytes)"
    return f"the broker moved it here: {reason or 'it does not say why'}"


def _send_again(publisher: RabbitPublisher, dead: DeadMessage) -> None:
    """To the queue it was read from, and no other that the exchange may serve."""
    if dead.size > len(dead.body):
        raise Refused(
            f"Message {dead.key} has {dead.size} bytes and cannot be sent again: no reader would"
            " take it.",
            f"agentq dlq purge {dead.key}",
        )
    message = Message(id=dead.id[:120], exchange="", routing_key=dead.queue, body=dead.body)
    problem = publisher.publish([message])[0]
    if problem:
        raise Refused(
            f"Message {dead.key} cannot be sent again: {problem}. It stays where it is.",
            "`agentq init --broker` declares queues that are missing.",
        )


def _check_found(found: Collection[DeadMessage], keys: Collection[str]) -> None:
    missing = set(keys).difference(dead.key for dead in found)
    if missing and not found:
        raise NotFound(
            f"No message {', '.join(sorted(missing)[:5])} is among the dead letters of the broker.",
            "`agentq dlq` lists them.",
        )
