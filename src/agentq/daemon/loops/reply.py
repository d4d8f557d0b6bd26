"""Replies: the outcome of a task goes to the queue of the coordinator that asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.delivery import RESULTS_PREFIX
from agentq.contracts.doorbell import lane_topic
from agentq.core.access import SYSTEM
from agentq.core.effects import Reply as ReplyEffect
from agentq.daemon.loop import Loop, log
from agentq.daemon.outbound_messages import reply

if TYPE_CHECKING:
    from agentq.contracts.delivery import Message
    from agentq.contracts.installation import Installation
    from agentq.contracts.service_values import OutboundEffect
    from agentq.daemon.shared_publisher import SharedPublisher

LANE = ReplyEffect.lane
BATCH = 200
_POLL_SECONDS = 5.0


class Replies(Loop):
    """Carries out the lane `reply`."""

    name = "reply"
    #: The relay's: the two are one and the same process.
    term = "relay"
    spacing = 0.1

    def __init__(self, installation: Installation, publisher: SharedPublisher) -> None:
        super().__init__()
        self._installation = installation
        self._service = installation.service
        self._publisher = publisher

    def topics(self) -> frozenset[str]:
        return frozenset((lane_topic(LANE),))

    def run_once(self) -> float:
        effects = self._service.outbox_batch(SYSTEM, LANE, BATCH, evidence=True)
        if not effects:
            return _POLL_SECONDS
        outgoing: list[tuple[OutboundEffect, Message]] = []
        nowhere: list[OutboundEffect] = []
        for effect in effects:
            message = reply(effect, self._installation.artifacts)
            if message is None:
                nowhere.append(effect)
                log.error(
                    "reply: %s asks for its result at %r, which is no queue for results (they are"
                    " called %sNAME). It is not sent; `agentq result` has it.",
                    effect.task.id, str(effect.data["reply_to"])[:80], RESULTS_PREFIX,
                )  # fmt: skip
            else:
                outgoing.append((effect, message))
        reasons = self._publisher.publish([message for _, message in outgoing])
        published: list[OutboundEffect] = []
        unpublished: list[OutboundEffect] = []
        for (effect, message), reason in zip(outgoing, reasons, strict=True):
            (unpublished if reason else published).append(effect)
            if reason:
                log.error("reply: the broker did not take one for %s: %s.", message.routing_key,
                          reason)  # fmt: skip
        self._service.settle_outbox(SYSTEM, [*nowhere, *published], unpublished)
        self.tally.add("sent", len(published))
        self.tally.add("for nobody", len(nowhere))
        self.tally.add("not taken by the broker", len(unpublished))
        return 0.0 if len(effects) == BATCH else _POLL_SECONDS
