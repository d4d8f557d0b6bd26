"""What a history is made of. Each draws its own mix: features and faults, alone and together."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from agentq.core.values import replace
from tests.simulation.faults import NO_FAULTS, FaultRates
from tests.simulation.specs import FEATURES, KINSHIP

HOUR_MS = 3_600_000
#: In so many of all histories tasks are held.
HOLDS_SHARE = 0.35


@dataclass(frozen=True, slots=True)
class Profile:
    """What one history is made of."""

    steps: int
    tasks: int
    workers: int
    features: frozenset[str]
    rates: FaultRates
    dies: float
    dies_at_once: float
    oversleeps: float
    delays: float
    doubles: float
    jumps: float
    ticker_stops: float
    people_stay: bool
    dedup_ms: int
    #: Whether providers fail, and roles cannot work for a while.
    bad_surroundings: bool = False
    #: How tasks are related (`specs.KINSHIP`): in half of the histories not at all.
    kinship: frozenset[str] = frozenset()
    #: Whether somebody holds tasks, and dispatches them.
    holds: bool = False

    @classmethod
    def draw(cls, rng: Random, steps: int = 0) -> Profile:
        some = (0.0, 0.05, 0.15)
        return cls(
            steps=steps or rng.randrange(40, 130),
            tasks=rng.randrange(3, 22),
            workers=rng.randrange(1, 4),
            features=frozenset(rng.sample(FEATURES, rng.randrange(1, len(FEATURES)))),
            rates=FaultRates.draw(rng) if rng.random() < 0.85 else NO_FAULTS,
            dies=rng.choice(some),
            dies_at_once=rng.choice(some),
            oversleeps=rng.choice(some),
            delays=rng.choice(some),
            doubles=rng.choice(some),
            jumps=rng.choice((0.0, 1.0)),
            ticker_stops=rng.choice((0.0, 1.0)),
            people_stay=rng.random() < 0.8,
            dedup_ms=rng.choice((8 * HOUR_MS, 30 * 24 * HOUR_MS)),
        )

    def among_relatives(self, kinship: frozenset[str]) -> Profile:
        """The same where tasks make others: fewer to begin with, and more time with faults."""
        return replace(self, kinship=kinship, tasks=(self.tasks + 4) // 3, steps=self.steps + 20)


def draw_holds(seed: int) -> bool:
    """Whether tasks are held in a history, drawn apart likewise."""
    return Random(f"holding {seed}").random() < HOLDS_SHARE


def draw_kinship(seed: int) -> frozenset[str]:
    """How the tasks of a history are related. It is drawn apart from all else, so that histories
    without relatives are the same whatever others may know."""
    rng = Random(f"descent {seed}")
    if rng.random() >= 0.5:
        return frozenset()
    return frozenset(rng.sample(KINSHIP, rng.randrange(1, len(KINSHIP) + 1)))
