"""Replies: the outcome of a task goes to the queue of the coordinator that asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.delivery import RESULTS_PREFIX
from agentq.contracts.doorbell import lane_topic
from agentq.core.access import SYSTEM
from agentq.core.effects import Reply as ReplyEffect
from agentq.daemon.loop import Loop, log
from agentq.daemon.outbound_messages import publish_effects, reply

if TYPE_CHECKING:
    from agentq.contracts.installation import Installation
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
    topics = frozenset({lane_topic(LANE)})

    def __init__(self, installation: Installation, publisher: SharedPublisher) -> None:
        super().__init__()
        self._installation = installation
        self._service = installation.service
        self._publisher = publisher

    def run_once(self) -> float:
        effects = self._service.outbox_batch(SYSTEM, LANE, BATCH, evidence=True)
        if not effects:
            return _POLL_SECONDS
        messages = [(effect, reply(effect, self._installation.artifacts)) for effect in effects]
        nowhere = [effect for effect, message in messages if message is None]
        for effect in nowhere:
            log.error(
                "reply: %s asks for its result at %r, which is no queue for results (they are"
                " called %sNAME). It is not sent; `agentq result` has it.",
                effect.task.id, str(effect.data["reply_to"])[:80], RESULTS_PREFIX,
            )  # fmt: skip
        published, refusals = publish_effects(self._service, self._publisher, messages)
        for routing_key, reason in refusals:
            log.error("reply: the broker did not take one for %s: %s.", routing_key, reason)
        self.tally.add("sent", len(published))
        self.tally.add("for nobody", len(nowhere))
        self.tally.add("not taken by the broker", len(refusals))
        return 0.0 if len(effects) == BATCH else _POLL_SECONDS
