"""A consumer of one queue that is open for as many messages as are wanted, and no longer.

The broker hands out messages ahead of time to whoever consumes. Here it never may: a message in the
socket of a worker that is busy for an hour is a task that nobody does for an hour. So the tap is
open (one consumer, prefetch = the number asked for) only until something comes. While nothing
comes it stays open, and an idle worker costs the broker nothing.

The tap outlives the broker: it connects again by itself, waiting longer each time, and during an
outage there are simply no messages. `error` says why.
"""

from __future__ import annotations

import itertools
import random
import select
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from agentq.contracts.delivery import DEAD, Message
from agentq.core.errors import AgentqError, Conflict, NotFound, Refused, Unavailable
from agentq.delivery.rabbitmq.confirm_channel import ConfirmChannel
from agentq.delivery.rabbitmq.connection import COUNT_MAX, HEARTBEAT_SECONDS, Link, read_url
from agentq.delivery.rabbitmq.topology import declare_named
from agentq.delivery.rabbitmq.wire import Delivery

_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.1, 10.0
#: Receipts are the broker's, which counts from 1 on each connection, and the connection's number:
#: one of an older connection must not stand for another message.
_GENERATION = 1 << 40
_REASON_CHARS_MAX = 500


class PullConsumer:
    """Messages of one queue, for one thread."""

    def __init__(
        self, url: str, queue: str, purpose: str, opened: Callable[[Link], None] | None = None
    ) -> None:
        self.queue = queue
        #: Why there is no connection; None if there is one, or nobody has asked yet.
        self.problem: AgentqError | None = None
        self._address = read_url(url)
        self._purpose = purpose
        self._opened = opened
        self._link: Link | None = None
        self._generation = 0
        self._wanted = 0  # 0: shut
        self._fresh: list[Delivery] = []
        #: Given out and not settled, by receipt; the oldest first.
        self._held: dict[int, Delivery] = {}
        #: Whether this user may write to the dead letters; found out when there is one.
        self._may_copy = True
        #: Whether the broker moves there by itself what is rejected; found out likewise.
        self._is_moved = False
        self._pause_seconds = _PAUSE_SECONDS
        self._try_at = 0.0

    @property
    def error(self) -> str:
        """`problem` in words; "" if there is none."""
        return str(self.problem) if self.problem is not None else ""

    # -- taking ------------------------------------------------------------------------------------

    def take(
        self,
        count: int,
        timeout: float,
        wake_fd: int = -1,
        enough: Callable[[], bool] = lambda: False,
    ) -> list[Delivery]:
        """Up to `count` as soon as there are any; nothing when the time is up, `wake_fd` can be
        read or `enough` says so. Tags are receipts for `ack` and `reject`.
        """
        deadline = time.monotonic() + max(timeout, 0)
        while True:
            try:
                if (link := self._linked()) is not None:
                    with link.speaking(f"consuming {self.queue}"):
                        wanted = max(0, min(count, COUNT_MAX))
                        return self._taken(link, wanted, deadline, wake_fd, enough)
            except AgentqError as error:
                self._lose(error)
            if not self._rest(deadline, wake_fd):
                return []

    def _taken(
        self, link: Link, count: int, deadline: float, wake_fd: int, enough: Callable[[], bool]
    ) -> list[Delivery]:
        self._turn(count)
        link.pump()
        while not self._fresh and not enough() and link.wait(deadline, wake_fd):
            continue
        if not self._fresh:
            return []
        if self._wanted:
            # A full measure: the broker gives no more until these are acknowledged, by when it
            # has read that consuming ended. Otherwise some may be under way: wait for them.
            self._channel.cancel(wait=len(self._fresh) < self._wanted)
            self._wanted = 0
        taken, self._fresh = self._fresh, []
        base = self._generation * _GENERATION
        for delivery in taken:
            delivery.tag += base
            self._held[delivery.tag] = delivery
        return taken

    def _turn(self, count: int) -> None:
        """Consume exactly so many messages. What came beyond them is requeued for others."""
        if self._wanted == count:
            return
        if self._wanted:
            self._channel.cancel(wait=True)
            self._wanted = 0
        for delivery in self._fresh[count:]:
            self._channel.reject(delivery.tag, requeue=True)
        del self._fresh[count:]
        if count and not self._fresh:
            self._channel.consume(self.queue, self._arrived, count)
            self._wanted = count

    def _arrived(self, delivery: Delivery) -> None:
        self._fresh.append(delivery)

    # -- giving back -------------------------------------------------------------------------------

    def ack(self, tags: Iterable[int]) -> None:
        """These may be forgotten; as few words to the broker as possible.

        Receipts of a connection that is gone are ignored: the broker gives those out again.
        """
        done = {tag for tag in tags if tag in self._held}
        if not done or self._link is None:
            return
        together = list(itertools.takewhile(done.__contains__, self._held))
        try:
            with self._link.speaking("acknowledging messages"):
                if together:
                    self._channel.ack(together[-1] % _GENERATION, multiple=True)
                for tag in done.difference(together):
                    self._channel.ack(tag % _GENERATION)
        except AgentqError as error:
            self._lose(error)
            return
        for tag in done:
            del self._held[tag]

    def settle(self, tag: int) -> bool:
        """This may be forgotten; True once it is certain that the broker heard it.

        An acknowledgement has no answer, and one for a message that the broker has taken back goes
        nowhere. So it is asked something afterwards: it answers in order, or has hung up.
        """
        if self._link is None or tag not in self._held:
            return False
        try:
            with self._link.speaking("acknowledging a message"):
                self._channel.ack(tag % _GENERATION)
                self._channel.look(self.queue)
        except AgentqError as error:
            self._lose(error)
            return False
        del self._held[tag]
        return True

    @contextmanager
    def away(self) -> Iterator[None]:
        """While the caller is busy for long with what it took, the broker still hears from us.

        Nothing else may be done with this tap meanwhile: a connection has one speaker at a time.
        """
        if self._link is None:
            yield
            return
        ended = threading.Event()
        beating = threading.Thread(target=self._link.beat, args=(ended,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()

    def give_back(self, tags: Iterable[int]) -> None:
        """Requeue these messages at once, for other consumers."""
        for tag in tags:
            self._settle_one(tag, requeue=True)

    def reject(self, tag: int, reason: str) -> bool:
        """Nobody can read this: to the dead letters with it, the reason in a header.

        The copy is confirmed before the original is forgotten. Where no copy can be made (too long,
        or this user may not), the broker moves the message itself, without our reason. False if
        neither could be done: it comes again, and `problem` says why.
        """
        link, delivery = self._link, self._held.get(tag)
        if link is None or delivery is None:
            return False
        try:
            copied = self._copy(link, delivery, reason)
            if not copied:
                self._check_moved(link)
        except AgentqError as error:
            self._lose(error)
            return False
        if copied:
            self.ack([tag])
        else:
            self._settle_one(tag, requeue=False)
        return self._link is link

    def _copy(self, link: Link, delivery: Delivery, reason: str) -> bool:
        """Put a copy among the dead letters; False if that cannot be."""
        if delivery.body is None or not self._may_copy:
            return False
        copy = _dead_copy(delivery, self.queue, reason, self._address.user)
        try:
            sender = ConfirmChannel(link)
            copied = sender.send([copy]) == [""]
            with link.speaking("closing a channel"):
                sender.close()
        except (Refused, Conflict):  # not allowed, or known to the broker by another name
            self._may_copy = False
            return False
        return copied

    def _check_moved(self, link: Link) -> None:
        """Raise if the queue was declared without dead letters: the broker drops what it rejects.

        To declare is to compare. Who may not declare relies on those who send: they compare too,
        and send nothing to a queue that differs.
        """
        if not self._is_moved:
            with suppress(Refused), link.asking(f"comparing {self.queue}") as channel:
                declare_named(channel, self.queue)
            self._is_moved = True

    def _settle_one(self, tag: int, *, requeue: bool) -> None:
        if self._link is None or tag not in self._held:
            return
        try:
            with self._link.speaking("giving a message back"):
                self._channel.reject(tag % _GENERATION, requeue=requeue)
        except AgentqError as error:
            self._lose(error)
            return
        del self._held[tag]

    # -- the queue as a whole ----------------------------------------------------------------------

    def waiting(self) -> int:
        """How many wait in the queue. Raises if nobody can say."""
        with self._certainly_linked().asking(f"looking at {self.queue}") as channel:
            return channel.look(self.queue).messages

    def purge(self) -> int:
        """Delete all messages of the queue; return how many."""
        with self._certainly_linked().asking(f"emptying {self.queue}") as channel:
            return channel.purge(self.queue)

    def _certainly_linked(self) -> Link:
        link = self._linked()
        if link is None:
            raise Unavailable(self.error or "There is no broker at the moment.")
        return link

    # -- the connection ----------------------------------------------------------------------------

    def _linked(self) -> Link | None:
        """The connection, made anew when it is time to try; None while it is not."""
        if self._link is None and time.monotonic() >= self._try_at:
            self._generation += 1
            link = self._link = Link(self._address, self._purpose, HEARTBEAT_SECONDS)
            self._check_queue(link)
            with link.speaking(f"preparing to consume {self.queue}"):
                self._channel = link.channel()
                if self._opened is not None:
                    self._opened(link)
            self.problem = None
            self._pause_seconds = _PAUSE_SECONDS
        return self._link

    def _check_queue(self, link: Link) -> None:
        """See that the queue is there; a broker that lost its disk does not have it any more."""
        try:
            with link.asking(f"looking for {self.queue}") as channel:
                channel.look(self.queue)
        except NotFound as missing:
            try:
                with link.asking(f"declaring {self.queue}") as channel:
                    declare_named(channel, self.queue)
            except Refused:
                raise missing from None  # it is for others to declare; until then it is not there

    def _lose(self, error: AgentqError) -> None:
        """Throw the connection away and wait before the next, longer each time, out of step."""
        self.problem = error
        self._hang_up(polite=not isinstance(error, Unavailable))
        pause = random.uniform(self._pause_seconds / 2, self._pause_seconds)
        if not isinstance(error, Unavailable):
            pause = max(pause, 1.0)  # the broker is there and said no: somebody must do something
        self._try_at = time.monotonic() + pause
        self._pause_seconds = min(self._pause_seconds * 2, _PAUSE_SECONDS_MAX)

    def _rest(self, deadline: float, wake_fd: int) -> bool:
        """Sleep until the next try to connect; False when the time is up."""
        poller = select.poll()
        if wake_fd >= 0:
            poller.register(wake_fd, select.POLLIN)
        pause = min(deadline, self._try_at) - time.monotonic()
        if pause > 0 and poller.poll(pause * 1000):
            return False
        return time.monotonic() < deadline

    def _hang_up(self, *, polite: bool = True) -> None:
        link, self._link = self._link, None
        self._wanted = 0
        self._is_moved = False
        self._fresh = []  # its deliveries belong to the old connection, and are given out again
        self._held = {}
        if link is not None:
            link.close(polite=polite)

    def close(self) -> None:
        """What was taken and not acknowledged goes to others."""
        self._hang_up()


def _dead_copy(delivery: Delivery, queue: str, reason: str, user: str) -> Message:
    """All that is needed to send it again; signed, as others may write to the dead letters too."""
    properties = delivery.properties()
    return Message(
        id=str(properties.get("message_id", "")),
        exchange=DEAD,
        routing_key="",
        body=delivery.body or b"",
        priority=int(properties.get("priority", 0)),
        headers={
            "x-agentq-reason": reason[:_REASON_CHARS_MAX],
            "x-agentq-queue": queue,
            "x-agentq-exchange": delivery.exchange,
            "x-agentq-routing-key": delivery.routing_key,
            "x-agentq-user": str(properties.get("user_id", "")),
        },
        reply_to=str(properties.get("reply_to", "")),
        user_id=user,
    )
