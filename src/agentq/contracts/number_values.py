"""What the service says of how work went over time: samples of each role, and sums of them.

Moments are milliseconds of the ledger's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agentq.core.digests import usage_to_dict
from agentq.core.samples import Latencies, Sample, total_of

#: For which stretches of time there are numbers: how long each sample is, and how many there are.
#: `total` is one sample of all there ever was, also of tasks that are deleted.
PERIODS: dict[str, tuple[int, int]] = {
    "1h": (60_000, 60),
    "24h": (900_000, 96),
    "30d": (86_400_000, 30),
    "total": (0, 1),
}
DEFAULT_PERIOD = "24h"
#: Shares of which the lengths are told.
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class RoleSample:
    """What a role did in the stretch of time that begins at a moment."""

    at: int
    role: str
    sample: Sample


@dataclass(frozen=True, slots=True)
class Numbers:
    """How work went in a period: samples by moment and role; where nothing happened there is none.

    `since` is where the first one would begin, `until` the moment of looking. With `behind` the
    newest events are not among them: there are more than are counted at once.
    """

    period: str
    span_ms: int
    since: int
    until: int
    samples: tuple[RoleSample, ...]
    position: int = 0
    behind: bool = False

    def by_role(self) -> dict[str, Sample]:
        """The whole period, by role."""
        found: dict[str, list[Sample]] = {}
        for each in self.samples:
            found.setdefault(each.role, []).append(each.sample)
        return {role: total_of(samples) for role, samples in sorted(found.items())}


def sample_to_dict(sample: Sample) -> dict[str, Any]:
    """The one JSON shape of a sample."""
    rate = sample.failure_rate
    return {
        "submitted": sample.submitted,
        "started": sample.started,
        "completed": sample.completed,
        "dead": sample.dead,
        "cancelled": sample.cancelled,
        "retried": sample.retried,
        "failed": sample.failed,
        "crashed": sample.crashed,
        "failures": sample.failures,
        "failure_rate": None if rate is None else round(rate, 4),
        **_lengths("waiting", sample.waiting),
        **_lengths("processing", sample.processing),
        "cost": usage_to_dict(sample.cost),
    }


def _lengths(what: str, found: Latencies) -> dict[str, float | None]:
    lengths = {
        f"{what}_{name}_seconds": found.quantile_ms(share) for name, share in _SHARES.items()
    }
    return {name: None if each is None else each / 1000 for name, each in lengths.items()}
