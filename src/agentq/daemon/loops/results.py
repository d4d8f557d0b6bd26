"""Results: what was accepted appears under `results/`, also if whoever completed it died then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.doorbell import EVENTS_TOPIC
from agentq.core.effects import PublishResult
from agentq.core.errors import Conflict, Damaged, Invalid, NotFound
from agentq.daemon.loop import Loop, log

if TYPE_CHECKING:
    from agentq.daemon.outbox import Leaving, Outbox
    from agentq.wiring import Parts

LANE = PublishResult.lane
BATCH = 100
_POLL_SECONDS = 10.0


class Results(Loop):
    """Carries out the lane `results`. Whoever completes a task does so too, at once."""

    name = "results"
    term = "results"
    spacing = 1.0

    def __init__(self, parts: Parts, outbox: Outbox) -> None:
        super().__init__()
        self._parts = parts
        self._outbox = outbox

    def topics(self) -> frozenset[str]:
        return frozenset((EVENTS_TOPIC,))

    def run_once(self) -> float:
        effects = self._outbox.look(LANE, BATCH)
        done: list[Leaving] = []
        broken: list[Leaving] = []
        try:
            for effect in effects:
                (done if self._publish(effect) else broken).append(effect)
        finally:
            # Also what was done before the disk went away.
            self._outbox.settle(done, broken)
            self.tally.add("published", len(done))
            self.tally.add("broken", len(broken))
        return 0.0 if len(effects) == BATCH else _POLL_SECONDS

    def _publish(self, effect: Leaving) -> bool:
        """False if the evidence is not there, or not what was recorded: that mends by hand only,
        and must not keep others from being published."""
        said, task = effect.said, effect.task
        try:
            self._parts.artifacts.publish_result(
                task.id, int(said["epoch"]), str(said["name"]), str(said["sha256"])
            )
        except (Damaged, Conflict, NotFound, Invalid) as error:
            if effect.tries == 0:
                log.error("results: the result of %s cannot be published: %s", task.id, error)
            return False
        return True
