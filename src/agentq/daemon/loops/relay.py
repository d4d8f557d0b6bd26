"""The relay: publishes to the broker which tasks became ready, and stop messages to holders.

It stands between a commit and a worker that starts, so it is quick: the doorbell rings as a submit
commits, one read finds what to publish, and nothing is written before that. An effect is settled
only when the broker has confirmed it, or when it is over and need not be published.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentq.contracts.doorbell import ROOM_TOPIC, lane_topic
from agentq.core.access import SYSTEM
from agentq.core.effects import Announce, StopHolder
from agentq.daemon.loop import Loop, log
from agentq.daemon.outbound_messages import announcement, message_id, publish_effects, stop_word

if TYPE_CHECKING:
    from agentq.contracts.delivery import Message
    from agentq.contracts.installation import Installation
    from agentq.contracts.service_values import OutboundEffect
    from agentq.daemon.shared_publisher import SharedPublisher

LANE = Announce.lane
#: Effects of one round: enough to keep many in flight, few enough to stay quick.
BATCH = 200
#: In case the doorbell did not ring.
_POLL_SECONDS = 5.0
#: The same error is not logged again for so long.
_COMPLAIN_SECONDS = 60.0


class Relay(Loop):
    """Carries out the lane `delivery`."""

    name = "relay"
    term = "relay"
    #: After a quiet time it acts at once; under load one round takes what came meanwhile.
    spacing = 0.01
    topics = frozenset({lane_topic(LANE), ROOM_TOPIC})

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

    def run_once(self) -> float:
        effects = self._service.outbox_batch(SYSTEM, LANE, BATCH)
        if not effects:
            self._idle()
            return _POLL_SECONDS
        now = self._service.now()
        messages = [(effect, self._message(effect, now)) for effect in effects]
        published, refusals = publish_effects(self._service, self._publisher, messages)
        for routing_key, reason in refusals:
            self._complain(routing_key, reason)
        self.tally.add("announced", sum(each.kind == Announce.__name__ for each in published))
        self.tally.add("told to stop", sum(each.kind == StopHolder.__name__ for each in published))
        over = len(effects) - len(published) - len(refusals)
        self.tally.add("not worth saying any more", over)
        self.tally.add("not taken by the broker", len(refusals))
        return 0.0 if len(effects) == BATCH else _POLL_SECONDS

    def _message(self, effect: OutboundEffect, now: int) -> Message | None:
        if effect.kind == StopHolder.__name__:
            return stop_word(effect)
        return announcement(effect.task, message_id(effect.id), now, self._installation.artifacts)

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
