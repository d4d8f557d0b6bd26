"""Ingest: messages of foreign workers go from the broker into the ledger.

Any number of processes may do it at once: the ledger takes each message once, by its id. A message
is acknowledged only when it is committed and its sender was answered. None delays others: one that
brings files waits apart until they are stored (`daemon.artifact_uploads`), and one that cannot be
read goes to the dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from agentq.contracts.delivery import INGEST, RESULTS_PREFIX, Message
from agentq.contracts.inbound_messages import (
    InboundMessage,
    Incoming,
    IntakeResult,
    IntakeStatus,
    crowded,
    needs_discarding,
    opened,
    unread,
)
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, Unavailable
from agentq.daemon.artifact_uploads import ArtifactUploads, PendingMessage, Waiting
from agentq.daemon.loop import Loop, log
from agentq.daemon.outbound_messages import message_id
from agentq.protocol.messages import too_large

if TYPE_CHECKING:
    from agentq.contracts.delivery import Consumer, ReceivedMessage
    from agentq.contracts.installation import Installation
    from agentq.daemon.shared_publisher import SharedPublisher

BATCH = 100
#: No answer is sent to a queue that agentq or a coordinator reads.
_OUR_QUEUES = ("agentq.", RESULTS_PREFIX)
_WAIT_SECONDS = 5.0
#: A server that is away is not asked more often, however urgent a lease is.
_PATIENCE_SECONDS_MIN = 0.1
_REASON_CHARS_MAX = 500
_NAME_CHARS_MAX = 50


class Ingest(Loop):
    """Consumes status and result envelopes. It sleeps where they come in, not on the doorbell."""

    name = "ingest"

    def __init__(self, installation: Installation, publisher: SharedPublisher) -> None:
        super().__init__()
        self._installation = installation
        self._service = installation.service
        self._publisher = publisher
        #: Taken and not yet committed or answered: the ledger or the broker was away.
        self._open: list[PendingMessage] = []
        self._waiting = Waiting()
        self._uploads = ArtifactUploads(installation.service, self.alarm.ring)
        self._upload_error = ""
        self._was_full = False

    @cached_property
    def _consumer(self) -> Consumer:
        return self._installation.consumer(INGEST)

    def run_once(self) -> float:
        consumer = self._consumer
        if not self._open:
            self._take()
        self._waiting.renew(self._service)
        self._log_uploads()
        self._open += self._stored()
        if self._open:
            self._settle(self._judge(self._open))
        elif consumer.error and not self._waiting:
            raise Unavailable(consumer.error)
        return 0.0

    def patience(self) -> float:
        """Attempts that wait for their files keep their leases while the ledger is there."""
        return max(min(super().patience(), self._waiting.next_due()), _PATIENCE_SECONDS_MIN)

    # -- taking ------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Take new messages, even when no more can wait: most need not."""
        pause = 0.0 if self._uploads.has_news else min(_WAIT_SECONDS, self._waiting.next_due())
        for received in self._consumer.take(BATCH, pause, self.alarm.fd):
            inbound = opened(_incoming(received))
            entry = PendingMessage(received, inbound)
            if not (
                isinstance(inbound, InboundMessage)
                and self._waiting.is_before(inbound)
                and self._keep_waiting(inbound, entry)
            ):
                self._open.append(entry)
        for received, size in self._consumer.too_long:
            verdict = unread(_incoming(received), too_large(size))
            self._answer([(received, verdict)])
            self._count(received, verdict)

    def _keep_waiting(self, inbound: InboundMessage, entry: PendingMessage) -> bool:
        """Queue a message behind its attempt; False if the queue is full."""
        if not self._waiting.has_room(inbound):
            if not inbound.may_overtake:
                entry.read = crowded(inbound)
            return False
        older = self._waiting.add(inbound, entry)
        if older is not None:
            self._consumer.ack([older.tag])  # its copy is not acknowledged yet
        return True

    def _stored(self) -> list[PendingMessage]:
        """Return reports whose files are stored by now, and later messages of their attempts."""
        entries = []
        for inbound, problem in islice(self._uploads.collected(), BATCH):
            first, *others = self._waiting.end(inbound)
            if problem:
                first.read = IntakeResult(IntakeStatus.UNREADABLE, problem)
            entries += [first, *others]
        return entries

    def _log_uploads(self) -> None:
        error, full = self._uploads.error, self._waiting.full
        if error and not self._upload_error:
            log.warning("ingest: %d messages wait for their files to be stored: %s",
                        len(self._waiting), error)  # fmt: skip
        elif self._upload_error and not error:
            log.info("ingest: files are stored again")
        if full and not self._was_full:
            log.warning("ingest: no more can wait until some are stored; the others are refused")
        self._upload_error, self._was_full = error, full

    # -- deciding ----------------------------------------------------------------------------------

    def _judge(self, entries: Sequence[PendingMessage]) -> list[IntakeResult]:
        readable = [entry.read for entry in entries if isinstance(entry.read, InboundMessage)]
        decided = iter(self._decide(readable))
        return [
            next(decided) if isinstance(entry.read, InboundMessage) else entry.read
            for entry in entries
        ]

    def _decide(self, inbound_messages: Sequence[InboundMessage]) -> list[IntakeResult]:
        decided = self._try(inbound_messages) if inbound_messages else []
        if not isinstance(decided, str):
            return decided
        # The ledger failed on one of them and does not say which.
        verdicts: list[IntakeResult] = []
        waiting = set()
        for inbound in inbound_messages:
            if inbound.keeps_order and inbound.attempt in waiting:
                verdict = IntakeResult(IntakeStatus.WAITING)
            else:
                verdict = self._decide_alone(inbound)
            if verdict.outcome is IntakeStatus.WAITING:
                waiting.add(inbound.attempt)
            verdicts.append(verdict)
        return verdicts

    def _decide_alone(self, inbound: InboundMessage) -> IntakeResult:
        decided = self._try([inbound])
        if not isinstance(decided, str):
            return decided[0]
        self._service.check_writable(SYSTEM)  # raises if the ledger is to blame
        return IntakeResult(IntakeStatus.UNREADABLE, f"It cannot be taken in: {decided}")

    def _try(self, inbound_messages: Sequence[InboundMessage]) -> list[IntakeResult] | str:
        """The results, or why there are none."""
        try:
            return self._service.judge_messages(SYSTEM, inbound_messages)
        except Unavailable:
            raise
        except AgentqError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop all the others
            log.exception("ingest: %d messages cannot be taken in together", len(inbound_messages))
            return type(error).__name__  # its words may hold anything

    # -- settling ----------------------------------------------------------------------------------

    def _settle(self, verdicts: Sequence[IntakeResult]) -> None:
        decided: list[tuple[PendingMessage, IntakeResult]] = []
        turned_away: list[PendingMessage] = []
        for entry, verdict in zip(self._open, verdicts, strict=True):
            inbound = entry.read
            waits = verdict.outcome is IntakeStatus.WAITING
            if not waits or not isinstance(inbound, InboundMessage):
                decided.append((entry, verdict))
            elif not self._let_wait(inbound, entry, verdict):
                turned_away.append(entry)
        # Before answering, which may fail: those that wait are in `_waiting` from now on.
        self._open = [entry for entry, _ in decided] + turned_away
        self._answer((entry.received, verdict) for entry, verdict in decided)
        self._release(decided)
        self._open = turned_away

    def _release(self, decided: Iterable[tuple[PendingMessage, IntakeResult]]) -> None:
        done = []
        for entry, verdict in decided:
            received, inbound = entry.received, entry.read
            if isinstance(inbound, InboundMessage) and needs_discarding(inbound, verdict):
                self._uploads.discard(inbound)
            if verdict.outcome is IntakeStatus.UNREADABLE:
                self._consumer.reject(received.tag, verdict.reason[:_REASON_CHARS_MAX])
            else:
                done.append(received.tag)
            self._count(received, verdict)
        self._consumer.ack(done)

    def _let_wait(
        self, inbound: InboundMessage, entry: PendingMessage, verdict: IntakeResult
    ) -> bool:
        lease = verdict.lease
        # Without a lease it waits for another one of its attempt.
        if lease is not None and not self._waiting.is_before(inbound) and not self._waiting.full:
            self._uploads.store(inbound, lease.epoch)
            self._waiting.begin(inbound, lease)
        return self._keep_waiting(inbound, entry)

    def _answer(self, verdicts: Iterable[tuple[ReceivedMessage, IntakeResult]]) -> None:
        # Not mandatory: a sender that has gone needs no answer.
        self._publisher.publish(
            [
                Message(message_id(f"answer-{received.id[:_NAME_CHARS_MAX]}"), "",
                        received.reply_to, verdict.answer, mandatory=False)
                for received, verdict in verdicts
                if verdict.answer and not received.reply_to.startswith(_OUR_QUEUES)
            ]
        )  # fmt: skip

    def _count(self, received: ReceivedMessage, verdict: IntakeResult) -> None:
        self.tally.add(str(verdict.outcome))
        if verdict.outcome in (IntakeStatus.UNREADABLE, IntakeStatus.REFUSED):
            reason = verdict.reason[:_REASON_CHARS_MAX]
            log.warning("ingest: message %r %s: %s", received.id[:80], verdict.outcome, reason)

    def close(self) -> None:
        self._uploads.close()
        if "_consumer" in self.__dict__:
            self._consumer.close()


def _incoming(received: ReceivedMessage) -> Incoming:
    return Incoming(received.id, received.body, received.reply_to, received.routing_key)
