"""The part of the service interface that many logs answer at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.contracts import number_values as n
    from agentq.contracts import service_values as v
    from agentq.core.access import Principal


class Statistics(Protocol):
    """Where time and money went, and how good the work was."""

    def overhead(self, who: Principal, ids: Sequence[str], *, below: bool = False) -> v.Overhead:
        """Return what coordinating these tasks has cost, from their logs; with `below` these and
        all that descend from them."""

    def recent_overhead(self, who: Principal, since_ms: int = 0, role: str = "") -> v.Overhead:
        """Return the same of the newest tasks that were submitted since that moment, at most
        10,000; of one role, if it is given."""

    def quality(self, who: Principal, since_ms: int = 0, role: str = "") -> v.Quality:
        """Return how reviewers judged the work of each role, or of this one, on the newest tasks
        that were submitted since that moment."""

    def numbers(self, who: Principal, period: str = "24h", role: str = "") -> n.Numbers:
        """Return how work went in a period (1h, 24h, 30d, total), of one role or of all: what was
        done, how long it waited and ran, what failed and what it cost, as new as the log."""

    def count_numbers(self, who: Principal) -> bool:
        """Count the next page of the log into stored samples; return whether there may be more."""
