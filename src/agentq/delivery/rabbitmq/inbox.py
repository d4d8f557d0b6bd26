"""A worker's hints from the broker: each names a task."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from agentq.contracts.delivery import Hint, control_exchange, role_queue, stop_key
from agentq.core.errors import Invalid, NotFound, Refused
from agentq.core.limits import ENVELOPE_BYTES_MAX
from agentq.delivery.rabbitmq.connection import Link
from agentq.delivery.rabbitmq.pull_consumer import PullConsumer
from agentq.delivery.rabbitmq.topology import declare_role
from agentq.delivery.rabbitmq.wire import Delivery
from agentq.protocol.envelope import ENVELOPE_VERSION
from agentq.protocol.spec_validation import check_id, check_role

log = logging.getLogger("agentq.delivery")


class _Hinted(msgspec.Struct):
    """All a hint needs of the envelope; the ledger knows the rest, and knows it better."""

    task_id: str
    v: int = ENVELOPE_VERSION


_decode = msgspec.json.Decoder(_Hinted).decode


class RabbitInbox:
    """Keeps `contracts.delivery.Inbox` on RabbitMQ. Used by one thread.

    During an outage `take` gives nothing and `error` says why; it connects again by itself.
    """

    names_tasks = True

    def __init__(self, url: str, role: str, holder: str) -> None:
        self._role = role
        self._holder = holder
        self._pull_consumer = PullConsumer(
            url, role_queue(check_role(role)), f"inbox {role}", self._listen
        )
        self._control_received = False
        self._calls = 0
        self._connected = False
        #: How many messages nobody could read, so far.
        self.unreadable = 0

    @property
    def error(self) -> str:
        """Why there is no broker; "" if there is one."""
        return self._pull_consumer.error

    def _listen(self, link: Link) -> None:
        """Consume control messages for this holder, on a channel and a queue of its own."""
        queue = self._bound_queue(link)
        if queue:
            link.channel().consume(queue, self._note_control, ack=False)
        if self._connected:
            self._note_control()  # nobody knows what was said while the line was dead
        self._connected = True

    def _bound_queue(self, link: Link) -> str:
        """A queue that gets the words for this holder; "" if the broker lets us have none.

        Without them a worker hears with its next heartbeat whom to stop. That is later, and no
        reason to do without hints as well: rights may be from before a role had its own exchange.
        """
        for _ in range(2):
            try:
                with link.asking("listening for whom to stop") as channel:
                    queue = channel.private_queue()
                    channel.bind(queue, control_exchange(self._role), stop_key(self._holder))
                    return queue
            except NotFound:
                with suppress(Refused), link.asking("declaring its exchange") as channel:
                    declare_role(channel, self._role)
            except Refused as error:
                log.warning("%s hears late whom to stop: %s", self._role, error.cause)
                return ""
        log.warning("%s hears late whom to stop: nobody has declared its exchange", self._role)
        return ""

    def _note_control(self, _delivery: Delivery | None = None) -> None:
        self._control_received = True
        self._calls += 1

    @property
    def control_received(self) -> bool:
        control_received, self._control_received = self._control_received, False
        return control_received

    def take(self, count: int, timeout: float, wake_fd: int = -1) -> list[Hint]:
        hints, calls = [], self._calls  # one that nobody cares to read ends one wait, not all
        for delivery in self._pull_consumer.take(
            count, timeout, wake_fd, lambda: self._calls != calls
        ):
            task_id, problem = _read(delivery)
            if problem:
                self.unreadable += 1
                self._pull_consumer.reject(delivery.tag, problem)
            else:
                hints.append(Hint(task_id, delivery.tag))
        return hints

    def settle(self, hints: Sequence[Hint]) -> None:
        self._pull_consumer.ack(hint.tag for hint in hints)

    def reject(self, hints: Sequence[Hint], reason: str) -> None:
        for hint in hints:
            self._pull_consumer.reject(hint.tag, reason)

    def close(self) -> None:
        self._pull_consumer.close()


def _read(delivery: Delivery) -> tuple[str, str]:
    """The task it is about, or why that cannot be known."""
    if delivery.body is None or delivery.size > ENVELOPE_BYTES_MAX:
        return "", f"it has {delivery.size} bytes; an envelope has at most {ENVELOPE_BYTES_MAX}"
    try:
        hinted = _decode(delivery.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return "", f"it is not a task envelope: {error}"
    if hinted.v != ENVELOPE_VERSION:
        return "", f"it has version {hinted.v}; version {ENVELOPE_VERSION} was expected"
    try:
        return check_id(hinted.task_id), ""
    except Invalid as error:  # no task has such a name, and no ledger could look for it
        return "", f"its task_id names no task: {error.cause}"
