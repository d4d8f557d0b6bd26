"""Durations as people write them: `90s`, `15m`, `8h`, `2d`, `1w`, `1h30m`, or plain seconds."""

from __future__ import annotations

import re

from agentq.core.errors import Invalid

#: Largest first, which is also the order in which they must be written.
UNIT_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}

#: Ten years. Longer is a slip of the finger, and would overflow somebody's calendar.
DURATION_SECONDS_MAX = 3_650 * 86_400

_WRITTEN = re.compile(
    r"(?:(?P<w>[0-9]{1,12})w)? ?(?:(?P<d>[0-9]{1,12})d)? ?(?:(?P<h>[0-9]{1,12})h)? ?"
    r"(?:(?P<m>[0-9]{1,12})m)? ?(?:(?P<s>[0-9]{1,12})s)?"
)
_PLAIN_SECONDS = re.compile(r"[0-9]{1,12}")
_REMEDY = "Write it like 90s, 15m, 8h, 2d, 1w or 1h30m; a plain number means seconds."


def parse_duration(text: object, *, field: str = "duration", allow_zero: bool = False) -> int:
    """Return the seconds that `text` stands for; `field` is named when it stands for none.

    >>> parse_duration("1h30m"), parse_duration("90s"), parse_duration(15)
    (5400, 90, 15)
    """
    seconds = _seconds(text, field)
    if seconds == 0 and not allow_zero:
        raise Invalid(f"{field}: expected more than zero, got {_shown(text)}.", _REMEDY)
    if seconds < 0:
        raise Invalid(f"{field}: expected a time span, got the negative {_shown(text)}.", _REMEDY)
    if seconds > DURATION_SECONDS_MAX:
        raise Invalid(f"{field}: expected at most 10 years (3650d), got {_shown(text)}.", _REMEDY)
    return seconds


def format_duration(seconds: int, *, exact: bool = False) -> str:
    """Return a short text: the two largest units, or with `exact` one that parses to the same.

    >>> format_duration(93_784), format_duration(93_784, exact=True), format_duration(0)
    ('1d2h', '1d2h3m4s', '0s')
    """
    sign, rest = ("-", -seconds) if seconds < 0 else ("", seconds)
    parts: list[str] = []
    for unit, size in UNIT_SECONDS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
        elif parts and not exact:
            break  # "1d4s" would look more precise than it is: small units follow their neighbour
        if len(parts) == 2 and not exact:
            break
    return sign + ("".join(parts) or "0s")


def _seconds(text: object, field: str) -> int:
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    if not isinstance(text, str):
        raise Invalid(f"{field}: expected a duration, got {_shown(text)}.", _REMEDY)
    written = text.strip(" \t")
    if _PLAIN_SECONDS.fullmatch(written):
        return int(written)
    match = _WRITTEN.fullmatch(written)
    if match is None or not written:
        raise Invalid(f"{field}: expected a duration, got {_shown(text)}.", _REMEDY)
    return sum(
        int(count) * UNIT_SECONDS[unit] for unit, count in match.groupdict().items() if count
    )


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a number of more than 20 digits"  # Python refuses to print the very largest
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
