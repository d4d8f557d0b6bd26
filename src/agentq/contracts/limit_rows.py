"""Rows of what holds claims back: the limits of roles, and the circuits of providers and roles."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from typing import NamedTuple


class RoleRow(NamedTuple):
    id: int
    name: str
    max_running: int
    max_review: int
    paused: int
    seen_at: int
    #: Whose quota its workers use, as they last said; "" for nobody's.
    provider: str = ""
    #: What it may spend a day, as JSON; "" for any amount.
    daily: str = ""
    #: Why it needs a person, who says so and since when, as JSON; "" if it does not.
    circuit: str = ""

    @property
    def is_limited(self) -> bool:
        return bool(
            self.paused or self.max_running or self.max_review or self.daily or self.circuit
        )


class CircuitRow(NamedTuple):
    """A provider that does not serve before `open_until`, and then one task alone if it has failed
    (see `core.circuits`)."""

    provider: str
    open_until: int
    reason: str
    opened_at: int
    opened_by: str
    failures: int = 0
    probing: int = 0
