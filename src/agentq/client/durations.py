"""Durations as callers of the SDK give them: a `timedelta`, seconds, or text such as "15m"."""

from __future__ import annotations

import math
from datetime import timedelta

from agentq.core.durations import DURATION_SECONDS_MAX, parse_duration
from agentq.core.errors import Invalid

#: A span of time wherever the SDK takes one.
Duration = timedelta | float | str


def seconds_of(value: object, field: str = "duration") -> float:
    """Return a waiting time in seconds; zero means not to wait at all.

    >>> seconds_of("15m"), seconds_of(0.5), seconds_of(timedelta(minutes=1))
    (900.0, 0.5, 60.0)
    """
    if isinstance(value, str):
        return float(parse_duration(value, field=field, allow_zero=True))
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise Invalid(
            f"{field}: expected a timedelta, seconds or text such as '15m', got {value!r}."
        )
    if value < 0:
        raise Invalid(f"{field}: expected a time span, got the negative {value!r}.")
    return float(value)


def seconds_or_none(value: Duration | None, field: str) -> float | None:
    """Return a waiting time in seconds; None stays None and means without an end."""
    return None if value is None else seconds_of(value, field)


def whole_seconds(value: object, field: str = "duration", *, allow_zero: bool = False) -> int:
    """Return a span that the ledger keeps in whole seconds, such as a TTL.

    >>> whole_seconds(timedelta(hours=2)), whole_seconds("90s")
    (7200, 90)
    """
    if isinstance(value, timedelta):
        if value.microseconds:
            raise Invalid(f"{field}: expected whole seconds, got {value}.", "Round it.")
        value = value.days * 86_400 + value.seconds
    return parse_duration(value, field=field, allow_zero=allow_zero)


def milliseconds_of(duration: Duration | None, field: str = "lease") -> int:
    """Return a duration in milliseconds; None is 0: as the task says, or without an end."""
    if duration is None:
        return 0
    span = seconds_of(duration, field)
    if not 0 < span <= DURATION_SECONDS_MAX:
        raise Invalid(f"{field}: expected more than zero and at most 10 years, got {duration!r}.")
    return math.ceil(span * 1000)
