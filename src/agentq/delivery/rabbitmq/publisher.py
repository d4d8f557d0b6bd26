"""What leaves for the broker: confirmed, mandatory, many in flight, by a line that mends itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agentq.contracts.delivery import RESULTS, TASKS, Message, role_queue
from agentq.core.errors import AgentqError, NotFound, Refused, Unavailable
from agentq.delivery.rabbitmq.connection import Channel, Link, read_url
from agentq.delivery.rabbitmq.sending import Sender
from agentq.delivery.rabbitmq.topology import (
    check_results_queue,
    declare_base,
    declare_results,
    declare_role,
)


class RabbitPublisher:
    """Keeps `contracts.delivery.Publisher` on RabbitMQ. Used by one thread at a time.

    A queue is declared when something is first sent to it on a connection, so a broker that lost
    its disk, or a role nobody spoke of at `agentq init`, needs no hand. A user who may not declare
    publishes all the same, and hears per message if no queue takes it.
    """

    def __init__(self, url: str) -> None:
        self._address = read_url(url)
        self._link: Link | None = None
        self._sender: Sender | None = None
        self._declared: set[tuple[str, str]] = set()
        self._may_declare = True
        #: Counts connections: after a new one somebody should see what got lost with the old.
        self.connections = 0

    def publish(self, messages: Sequence[Message]) -> list[str]:
        if not messages:
            return []
        _, sender = self._linked()
        try:
            problems = self._declare_queues(messages)
            said = sender.send([each for each in messages if _place(each) not in problems])
        except Unavailable:
            self._hang_up()
            raise
        except AgentqError as error:
            self._hang_up()
            raise _as_unavailable(error) from error
        answers = iter(said)
        combined = [problems.get(_place(each)) or next(answers) for each in messages]
        for message, problem in zip(messages, combined, strict=True):
            if problem:
                self._declared.discard(_place(message))
        return combined

    def depth(self, role: str) -> int:
        """How many hints wait in the queue of a role; 0 if there is no such queue yet."""
        try:
            with self._asking(f"asking about {role_queue(role)}") as channel:
                return channel.look(role_queue(role)).messages
        except NotFound:
            self._declared.discard((TASKS, role))
            return 0

    def ensure_results(self, queue: str) -> None:
        """Have the queue of a coordinator there, before anything is sent to it."""
        check_results_queue(queue)
        self._linked()
        if (RESULTS, queue) not in self._declared:
            self._declare((RESULTS, queue))

    @contextmanager
    def _asking(self, doing: str) -> Iterator[Channel]:
        link, _ = self._linked()
        try:
            with link.asking(doing) as channel:
                yield channel
        except Unavailable:
            self._hang_up()
            raise

    # -- queues ------------------------------------------------------------------------------------

    def _declare_queues(self, messages: Sequence[Message]) -> dict[tuple[str, str], str]:
        """Have there what these are sent to; where that cannot be, why."""
        problems: dict[tuple[str, str], str] = {}
        for place in dict.fromkeys(_place(each) for each in messages):
            if place[0] in (TASKS, RESULTS) and place not in self._declared:
                try:
                    self._declare(place)
                except Unavailable:
                    raise
                except AgentqError as error:
                    problems[place] = str(error)
        return problems

    def _declare(self, place: tuple[str, str]) -> None:
        if not self._may_declare:
            return
        exchange, key = place
        try:
            with self._asking(f"declaring the queue for {key}") as channel:
                (declare_role if exchange == TASKS else declare_results)(channel, key)
        except Refused:
            self._may_declare = False
        self._declared.add(place)

    # -- the connection ----------------------------------------------------------------------------

    def _linked(self) -> tuple[Link, Sender]:
        """The connection, if it still is one; else a new one."""
        if self._link is not None and self._sender is not None:
            try:
                with self._link.speaking("looking whether it is still there"):
                    self._link.pump()
                return self._link, self._sender
            except AgentqError:
                self._hang_up()
        self._declared, self._may_declare = set(), True
        try:
            link = self._link = Link(self._address, "publisher")
            try:
                with link.asking("declaring exchanges") as channel:
                    declare_base(channel)
            except Refused:
                self._may_declare = False
            sender = self._sender = Sender(link)
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


def _place(message: Message) -> tuple[str, str]:
    return message.exchange, message.routing_key


def _as_unavailable(error: AgentqError) -> Unavailable:
    """The broker said no to all of it, not to one message: the contract's word for that."""
    return Unavailable(error.cause, error.remedy)
