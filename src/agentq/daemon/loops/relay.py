"""The relay: publishes to the broker which tasks became ready, and stop messages to holders.

It stands between a commit and a worker that starts, so it is quick: the doorbell rings as a submit
commits, one read finds what to say, and nothing is written before it is said. Nothing is forgotten
before the broker has confirmed it. What a message hints at may be over when it leaves; then it need
not leave.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agentq.contracts.delivery import Message
from agentq.contracts.doorbell import ROOM_TOPIC, lane_topic
from agentq.core.access import SYSTEM
from agentq.core.effects import Announce, StopHolder
from agentq.daemon.loop import Loop, log
from agentq.daemon.outbound_messages import announcement, message_id, stop_word

if TYPE_CHECKING:
    from agentq.contracts.installation import Installation
    from agentq.contracts.service_values import OutboundEffect
    from agentq.daemon.shared_publisher import SharedPublisher

LANE = Announce.lane
#: Effects of one round: enough to keep many in flight, few enough to stay quick.
BATCH = 200
#: The net under a doorbell that did not ring.
_POLL_SECONDS = 5.0
#: The same complaint is not made again for so long.
_COMPLAIN_SECONDS = 60.0


class Relay(Loop):
    """Carries out the lane `delivery`."""

    name = "relay"
    term = "relay"
    #: One that has been quiet answers at once; under load a round takes what came meanwhile.
    spacing = 0.01

    def __init__(
        self,
        installation: Installation,
        publisher: SharedPublisher,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        """`idle` is called when there is nothing to publish; the wake-up may be for others."""
        super().__init__()
        self._idle = idle
        self._installation = installation
        self._service = installation.service
        self._publisher = publisher
        self._complained: dict[str, float] = {}

    def topics(self) -> frozenset[str]:
        return frozenset((lane_topic(LANE), ROOM_TOPIC))

    def run_once(self) -> float:
        effects = self._service.outbox_batch(SYSTEM, LANE, BATCH)
        if not effects:
            self._idle()
            return _POLL_SECONDS
        now = self._service.now()
        outgoing: list[tuple[OutboundEffect, Message]] = []
        over: list[OutboundEffect] = []
        for effect in effects:
            message = self._message(effect, now)
            if message is None:
                over.append(effect)
            else:
                outgoing.append((effect, message))
        published, unpublished = self._send(outgoing)
        self._service.settle_outbox(SYSTEM, [*over, *published], unpublished)
        self.tally.add("announced", sum(each.kind == Announce.__name__ for each in published))
        self.tally.add("told to stop", sum(each.kind == StopHolder.__name__ for each in published))
        self.tally.add("not worth saying any more", len(over))
        self.tally.add("not taken by the broker", len(unpublished))
        return 0.0 if len(effects) == BATCH else _POLL_SECONDS

    def _message(self, effect: OutboundEffect, now: int) -> Message | None:
        if effect.kind == StopHolder.__name__:
            return stop_word(effect)
        return announcement(effect.task, message_id(effect.id), now, self._installation.artifacts)

    def _send(
        self, outgoing: Sequence[tuple[OutboundEffect, Message]]
    ) -> tuple[list[OutboundEffect], list[OutboundEffect]]:
        reasons = self._publisher.publish([message for _, message in outgoing])
        published, unpublished = [], []
        for (effect, message), reason in zip(outgoing, reasons, strict=True):
            if reason:
                unpublished.append(effect)
                self._complain(message.routing_key, reason)
            else:
                published.append(effect)
        return published, unpublished

    def _complain(self, where: str, reason: str) -> None:
        now = time.monotonic()
        if now - self._complained.get(where, -_COMPLAIN_SECONDS) < _COMPLAIN_SECONDS:
            return
        if len(self._complained) > 1000:
            self._complained.clear()
        self._complained[where] = now
        log.error(
            "relay: the broker did not take messages for %s: %s. They are tried again; `agentq init"
            " --broker` declares queues that are missing.", where, reason,
        )  # fmt: skip
