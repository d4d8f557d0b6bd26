"""When an agent works: days of the week and times of the day, in a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from agentq.core.errors import Invalid

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = re.compile(r"(?:([a-z]{3})(?:-([a-z]{3}))?\s+)?(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DAY_MINUTES = 24 * 60
_EXAMPLE = "Write for example `hours: Mon-Fri 09:00-18:00`, or a list of such."


@dataclass(frozen=True, slots=True)
class WorkingHours:
    """Spans of a week, as (weekday, first minute, last minute exclusive), in a zone."""

    spans: tuple[tuple[int, int, int], ...]
    zone: str = "UTC"

    def is_open(self, at_ms: int) -> bool:
        """Whether this moment is within the hours; it always is where there are none."""
        if not self.spans:
            return True
        local = _local(at_ms, self.zone)
        minute = local.hour * 60 + local.minute
        return any(
            day == local.weekday() and first <= minute < last for day, first, last in self.spans
        )

    def next_open(self, at_ms: int) -> int:
        """The first moment from this one on that is within the hours."""
        if self.is_open(at_ms):
            return at_ms
        local = _local(at_ms, self.zone)
        starts = []
        for days in range(8):
            date = (local + timedelta(days=days)).date()
            for day, first, _ in self.spans:
                if day == date.weekday():
                    start = datetime(
                        date.year, date.month, date.day, first // 60, first % 60,
                        tzinfo=ZoneInfo(self.zone),
                    )  # fmt: skip
                    # A time that a change of clocks leaves out is the moment after it.
                    starts.append(int(start.astimezone(UTC).timestamp() * 1000))
        return min(each for each in starts if each > at_ms)


ANY_TIME = WorkingHours(())


def parse_hours(texts: tuple[str, ...], zone: str) -> WorkingHours:
    """Read spans like `Mon-Fri 09:00-18:00`; one that ends before it begins goes on after midnight.

    Raises `Invalid` for anything else.
    """
    spans: list[tuple[int, int, int]] = []
    for text in texts:
        found = _SPAN.fullmatch(text.strip().lower())
        if found is None:
            raise Invalid(f"{text[:60]!r} are no working hours.", _EXAMPLE)
        first_day, last_day, *times = found.groups()
        hour, minute, end_hour, end_minute = map(int, times)
        begin, end = hour * 60 + minute, end_hour * 60 + end_minute
        if max(minute, end_minute) > 59 or max(begin, end) > _DAY_MINUTES or begin == end:
            raise Invalid(f"{text[:60]!r} has a time that does not exist.", _EXAMPLE)
        for day in _days_between(first_day, last_day, text):
            if begin < end:
                spans.append((day, begin, end))
            else:
                spans += [(day, begin, _DAY_MINUTES), ((day + 1) % 7, 0, end)]
    return WorkingHours(tuple(sorted({each for each in spans if each[1] < each[2]})), zone)


def check_zone(name: str) -> str:
    """Return the name of a time zone that this machine knows; raises `Invalid` for others."""
    if not _is_zone(name):
        raise Invalid(
            f"{name[:60]!r} is no time zone that this machine knows.",
            "Name one like Europe/Berlin, America/New_York or UTC.",
        )
    return name


@lru_cache(maxsize=256)
def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # no such name, or one that is no path
        return False
    return True


def _days_between(first: str | None, last: str | None, text: str) -> list[int]:
    if first is None:
        return list(range(7))
    if first not in _DAYS or (last is not None and last not in _DAYS):
        raise Invalid(f"{text[:60]!r} names a day that does not exist.", _EXAMPLE)
    begin = _DAYS.index(first)
    count = (_DAYS.index(last) - begin) % 7 if last else 0
    return [(begin + each) % 7 for each in range(count + 1)]


def _local(at_ms: int, zone: str) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))
