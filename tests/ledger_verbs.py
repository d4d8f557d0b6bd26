"""A ledger with a method for each trigger, and messages taken in whole: short words for tests.

The service makes triggers itself and gives them to `Ledger.apply`; tests would repeat that often.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from agentq.contracts.artifacts import ArtifactStore
from agentq.contracts.inbound_messages import (
    InboundMessage,
    Incoming,
    IntakeResult,
    IntakeStatus,
    needs_discarding,
    opened,
)
from agentq.contracts.store import OutboxRow
from agentq.core import triggers as t
from agentq.core.errors import Unavailable
from agentq.core.task import NO_USAGE, Task, Usage
from agentq.core.trigger_validation import check_comment
from agentq.ledger.ingest import discard_unrecorded, judge, store_files
from agentq.ledger.ledger import Ledger


class VerbLedger(Ledger):
    """A ledger with a method for each trigger."""

    def progress(self, key: int, epoch: int, percent: int, note: str = "") -> Task:
        return self.apply(key, t.Progress(epoch, percent, note))

    def spend(self, key: int, epoch: int, cost: Usage) -> Task:
        return self.apply(key, t.Spend(epoch, cost))

    def report(self, key: int, report: t.Report) -> Task:
        return self.apply(key, report)

    def block(self, key: int, epoch: int, reason: str) -> Task:
        return self.apply(key, t.BlockTask(epoch, reason))

    def release(self, key: int, epoch: int, reason: str = "", not_before: int = 0) -> Task:
        return self.apply(key, t.Release(epoch, reason, not_before))

    def stopped(self, key: int, epoch: int) -> Task:
        return self.apply(key, t.Stopped(epoch))

    def approve(self, key: int, by: str, digest: str = "") -> Task:
        return self.apply(key, t.Approve(by, digest))

    def reject(self, key: int, by: str, reason: str = "") -> Task:
        return self.apply(key, t.Reject(by, reason))

    def verdict(self, key: int, by: str, ruling: t.Ruling, feedback: str = "") -> Task:
        return self.apply(key, t.Verdict(by, ruling, feedback))

    def answer(
        self,
        key: int,
        by: str,
        text: str = "",
        resolution: t.Resolution = t.Resolution.RETRY,
        extra_budget: Usage = NO_USAGE,
    ) -> Task:
        return self.apply(key, t.Answer(by, text, resolution, extra_budget))

    def cancel(self, key: int, by: str, reason: str = "") -> Task:
        return self.apply(key, t.Cancel(by, reason))

    def comment(self, key: int, by: str, text: str, epoch: int = 0) -> Task:
        check_comment(text)
        return self.apply(key, t.Comment(by, text, epoch))

    def effects(self, lane: str, count: int) -> list[OutboxRow]:
        """The oldest effects of a lane that are due: they come again until somebody acks them."""
        return self.store.read(lambda reader: reader.effects(lane, count, due_only=True))

    def ack_effects(self, sequences: Sequence[int]) -> None:
        self.store.write(lambda tx: tx.settle_effects(sequences))


def ingest(
    ledger: Ledger, messages: Sequence[Incoming], artifacts: ArtifactStore | None = None
) -> list[IntakeResult]:
    """Apply messages in their order and store their files; return the result of each.

    While the artifact store cannot serve, messages that bring files wait, and those that follow
    them; all others are decided.
    """
    looked_at = [opened(incoming) for incoming in messages]
    verdicts = {at: each for at, each in enumerate(looked_at) if isinstance(each, IntakeResult)}
    inbound_messages = {
        at: each for at, each in enumerate(looked_at) if isinstance(each, InboundMessage)
    }
    left = list(inbound_messages)
    while left:
        done = judge(ledger, [inbound_messages[at] for at in left])
        verdicts.update(zip(left, done, strict=True))
        brought = False
        for at in left:
            verdict, inbound = verdicts[at], inbound_messages[at]
            if verdict.outcome is not IntakeStatus.WAITING:
                if artifacts is not None and needs_discarding(inbound, verdict):
                    with suppress(Unavailable):  # what is left goes with its task
                        discard_unrecorded(ledger.queries, artifacts, inbound)
            elif verdict.lease is not None:
                assert artifacts is not None, "this message brings files"
                with suppress(Unavailable):
                    store_files(artifacts, inbound, verdict.lease.epoch)
                    brought = True
        # Those whose turn it is now have their files, or the store is away.
        waiting = [at for at in left if verdicts[at].outcome is IntakeStatus.WAITING]
        left = waiting if brought else []
    return [verdicts[at] for at in range(len(messages))]
