"""Messages that nobody could read: looking at them, sending them again, throwing them away.

Looking takes them off the queue and puts them back, so two who look at once see half each: these
are for a person, not for a loop.

**Whom to believe.** Workers may write to the dead letters, and what a person sends again is sent
with that person's rights. So a message is sent again only if it is certain which reader refused it
and by which routing key it came there, and then by that very way: nobody gets further by the dead
letters than he could have got himself. Two can be believed: the broker, which moves messages by an
exchange of its own; and agentq, whose copies bear the user's name, which the broker checks. For the
rest there is showing and purging.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from agentq.contracts.delivery import (
    DEAD,
    INGEST,
    REJECTED,
    RESULTS,
    STATUS,
    TASKS,
    DeadMessage,
    Message,
    is_results_queue,
    role_queue,
)
from agentq.core.errors import NotFound, Refused, Unavailable
from agentq.delivery.rabbitmq.connection import read_url
from agentq.delivery.rabbitmq.publisher import RabbitPublisher
from agentq.delivery.rabbitmq.pull_consumer import PullConsumer
from agentq.delivery.rabbitmq.topology import DEAD_MAX, UP_USER
from agentq.delivery.rabbitmq.wire import Delivery

#: What is kept of a body to be shown.
_SHOWN_BYTES = 4_096
_AT_ONCE = 100
_PATIENCE_SECONDS = 5.0
_KEY_CHARS = 12


@dataclass(frozen=True, slots=True)
class _DeadLetter:
    """One that waits: how it is described, and the whole of it."""

    tag: int
    dead: DeadMessage
    body: bytes
    reply_to: str
    priority: int


def dead_messages(url: str, limit: int = 100, begins: str = "") -> list[DeadMessage]:
    """Those that wait and whose key begins so, the oldest first. They stay where they are."""
    found: list[DeadMessage] = []
    with closing(_pull_consumer(url)) as pull_consumer:
        for dead_letter in _through(pull_consumer, url):
            if dead_letter.dead.key.startswith(begins):
                found.append(dead_letter.dead)
            if len(found) >= limit:
                break
    return found


def requeue(url: str, keys: Collection[str]) -> list[DeadMessage]:
    """Send these once more to the queue they were read from; which were there.

    Raises `NotFound` if none is, and `Refused` if one cannot be sent: it stays then.
    """
    sent: list[DeadMessage] = []
    with closing(_pull_consumer(url)) as pull_consumer, closing(RabbitPublisher(url)) as publisher:
        for dead_letter in _through(pull_consumer, url):
            if dead_letter.dead.key in keys:
                _send_again(publisher, dead_letter)
                pull_consumer.ack([dead_letter.tag])
                sent.append(dead_letter.dead)
    _check_found(sent, keys)
    return sent


def purge(url: str, keys: Collection[str] | None = None) -> int:
    """Delete these dead letters, or all; return how many."""
    gone = []
    with closing(_pull_consumer(url)) as pull_consumer:
        if keys is None:
            return pull_consumer.purge()
        for dead_letter in _through(pull_consumer, url):
            if dead_letter.dead.key in keys:
                pull_consumer.ack([dead_letter.tag])
                gone.append(dead_letter.dead)
    _check_found(gone, keys)
    return len(gone)


def _pull_consumer(url: str) -> PullConsumer:
    return PullConsumer(url, DEAD, "dead letters")


def _through(pull_consumer: PullConsumer, url: str) -> Iterator[_DeadLetter]:
    """Yield all dead letters; those not acknowledged are requeued when the consumer is closed."""
    ours = (read_url(url).user, UP_USER)
    left = min(pull_consumer.waiting(), DEAD_MAX)
    while left > 0:
        taken = pull_consumer.take(min(left, _AT_ONCE), _PATIENCE_SECONDS)
        if not taken:
            if pull_consumer.error:
                raise Unavailable(pull_consumer.error)
            return  # somebody else looks too, and has them
        left -= len(taken)
        for delivery in taken:
            dead_letter = _dead_letter(delivery, ours)
            # The tap keeps all that was not acknowledged; it needs no more than their receipts.
            delivery.header, delivery.body = b"", b""
            yield dead_letter


# -- what is known of one --------------------------------------------------------------------------


def _dead_letter(delivery: Delivery, ours: Collection[str]) -> _DeadLetter:
    properties = delivery.properties()
    identity, body = str(properties.get("message_id", "")), delivery.body or b""
    record = _death_record(delivery, properties, ours)
    digest = hashlib.sha256()
    # Two senders never have one name for what they sent: it would be one thing to whoever acts.
    for text in (identity, record.user, record.queue, record.routing_key, str(delivery.size)):
        digest.update(text.encode(errors="replace") + b"\0")
    digest.update(body)
    dead = DeadMessage(
        digest.hexdigest()[:_KEY_CHARS], identity, body[:_SHOWN_BYTES], delivery.size,
        record.reason, record.queue, record.exchange, record.routing_key, record.user,
        record.certain,
        record.stuck(delivery.size, whole=len(body) == delivery.size),
    )  # fmt: skip
    reply_to, priority = properties.get("reply_to", ""), properties.get("priority", 0)
    return _DeadLetter(delivery.tag, dead, body, str(reply_to), int(priority))


@dataclass(frozen=True, slots=True)
class _DeathRecord:
    """Where a message was and why it is here, and whether that is certain."""

    reason: str
    queue: str
    exchange: str
    routing_key: str
    user: str
    certain: bool

    def stuck(self, size: int, *, whole: bool) -> str:
        """Why it cannot be sent to its reader again; "" if it can."""
        if not whole:
            return f"it has {size} bytes, and no reader would take it"
        if not self.certain:
            who = f"user {self.user!r} of the broker" if self.user else "somebody unknown"
            return f"{who} put it here, and where it came from is no more than what that one says"
        if not _way_back(self.queue, self.routing_key):
            return "it did not come to its reader by an exchange of agentq's"
        return ""


def _death_record(
    delivery: Delivery, properties: Mapping[str, Any], ours: Collection[str]
) -> _DeathRecord:
    headers = properties.get("application_headers")
    headers = headers if isinstance(headers, dict) else {}
    user = str(properties.get("user_id", ""))
    if delivery.exchange == REJECTED:
        return _recorded_by_broker(delivery, headers, user)
    names = ("reason", "queue", "exchange", "routing-key")
    reason, queue, exchange, key = (_text(headers, f"x-agentq-{name}") for name in names)
    certain = user in ours
    if certain:
        user = _text(headers, "x-agentq-user")  # who had sent it to the reader
    return _DeathRecord(reason or "it does not say why", queue, exchange, key, user, certain)


def _recorded_by_broker(delivery: Delivery, headers: Mapping[str, Any], user: str) -> _DeathRecord:
    """Its record begins with the queue; the rest of it a sender may have written beforehand. The
    routing key is that of the message."""
    deaths = headers.get("x-death")
    death = deaths[0] if isinstance(deaths, list) and deaths else {}
    death = death if isinstance(death, dict) else {}
    return _DeathRecord(
        f"its reader refused it ({delivery.size} bytes)", _text(death, "queue"),
        _text(death, "exchange"), delivery.routing_key, user, certain=True,
    )  # fmt: skip


def _text(table: Mapping[str, Any], name: str) -> str:
    value = table.get(name)
    return value if isinstance(value, str) else ""


def _way_back(queue: str, key: str) -> str:
    """The exchange that takes it to this queue by this key; "" if none of ours does.

    Queue and key must fit each other: by the key its sender was let in.
    """
    if queue == INGEST:
        return STATUS
    if queue == role_queue(key):
        return TASKS
    return RESULTS if queue == key and is_results_queue(queue) else ""


# -- sending again ---------------------------------------------------------------------------------


def _send_again(publisher: RabbitPublisher, dead_letter: _DeadLetter) -> None:
    dead = dead_letter.dead
    if dead.stuck:
        raise Refused(
            f"Message {dead.key} cannot be sent again: {dead.stuck}. It stays where it is.",
            f"agentq dlq purge {dead.key}",
        )
    message = Message(
        id=dead.id, exchange=_way_back(dead.queue, dead.routing_key),
        routing_key=dead.routing_key, body=dead_letter.body, priority=dead_letter.priority,
        reply_to=dead_letter.reply_to,
    )  # fmt: skip
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
