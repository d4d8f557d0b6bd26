"""Rows of schedules, as a store keeps them (see `contracts.store`)."""

# Without `from __future__ import annotations`: a NamedTuple compiles every annotation that is text,
# at each start.
from typing import NamedTuple


class ScheduleRow(NamedTuple):
    """How a schedule stands. Moments are milliseconds, 0 where there is none; `open_tasks` are ids
    with spaces between them. What the columns mean is in the migration that made them."""

    name: str
    rule: str = ""
    digest: str = ""
    since_at: int = 0
    next_at: int = 0
    wake_at: int = 0
    last_at: int = 0
    asked_at: int = 0
    ran_at: int = 0
    paused: int = 0
    problem: str = ""
    fired: int = 0
    skipped: int = 0
    open_tasks: str = ""
    note: str = ""
