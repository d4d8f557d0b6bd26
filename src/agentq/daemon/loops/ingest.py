"""Ingest: what foreign workers say about their attempts is taken from the broker into the ledger.

Any number of processes may do it at once: the ledger takes each message once, by its id. A message
is let go of only when what it said is committed and its sender was answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentq.contracts.delivery import INGEST, RESULTS_PREFIX, Message
from agentq.core.errors import Unavailable
from agentq.daemon.letters import message_id
from agentq.daemon.loop import Loop, log
from agentq.ledger.ingest import Incoming, Outcome, Verdict, ingest

if TYPE_CHECKING:
    from agentq.contracts.delivery import Consumer, Received
    from agentq.daemon.loop import Alarm
    from agentq.daemon.post import Post
    from agentq.wiring import Parts

BATCH = 100
#: Nobody has our answers put where we read, or where coordinators do.
_OUR_QUEUES = ("agentq.", RESULTS_PREFIX)
_WAIT_SECONDS = 5.0
_REASON_CHARS_MAX = 500


class Ingest(Loop):
    """Consumes status and result envelopes. It sleeps where they come in, not on the doorbell."""

    name = "ingest"

    def __init__(self, parts: Parts, post: Post, alarm: Alarm) -> None:
        super().__init__()
        self._parts = parts
        self._post = post
        self._alarm = alarm
        self._consumer: Consumer | None = None
        #: Taken and not yet in the ledger: it was away.
        self._held: Sequence[Received] = ()

    def run_once(self) -> float:
        if self._consumer is None:
            self._consumer = self._parts.consumer(INGEST)
        if not self._held:
            self._held = self._consumer.take(BATCH, _WAIT_SECONDS, self._alarm.fd)
        if self._held:
            self._take_in(self._consumer, self._held)
            self._held = ()
        elif self._consumer.trouble:
            raise Unavailable(self._consumer.trouble)
        return 0.0

    def _take_in(self, consumer: Consumer, received: Sequence[Received]) -> None:
        incoming = [
            Incoming(each.id, each.body, each.reply_to, each.routing_key) for each in received
        ]
        verdicts = ingest(self._parts.ledger, incoming, self._parts.artifacts)
        # Nobody waits at that address any more: their loss, and not worth trying again.
        self._post.publish(
            [
                Message(message_id(f"answer-{each.id}"), "", each.reply_to, verdict.answer,
                        mandatory=False)
                for each, verdict in zip(received, verdicts, strict=True)
                if verdict.answer and not each.reply_to.startswith(_OUR_QUEUES)
            ]
        )  # fmt: skip
        done = []
        for each, verdict in zip(received, verdicts, strict=True):
            self.tally.add(str(verdict.outcome))
            if verdict.outcome is Outcome.UNREADABLE:
                consumer.reject(each.tag, verdict.reason[:_REASON_CHARS_MAX])
            else:
                done.append(each.tag)
            self._note(each, verdict)
        consumer.ack(done)

    @staticmethod
    def _note(each: Received, verdict: Verdict) -> None:
        if verdict.outcome in (Outcome.UNREADABLE, Outcome.REFUSED):
            reason = verdict.reason[:_REASON_CHARS_MAX]
            log.warning("ingest: message %s %s: %s", each.id[:80], verdict.outcome, reason)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
