"""What one step committed, as the checker has read it from the tables."""

from __future__ import annotations

from agentq.core.triggers import Event
from tests.simulation.shadow import Shadow


class StepFacts:
    """Events in the order in which they were decided, and what they came to."""

    def __init__(self) -> None:
        self.events: list[tuple[Shadow, Event]] = []
        self.ended: dict[str, Shadow] = {}
        self.claimed: list[int] = []
        self.vanished: list[int] = []
