"""When a provider serves again, from whatever it said: a number, a date, "in 20s", "resets 3pm".

All moments are Unix milliseconds, and 0 means that it did not say. A moment that has passed, or is
weeks away, counts as not said: a slip of a tool must not close a provider for a year.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

WAIT_MS_MAX = 45 * 86_400_000

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNIT = r"(?:milliseconds?|ms|days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"
_PART = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?)\s{{0,3}}({_UNIT})", re.IGNORECASE)
_RELATIVE = re.compile(
    r"(?:\bin|\bafter|delay\W{1,4}|after\W{1,4})\s{0,3}"
    rf"((?:\d{{1,9}}(?:\.\d{{1,9}})?\s{{0,3}}{_UNIT}[\s,]{{0,3}}(?:and\s)?){{1,6}})",
    re.IGNORECASE,
)
_BARE_SECONDS = re.compile(r"retry.after\W{1,4}(\d{1,7})(?![\d.]|\s?[a-z])", re.IGNORECASE)
_UNIX = re.compile(r"(?<![\d.])(\d{10}|\d{13})(?![\d.])")
_ISO = re.compile(
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?", re.IGNORECASE
)
_MONTHS = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
]  # fmt: skip
_CLOCK = re.compile(
    r"\b(?:at|resets?|until|again|on)\s(?:(?:on|at)\s)?"
    rf"(?:(?P<month>{'|'.join(_MONTHS)})[a-z]{{0,7}}\.?\s(?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    r"(?:,?\s(?P<year>20\d\d))?)?"
    r"(?:[\s,]{0,3}(?:at\s)?(?P<hour>\d{1,2})(?::(?P<minute>[0-5]\d))?\s?(?P<half>[ap]m)?(?!\d))?"
    r"(?:\s?\((?P<zone>[A-Za-z_]{1,30}(?:/[A-Za-z_+-]{1,30}){0,2})\))?",
    re.IGNORECASE,
)


def moment(value: object, now: int) -> int:
    """A moment as tools write it into a field: Unix seconds or milliseconds, or ISO 8601."""
    if type(value) is int or type(value) is float:
        if not 0 < value < 1e14:
            return 0
        return _plausible(int(value if value >= 1e11 else value * 1000), now)
    if type(value) is str:
        written = value[:64].strip()
        if re.fullmatch(r"\d{10}(?:\d{3})?", written):
            return moment(int(written), now)
        return _plausible(_iso(written), now)
    return 0


def reset_time(words: str, now: int, zone: tzinfo | None = None) -> int:
    """The moment a message speaks of. Times of day are the machine's own unless it names a zone."""
    words = words[:4000]
    for found in _RELATIVE.finditer(words):
        wait = sum(float(n) * _unit_ms(unit) for n, unit in _PART.findall(found[1]))
        if 0 < wait <= WAIT_MS_MAX:
            return now + int(wait)
    if found_seconds := _BARE_SECONDS.search(words):
        return _plausible(now + int(found_seconds[1]) * 1000, now)
    for found in _ISO.finditer(words):
        if at := _plausible(_iso(found[0]), now):
            return at
    for found in _UNIX.finditer(words):
        if at := moment(int(found[1]), now):
            return at
    for found in _CLOCK.finditer(words):
        if at := _plausible(_on_the_clock(found, now, zone), now):
            return at
    return 0


def _plausible(at: int, now: int) -> int:
    return at if now < at <= now + WAIT_MS_MAX else 0


def _unit_ms(unit: str) -> int:
    unit = unit.lower()
    return _UNIT_MS["ms" if unit.startswith(("ms", "milli")) else unit[0]]


def _iso(written: str) -> int:
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        return 0
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    try:
        return int(at.timestamp() * 1000)
    except (OverflowError, ValueError):
        return 0


def _on_the_clock(found: re.Match[str], now: int, zone: tzinfo | None) -> int:
    month, hour = found["month"], found["hour"]
    if not month and not (hour and (found["half"] or found["minute"])):
        return 0  # a bare number is not a time of day
    here = datetime.fromtimestamp(now / 1000, UTC).astimezone(_zone(found["zone"]) or zone)
    try:
        at = here.replace(
            hour=_hour(int(hour or 0), found["half"]),
            minute=int(found["minute"] or 0),
            second=0,
            microsecond=0,
        )
        if month:
            year = int(found["year"] or here.year)
            at = at.replace(year, _MONTHS.index(month.lower()) + 1, int(found["day"]))
            if at <= here and not found["year"]:
                at = at.replace(year + 1)
        elif at <= here:
            at += timedelta(days=1)
        return int(at.timestamp() * 1000)
    except (OverflowError, ValueError):
        return 0  # the 31st of February, 29 o'clock


def _hour(hour: int, half: str | None) -> int:
    if not half:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(hour)
    return hour % 12 + (12 if half.lower() == "pm" else 0)


def _zone(name: str | None) -> tzinfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
