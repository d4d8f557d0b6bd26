"""Ingest: what foreign workers say about their attempts is taken from the broker into the ledger.

Any number of processes may do it at once: the ledger takes each message once, by its id. A message
is let go of only when what it said is committed and its sender was answered. No message keeps
others from being heard: one that brings files waits apart until they are stored
(`daemon.artifact_uploads`), and one that cannot be taken in goes to the dead letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from agentq.contracts.delivery import INGEST, RESULTS_PREFIX, Message
from agentq.contracts.inbound_messages import (
    Incoming,
    Letter,
    Outcome,
    Verdict,
    crowded,
    needs_discarding,
    opened,
    unread,
)
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, Unavailable
from agentq.daemon.artifact_uploads import Entry, Filing, Waiting
from agentq.daemon.loop import Loop, log
from agentq.daemon.outbound_messages import message_id
from agentq.protocol.messages import too_large

if TYPE_CHECKING:
    from agentq.contracts.delivery import Consumer, Received
    from agentq.contracts.installation import Installation
    from agentq.daemon.loop import Alarm
    from agentq.daemon.shared_publisher import Post

BATCH = 100
#: Nobody has our answers put where we read, or where coordinators do.
_OUR_QUEUES = ("agentq.", RESULTS_PREFIX)
_WAIT_SECONDS = 5.0
#: However urgent a lease is: a server that is away is not asked more often.
_PATIENCE_SECONDS_MIN = 0.1
_REASON_CHARS_MAX = 500
_NAME_CHARS_MAX = 50


class Ingest(Loop):
    """Consumes status and result envelopes. It sleeps where they come in, not on the doorbell."""

    name = "ingest"

    def __init__(self, installation: Installation, post: Post, alarm: Alarm) -> None:
        super().__init__()
        self._installation = installation
        self._service = installation.service
        self._post = post
        self._alarm = alarm
        self._consumer: Consumer | None = None
        #: Taken and not yet in the ledger, or not yet answered: one of the two was away.
        self._open: list[Entry] = []
        self._waiting = Waiting()
        self._filing = Filing(installation.service, alarm.ring)
        self._trouble = ""
        self._was_full = False

    def run_once(self) -> float:
        if self._consumer is None:
            self._consumer = self._installation.consumer(INGEST)
        consumer = self._consumer
        if not self._open:
            self._take(consumer)
        self._waiting.renew(self._service)
        self._tell_of_files()
        self._open += self._stored()
        if self._open:
            self._settle(consumer, self._judge(self._open))
        elif consumer.trouble and not self._waiting:
            raise Unavailable(consumer.trouble)
        return 0.0

    def patience(self) -> float:
        """Whatever is away: those that wait keep their leases as long as the ledger is there."""
        return max(min(super().patience(), self._waiting.next_due()), _PATIENCE_SECONDS_MIN)

    # -- taking ------------------------------------------------------------------------------------

    def _take(self, consumer: Consumer) -> None:
        """What has come. It is taken even when no more can wait: most of it need not."""
        pause = 0.0 if self._filing.has_news else min(_WAIT_SECONDS, self._waiting.next_due())
        for received in consumer.take(BATCH, pause, self._alarm.fd):
            letter = opened(_incoming(received))
            entry = Entry(received, letter)
            if not (
                isinstance(letter, Letter)
                and self._waiting.is_before(letter)
                and self._hold(consumer, letter, entry)
            ):
                self._open.append(entry)
        # A consumer that drops what is too long tells of it.
        for received, size in consumer.too_long:
            verdict = unread(_incoming(received), too_large(size))
            self._answer([(received, verdict)])
            self._count(received, verdict)

    def _hold(self, consumer: Consumer, letter: Letter, entry: Entry) -> bool:
        """Let it wait in its turn. False if there is no room: it is heard at once, or refused."""
        if not self._waiting.has_room(letter):
            if not letter.may_overtake:
                entry.read = crowded(letter)
            return False
        older = self._waiting.add(letter, entry)
        if older is not None:
            consumer.ack([older.tag])  # its copy is unacknowledged, and says the same
        return True

    def _stored(self) -> list[Entry]:
        """Those whose files are stored by now, and what was said after them."""
        entries = []
        for letter, problem in islice(self._filing.collected(), BATCH):
            first, *others = self._waiting.end(letter)
            if problem:
                first.read = Verdict(Outcome.UNREADABLE, problem)
            entries += [first, *others]
        return entries

    def _tell_of_files(self) -> None:
        trouble, full = self._filing.trouble, self._waiting.full
        if trouble and not self._trouble:
            log.warning("ingest: %d messages wait for their files to be stored: %s",
                        len(self._waiting), trouble)  # fmt: skip
        elif self._trouble and not trouble:
            log.info("ingest: files are stored again")
        if full and not self._was_full:
            log.warning("ingest: no more can wait until some are stored; the others are refused")
        self._trouble, self._was_full = trouble, full

    # -- deciding ----------------------------------------------------------------------------------

    def _judge(self, entries: Sequence[Entry]) -> list[Verdict]:
        letters = [entry.read for entry in entries if isinstance(entry.read, Letter)]
        decided = iter(self._decide(letters))
        return [
            next(decided) if isinstance(entry.read, Letter) else entry.read for entry in entries
        ]

    def _decide(self, letters: Sequence[Letter]) -> list[Verdict]:
        decided = self._try(letters) if letters else []
        if not isinstance(decided, str):
            return decided
        # One of them is too much for the ledger, which does not say which.
        verdicts: list[Verdict] = []
        waiting = set()
        for letter in letters:
            if letter.keeps_order and letter.attempt in waiting:
                verdict = Verdict(Outcome.WAITING)
            else:
                verdict = self._decide_alone(letter)
            if verdict.outcome is Outcome.WAITING:
                waiting.add(letter.attempt)
            verdicts.append(verdict)
        return verdicts

    def _decide_alone(self, letter: Letter) -> Verdict:
        decided = self._try([letter])
        if not isinstance(decided, str):
            return decided[0]
        self._service.check_writable(SYSTEM)  # raises if the ledger is to blame
        return Verdict(Outcome.UNREADABLE, f"It cannot be taken in: {decided}")

    def _try(self, letters: Sequence[Letter]) -> list[Verdict] | str:
        """The verdicts, or why there are none."""
        try:
            return self._service.judge_messages(SYSTEM, letters)
        except Unavailable:
            raise
        except AgentqError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop all the others
            log.exception("ingest: %d messages cannot be taken in together", len(letters))
            return type(error).__name__  # its words may hold anything

    # -- letting go --------------------------------------------------------------------------------

    def _settle(self, consumer: Consumer, verdicts: Sequence[Verdict]) -> None:
        decided: list[tuple[Entry, Verdict]] = []
        turned_away: list[Entry] = []
        for entry, verdict in zip(self._open, verdicts, strict=True):
            letter = entry.read
            if not isinstance(letter, Letter) or verdict.outcome is not Outcome.WAITING:
                decided.append((entry, verdict))
            elif not self._let_wait(consumer, letter, entry, verdict):
                turned_away.append(entry)
        # Those that wait are kept alive from now on, even if nobody can be answered.
        self._open = [entry for entry, _ in decided] + turned_away
        self._answer((entry.received, verdict) for entry, verdict in decided)
        self._let_go(consumer, decided)
        self._open = turned_away

    def _let_go(self, consumer: Consumer, decided: Iterable[tuple[Entry, Verdict]]) -> None:
        done = []
        for entry, verdict in decided:
            received, letter = entry.received, entry.read
            if isinstance(letter, Letter) and needs_discarding(letter, verdict):
                self._filing.discard(letter)
            if verdict.outcome is Outcome.UNREADABLE:
                consumer.reject(received.tag, verdict.reason[:_REASON_CHARS_MAX])
            else:
                done.append(received.tag)
            self._count(received, verdict)
        consumer.ack(done)

    def _let_wait(self, consumer: Consumer, letter: Letter, entry: Entry, verdict: Verdict) -> bool:
        lease = verdict.lease
        # Without a lease it waits for another one of its attempt.
        if lease is not None and not self._waiting.is_before(letter) and not self._waiting.full:
            self._filing.store(letter, lease.epoch)
            self._waiting.begin(letter, lease)
        return self._hold(consumer, letter, entry)

    def _answer(self, verdicts: Iterable[tuple[Received, Verdict]]) -> None:
        # Nobody waits at that address any more: their loss, and not worth trying again.
        self._post.publish(
            [
                Message(message_id(f"answer-{received.id[:_NAME_CHARS_MAX]}"), "",
                        received.reply_to, verdict.answer, mandatory=False)
                for received, verdict in verdicts
                if verdict.answer and not received.reply_to.startswith(_OUR_QUEUES)
            ]
        )  # fmt: skip

    def _count(self, received: Received, verdict: Verdict) -> None:
        self.tally.add(str(verdict.outcome))
        if verdict.outcome in (Outcome.UNREADABLE, Outcome.REFUSED):
            reason = verdict.reason[:_REASON_CHARS_MAX]
            log.warning("ingest: message %r %s: %s", received.id[:80], verdict.outcome, reason)

    def close(self) -> None:
        self._filing.close()
        if self._consumer is not None:
            self._consumer.close()


def _incoming(received: Received) -> Incoming:
    return Incoming(received.id, received.body, received.reply_to, received.routing_key)
