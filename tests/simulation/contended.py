"""Histories in which tasks stand in each other's way: each needs several resources at once.

In the usual histories few tasks need two, and it is rarer still that one claim picks two of which
the first leaves the second without. Bugs that show only then are hunted here (`Bug.world`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentq.core.task import Spec
from agentq.core.values import replace
from tests.simulation.specs import RESOURCES, SpecMaker
from tests.simulation.world import World

TASKS_MIN = 12


@dataclass(slots=True)
class NeedySpecs(SpecMaker):
    """The usual specs, each of which needs most of the resources there are."""

    def make(self, sender: str, there: list[str], *, nested: bool = False) -> Spec:
        # By name: `super()` does not find its way in a dataclass with slots.
        spec = SpecMaker.make(self, sender, there, nested=nested)
        wanted = self.rng.sample(RESOURCES, self.rng.randrange(2, len(RESOURCES) + 1))
        return replace(spec, resources=tuple(wanted))


class ContendedWorld(World):
    """One history of many such tasks, with faults and everything else as drawn."""

    def __init__(
        self, seed: int, steps: int = 0, tell: Callable[[str], None] | None = None
    ) -> None:
        super().__init__(seed, steps, tell)
        self.profile = replace(self.profile, tasks=max(self.profile.tasks, TASKS_MIN))
        self.specs = NeedySpecs(self.rng, self.profile.features, self.profile.kinship)
