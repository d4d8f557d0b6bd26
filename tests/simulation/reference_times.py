"""When a rule occurs, found the slow way: minute by minute, by what the zone's clock shows.

Nothing here is shared with `agentq.protocol.occurrences`, so that both can be held against each
other. It knows the few forms of expressions that histories use.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

#: How long a history may last.
DAYS = 5
_MINUTE = 60_000
_ONE = timedelta(minutes=1)


@lru_cache(maxsize=1000)
def reference(rule: str, since: int, start: int) -> tuple[int, ...]:
    """The occurrences of a rule from the start of a history to its end."""
    words = rule.split()
    end, until = start + DAYS * 86_400_000, 2**60
    if "until" in words:
        until = int(words[words.index("until") + 1])
    if words[0] == "every":
        every = int(words[1])
        found = tuple(range(since + every, end, every))
    else:
        found = _by_clock(words[1], words[2], words[6], start, end)
    return tuple(each for each in found if each <= until)


@lru_cache(maxsize=1000)
def _by_clock(minutes: str, hours: str, zone: str, start: int, end: int) -> tuple[int, ...]:
    wanted = (_numbers(minutes, 60), _numbers(hours, 24))
    fixed = not minutes.startswith("*") and not hours.startswith("*")
    clock, shown, found = ZoneInfo(zone), set[datetime](), list[int]()
    previous: datetime | None = None
    for moment in range(start // _MINUTE * _MINUTE, end, _MINUTE):
        wall = datetime.fromtimestamp(moment // 1000, UTC).astimezone(clock)
        wall = wall.replace(tzinfo=None, fold=0)
        skipped = []
        if previous is not None and wall > previous + _ONE:
            count = (wall - previous) // _ONE
            skipped = [previous + _ONE * number for number in range(1, count)]
        matches = wall.minute in wanted[0] and wall.hour in wanted[1]
        if fixed:
            # Each time of the wall clock once; what is skipped, when the clock has jumped.
            matches = (matches and wall not in shown) or any(
                each.minute in wanted[0] and each.hour in wanted[1] for each in skipped
            )
            shown.add(wall)
        if matches:
            found.append(moment)
        previous = wall
    return tuple(found)


def _numbers(field: str, count: int) -> frozenset[int]:
    if field.startswith("*"):
        return frozenset(range(0, count, int(field[2:] or 1)))
    if "-" in field:
        low, high = map(int, field.split("-"))
        return frozenset(range(low, high + 1))
    return frozenset(map(int, field.split(",")))
