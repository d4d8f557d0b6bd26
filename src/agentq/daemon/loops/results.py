"""Results: accepted results are published under `results/`, also if their worker died then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.contracts.doorbell import lane_topic
from agentq.core.access import SYSTEM
from agentq.core.effects import PublishResult
from agentq.daemon.loop import Loop, log

if TYPE_CHECKING:
    from agentq.contracts.service import Service

_POLL_SECONDS = 10.0


class Results(Loop):
    """Publishes what waits. The service does so too, at once, when a task is completed."""

    name = "results"
    term = "results"
    spacing = 1.0
    topics = frozenset({lane_topic(PublishResult.lane)})

    def __init__(self, service: Service) -> None:
        super().__init__()
        self._service = service

    def run_once(self) -> float:
        results = self._service.publish_results(SYSTEM)
        for task_id, reason in results.reasons:
            log.error("results: the result of %s cannot be published: %s", task_id, reason)
        self.tally.add("published", results.published)
        self.tally.add("broken", results.failed)
        return 0.0 if results.more else _POLL_SECONDS
