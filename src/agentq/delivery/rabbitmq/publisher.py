"""Publishes to the broker: confirmed, mandatory, many in flight, reconnecting by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

from agentq.contracts.delivery import CONTROL_PREFIX, RESULTS, TASKS, Message, role_queue
from agentq.core.errors import AgentqError, Conflict, NotFound, Refused, Unavailable
from agentq.delivery.rabbitmq.confirm_channel import ConfirmChannel
from agentq.delivery.rabbitmq.connection import Channel, Link, read_url
from agentq.delivery.rabbitmq.topology import (
    check_results_queue,
    declare_base,
    declare_results,
    declare_role,
)

#: Where messages go: an exchange and a routing key.
Place: TypeAlias = tuple[str, str]


class RabbitPublisher:
    """Keeps `contracts.delivery.Publisher` on RabbitMQ. Used by one thread at a time.

    A queue is declared when something is first sent to it on a connection, so a broker that lost
    its disk, or a role nobody spoke of at `agentq init`, needs no hand. A user who may not declare
    publishes all the same, and hears per message if no queue takes it. A place that cannot be
    spoken to (locked, declared in another way, forbidden) is the trouble of its messages alone.
    """

    def __init__(self, url: str) -> None:
        self._address = read_url(url)
        self._link: Link | None = None
        self._sender: ConfirmChannel | None = None
        self._declared: set[Place] = set()
        #: Counts connections: after a new one somebody should see what got lost with the old.
        self.connections = 0

    def publish(self, messages: Sequence[Message]) -> list[str]:
        if not messages:
            return []
        link, sender = self._linked()
        try:
            problems = self._declare_queues(messages)
            reasons = self._send(link, sender, [m for m in messages if _place(m) not in problems])
        except Unavailable:
            self._hang_up()
            raise
        answers = iter(reasons)
        combined = [problems.get(_place(each)) or next(answers) for each in messages]
        for message, problem in zip(messages, combined, strict=True):
            if problem:
                self._declared.discard(_needed(message))
        return combined

    def depth(self, role: str) -> int:
        """How many hints wait in the queue of a role; 0 if there is no such queue for us.

        Whoever sends to it then hears why.
        """
        try:
            with self._asking(f"asking about {role_queue(role)}") as channel:
                return channel.look(role_queue(role)).messages
        except (NotFound, Conflict):
            self._declared.discard((TASKS, role))
            return 0

    def ensure_results(self, queue: str) -> None:
        """Have the queue of a coordinator there, before anything is sent to it."""
        check_results_queue(queue)
        self._linked()
        if (RESULTS, queue) not in self._declared:
            self._declare((RESULTS, queue))

    # -- sending -----------------------------------------------------------------------------------

    def _send(self, link: Link, sender: ConfirmChannel, messages: Sequence[Message]) -> list[str]:
        """All at once; if the broker says no to any of it, place by place.

        It closes the channel then, and does not tell for which message.
        """
        try:
            return sender.send(messages)
        except Unavailable:
            raise
        except AgentqError:
            sender = self._start_over(link, sender)
        reasons = [""] * len(messages)
        for place in dict.fromkeys(map(_place, messages)):
            numbers = [number for number, each in enumerate(messages) if _place(each) == place]
            try:
                answers = sender.send([messages[number] for number in numbers])
            except Unavailable:
                raise
            except AgentqError as error:
                answers = [str(error)] * len(numbers)
                sender = self._start_over(link, sender)
            for number, answer in zip(numbers, answers, strict=True):
                reasons[number] = answer
        return reasons

    def _start_over(self, link: Link, sender: ConfirmChannel) -> ConfirmChannel:
        """Another channel; and an exchange that was missing is there again, if we may declare."""
        with link.speaking("closing a channel"):
            sender.close()
        try:
            _declare_base(link)
        except Unavailable:
            raise
        except AgentqError as error:
            raise _as_unavailable(error) from error
        made = self._sender = ConfirmChannel(link)
        return made

    # -- queues ------------------------------------------------------------------------------------

    @contextmanager
    def _asking(self, doing: str) -> Iterator[Channel]:
        link, _ = self._linked()
        try:
            with link.asking(doing) as channel:
                yield channel
        except Unavailable:
            self._hang_up()
            raise

    def _declare_queues(self, messages: Sequence[Message]) -> dict[Place, str]:
        """Declare the queues that these messages go to; return why, for those that cannot be."""
        problems: dict[Place, str] = {}
        for message in {_place(each): each for each in messages}.values():
            needed = _needed(message)
            if needed[0] in (TASKS, RESULTS, CONTROL_PREFIX) and needed not in self._declared:
                try:
                    self._declare(needed)
                except Unavailable:
                    raise
                except AgentqError as error:
                    problems[_place(message)] = str(error)
        return problems

    def _declare(self, place: Place) -> None:
        exchange, key = place
        # Who may not declare this one may still send to it, and declare others.
        with suppress(Refused), self._asking(f"declaring the queue for {key}") as channel:
            (declare_results if exchange == RESULTS else declare_role)(channel, key)
        self._declared.add(place)

    # -- the connection ----------------------------------------------------------------------------

    def _linked(self) -> tuple[Link, ConfirmChannel]:
        """Return the open connection, or open a new one."""
        if self._link is not None and self._sender is not None:
            try:
                with self._link.speaking("looking whether it is still there"):
                    self._link.pump()
                return self._link, self._sender
            except AgentqError:
                self._hang_up()
        self._declared = set()
        try:
            link = self._link = Link(self._address, "publisher")
            _declare_base(link)
            sender = self._sender = ConfirmChannel(link)
        except Unavailable:
            self._hang_up()
            raise
        except AgentqError as error:
            self._hang_up()
            raise _as_unavailable(error) from error
        self.connections += 1
        return link, sender

    def _hang_up(self, *, polite: bool = False) -> None:
        link, self._link, self._sender = self._link, None, None
        if link is not None:
            link.close(polite=polite)

    def close(self) -> None:
        self._hang_up(polite=True)


def _place(message: Message) -> Place:
    return message.exchange, message.routing_key


def _needed(message: Message) -> Place:
    """What must be declared for a message: the words for a role's holders go by its exchange."""
    if message.exchange.startswith(CONTROL_PREFIX):
        return CONTROL_PREFIX, message.exchange.removeprefix(CONTROL_PREFIX)
    return _place(message)


def _declare_base(link: Link) -> None:
    """What all messages go through; who may not declare it finds it there, or hears that later."""
    with suppress(Refused), link.asking("declaring exchanges") as channel:
        declare_base(channel)


def _as_unavailable(error: AgentqError) -> Unavailable:
    """The broker said no to all of it, not to one message: the contract's word for that."""
    return Unavailable(error.cause, error.remedy)
