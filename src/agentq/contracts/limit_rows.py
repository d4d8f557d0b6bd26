"""Rows of what holds claims back: the limits of roles and of resources, and the circuits of
providers and roles."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from collections.abc import Iterable, Sequence
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
    #: How often its tasks may start, as JSON; "" for any number. Then what is in the bucket, since
    #: when, and when there will be a token (0: there is one); see `core.rates`.
    rate: str = ""
    level: int = 0
    level_at: int = 0
    next_at: int = 0

    @property
    def is_limited(self) -> bool:
        return bool(
            self.paused
            or self.max_running
            or self.max_review
            or self.daily
            or self.circuit
            or self.rate
        )


class ResourceRow(NamedTuple):
    """A resource: its limits, its bucket (as in `RoleRow`), and who holds it: (place, task id).

    A place is a number; no two tasks have the same. One without limits has one place, number 0.
    """

    name: str
    max_held: int = 1
    rate: str = ""
    level: int = 0
    level_at: int = 0
    next_at: int = 0
    holders: tuple[tuple[int, str], ...] = ()


def resource_rows(
    names: Sequence[str],
    limits: Iterable[Sequence[object]],
    holders: Iterable[tuple[str, int, str]],
) -> list[ResourceRow]:
    """One row for each name, and for each that has limits, by name."""
    rows = {name: ResourceRow(name) for name in names}
    rows |= {row.name: row for row in (ResourceRow._make((*each, ())) for each in limits)}
    for name, place, task_id in holders:
        row = rows[name]
        rows[name] = row._replace(holders=(*row.holders, (place, task_id)))
    return [rows[name] for name in sorted(rows)]


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
