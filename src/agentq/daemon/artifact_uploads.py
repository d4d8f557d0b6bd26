"""Files that come with reports: stored by threads of their own, however long that takes.

An object store may be slow, or away for an hour, and heartbeats must not wait for it. So reports
that bring files wait apart (`Waiting`) while threads store the files (`ArtifactUploads`). They are
not acknowledged meanwhile, and their attempts keep their leases.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentq.contracts.inbound_messages import AttemptKey, InboundMessage, IntakeResult
from agentq.core.access import SYSTEM
from agentq.core.errors import Unavailable
from agentq.daemon.loop import log

if TYPE_CHECKING:
    from agentq.contracts.delivery import ReceivedMessage
    from agentq.contracts.service import Service
    from agentq.contracts.service_values import AttemptLease

#: What waits is held in memory. A report is at most 64 KiB long.
MESSAGES_MAX = 1_000
BYTES_MAX = 32 << 20
#: Messages that one attempt may have waiting.
TURN_MAX = 20
#: Threads that store files, so that one slow upload does not delay the others.
_LANES = 4
_NAP_SECONDS, _NAP_SECONDS_MAX = 0.2, 5.0
#: A lease is renewed when a third of it is over.
_RENEWALS_PER_LEASE = 3
#: After a failed renewal the next try comes so many times sooner.
_HURRY = 4


@dataclass(slots=True)
class PendingMessage:
    """A received message, and what was read of it: an inbound message, or its result already."""

    received: ReceivedMessage
    read: InboundMessage | IntakeResult


# -- storing ---------------------------------------------------------------------------------------


class ArtifactUploads:
    """Stores and discards the files of messages. Used by one thread; `done` wakes it."""

    def __init__(self, service: Service, done: Callable[[], None]) -> None:
        self._service = service
        self._done = done
        self._lanes: list[queue.SimpleQueue[Callable[[], None] | None]] = []
        self._errors: dict[int, str] = {}
        self._stored: queue.SimpleQueue[tuple[InboundMessage, str]] = queue.SimpleQueue()
        self._closed = threading.Event()

    @property
    def error(self) -> str:
        """Why files cannot be stored now; "" as far as anybody knows."""
        return next(iter(list(self._errors.values())), "")

    @property
    def has_news(self) -> bool:
        return not self._stored.empty()

    def store(self, inbound: InboundMessage, epoch: int) -> None:
        """Store its files, now or when the store is back; `collected` returns it then."""

        def job() -> None:
            problem = ""
            try:
                self._service.store_message_files(SYSTEM, inbound, epoch)
            except Unavailable:
                raise
            except Exception as error:  # noqa: BLE001 - it is reported, and others go on
                log.exception("ingest: the files of message %r", inbound.message.id)
                problem = f"Its files cannot be stored: {type(error).__name__}."
            self._stored.put((inbound, problem))
            if not self._closed.is_set():
                self._done()

        self._lane(inbound).put(job)

    def discard(self, inbound: InboundMessage) -> None:
        """Remove what was stored for it in vain, before anything else of its attempt is stored."""

        def job() -> None:
            try:
                self._service.discard_message_files(SYSTEM, inbound)
            except Unavailable:
                raise
            except Exception:  # noqa: BLE001 - it is reported, and others go on
                log.exception("ingest: files of message %r stay", inbound.message.id)

        self._lane(inbound).put(job)

    def collected(self) -> Iterator[tuple[InboundMessage, str]]:
        """Return messages whose files are stored or refused, some with the reason why not."""
        while self.has_news:
            yield self._stored.get()

    def close(self) -> None:
        self._closed.set()
        for lane in self._lanes:
            lane.put(None)

    # -- the threads -------------------------------------------------------------------------------

    def _lane(self, inbound: InboundMessage) -> queue.SimpleQueue[Callable[[], None] | None]:
        """The queue of an attempt: always the same one, so that its jobs are done in order."""
        if not self._lanes:
            self._lanes = [queue.SimpleQueue() for _ in range(_LANES)]
            for number in range(_LANES):
                # A daemon thread: one that hangs in a call must not keep the process from ending.
                threading.Thread(
                    target=self._run, args=(number,), name=f"agentq-filing-{number}", daemon=True
                ).start()
        return self._lanes[hash(inbound.attempt) % _LANES]

    def _run(self, number: int) -> None:
        while (job := self._lanes[number].get()) is not None:
            pause = _NAP_SECONDS
            while not self._closed.is_set():
                try:
                    job()
                except Unavailable as error:
                    self._errors[number] = str(error)
                    self._closed.wait(random.uniform(pause / 2, pause))
                    pause = min(pause * 2, _NAP_SECONDS_MAX)
                else:
                    self._errors.pop(number, None)
                    break


# -- waiting ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Turn:
    """The messages of one attempt, in order; the files of the first are being stored."""

    lease: AttemptLease
    renew_at: float
    entries: dict[tuple[str, str], PendingMessage] = field(default_factory=dict)


class Waiting:
    """Reports that wait for their files, and later messages of their attempts."""

    def __init__(self) -> None:
        self._turns: dict[AttemptKey, _Turn] = {}
        self._inbound = self._bytes = 0

    def __len__(self) -> int:
        return self._inbound

    @property
    def full(self) -> bool:
        return self._inbound >= MESSAGES_MAX or self._bytes >= BYTES_MAX

    def is_before(self, inbound: InboundMessage) -> bool:
        """Whether something waits that this one must not overtake."""
        return inbound.keeps_order and inbound.attempt in self._turns

    def has_room(self, inbound: InboundMessage) -> bool:
        """Whether it may wait. A copy of a message that waits always may: it replaces that."""
        turn = self._turns.get(inbound.attempt)
        if turn is not None and _name_of(inbound) in turn.entries:
            return True
        return not self.full and (turn is None or len(turn.entries) < TURN_MAX)

    def begin(self, inbound: InboundMessage, lease: AttemptLease) -> None:
        """Start a queue for an attempt whose report must wait for its files."""
        self._turns[inbound.attempt] = _Turn(lease, _renewal_of(lease))

    def add(self, inbound: InboundMessage, entry: PendingMessage) -> ReceivedMessage | None:
        """Queue a message behind the others of its attempt. A newer copy replaces one that waits
        already, whose connection may be gone; the older is returned.
        """
        entries, name = self._turns[inbound.attempt].entries, _name_of(inbound)
        earlier = entries.get(name)
        if earlier is not None and isinstance(earlier.read, InboundMessage):
            older, earlier.received = earlier.received, entry.received
            earlier.read.incoming = inbound.incoming
            return older if older.tag != entry.received.tag else None
        entries[name] = entry
        self._inbound += 1
        self._bytes += len(inbound.incoming.body)
        return None

    def end(self, inbound: InboundMessage) -> list[PendingMessage]:
        """Return a message whose files are stored and all that followed it, in order."""
        turn = self._turns.pop(inbound.attempt)
        entries = list(turn.entries.values())
        self._inbound -= len(entries)
        self._bytes -= sum(len(entry.received.body) for entry in entries)
        return entries

    def renew(self, service: Service) -> None:
        """Renew the leases whose time has come."""
        now = time.monotonic()
        due = [turn for turn in self._turns.values() if turn.renew_at <= now]
        if due:
            for turn in due:  # should that fail
                turn.renew_at = _renewal_of(turn.lease, _HURRY)
            service.renew(SYSTEM, [turn.lease for turn in due])
            for turn in due:
                turn.renew_at = _renewal_of(turn.lease)

    def next_due(self) -> float:
        """In how many seconds a lease must be renewed."""
        if not self._turns:
            return float("inf")
        return max(min(turn.renew_at for turn in self._turns.values()) - time.monotonic(), 0.0)


def _name_of(inbound: InboundMessage) -> tuple[str, str]:
    return inbound.name, inbound.digest


def _renewal_of(lease: AttemptLease, hurry: int = 1) -> float:
    return time.monotonic() + lease.lease_ms / 1000 / _RENEWALS_PER_LEASE / hurry
