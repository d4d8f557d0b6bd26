"""When a schedule's occurrences are: by cron in a time zone, at an interval, or once.

Pure: now, and the moment a schedule was first seen, are arguments. What a zone's clocks do is read
from the zone data of the machine, which is the same data for everybody who asks for that zone.

A cron expression names times on the wall clock of its zone, and twice a year that clock jumps. What
follows is what Debian's cron does, and what people who are asleep at that hour expect:

- An expression with fixed hours and minutes (`30 2 * * *`) occurs once per wall time. A time that
  the clock skips occurs when the clock has jumped; one that it shows twice, the first time.
- An expression whose minute or hour starts with `*` is about how often, not when: it occurs
  whenever the clock shows a matching time, so in an hour that comes twice it occurs twice as often,
  and not at all in one that is skipped.

cronsim says which wall times match; which moments those are is worked out here, because some zones
(Lord Howe) jump by half an hour, which its own handling of zones does not follow.
Moments are milliseconds; 0 stands for none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from functools import lru_cache

from agentq.core.errors import Invalid

#: An occurrence that is decided within this time is on time, whatever `catch_up` says.
GRACE_MS = 60_000
#: With `catch_up: all` so many of the missed ones are made up for, the newest; and so many at once.
CATCH_UP_MAX = 1_000
BATCH_MAX = 50
#: Beyond so many the missed ones are not counted one by one.
_COUNTED_MAX = 2_000

_SECOND = timedelta(seconds=1)
_WEEK = timedelta(days=7)
_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_CRON_REMEDY = (
    "Write minute, hour, day of month, month and day of week: `0 8 * * MON-FRI` is 08:00 on"
    " working days, `*/15 * * * *` every quarter of an hour."
)


class CatchUp(StrEnum):
    """What becomes of occurrences that were missed, because nobody was there."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule occurs: exactly one of `cron` (in `zone`), `every_ms` and `at` is set.

    An interval counts from `start_at`, else from the moment it was first seen. Nothing occurs
    after `until_at`.
    """

    cron: str = ""
    zone: str = "UTC"
    every_ms: int = 0
    start_at: int = 0
    at: int = 0
    until_at: int = 0

    @property
    def rule(self) -> str:
        """The same for the same occurrences, and short enough to be kept."""
        end = f" until {self.until_at}" if self.until_at else ""
        if self.cron:
            return f"cron {self.cron} {self.zone}{end}"
        if self.at:
            return f"at {self.at}{end}"
        return f"every {self.every_ms} from {self.start_at}{end}"


@dataclass(frozen=True, slots=True)
class DueOccurrences:
    """The occurrences to carry out now, how many others were missed and are not made up for, and
    the one to wait for next (0: none)."""

    occurrences: tuple[int, ...] = ()
    missed: int = 0
    next_at: int = 0


def next_after(timing: Timing, after: int, since: int) -> int:
    """Return the first occurrence after that moment; 0 if there is none any more.

    `since` is when the schedule was first seen: an interval without a start counts from there.
    """
    if timing.cron:
        found = _next_by_cron(timing, after)
    elif timing.at:
        found = timing.at if timing.at > after else 0
    else:
        found = _next_by_interval(timing, after, since)
    return found if not timing.until_at or found <= timing.until_at else 0


def occurrences(timing: Timing, after: int, since: int) -> Iterator[int]:
    """Iterate over the occurrences after that moment."""
    while after := next_after(timing, after, since):
        yield after


def due(timing: Timing, next_at: int, now: int, since: int, catch_up: CatchUp) -> DueOccurrences:
    """Decide about every occurrence from `next_at`, the first undecided one, until now."""
    if not next_at or next_at > now:
        return DueOccurrences((), 0, next_at)
    newest, count = _newest(timing, next_at, now, since)
    later = next_after(timing, now, since)
    if catch_up is CatchUp.ALL:
        if len(newest) <= BATCH_MAX:
            return DueOccurrences(newest, count - len(newest), later)
        return DueOccurrences(newest[:BATCH_MAX], count - len(newest), newest[BATCH_MAX])
    last = newest[-1]
    if catch_up is CatchUp.SKIP and now - last > GRACE_MS:
        return DueOccurrences((), count, later)
    return DueOccurrences((last,), count - 1, later)


def _newest(timing: Timing, first: int, now: int, since: int) -> tuple[tuple[int, ...], int]:
    """The newest occurrences from `first` until now, the first among them, and how many there are;
    at least so many, if there are too many to count."""
    kept: deque[int] = deque([first], CATCH_UP_MAX)
    count = 1
    if timing.every_ms:
        last = now if not timing.until_at else min(now, timing.until_at)
        count += max(0, (last - first) // timing.every_ms)
        begin = first + max(0, count - CATCH_UP_MAX) * timing.every_ms
        return tuple(begin + n * timing.every_ms for n in range(min(count, CATCH_UP_MAX))), count
    for each in occurrences(timing, first, since):
        if each > now:
            return tuple(kept), count
        if count == _COUNTED_MAX:
            return _newest_before(timing, first, now, since), count
        kept.append(each)
        count += 1
    return tuple(kept), count


def _newest_before(timing: Timing, first: int, now: int, since: int) -> tuple[int, ...]:
    """The newest of very many, looked for from now back in ever longer steps."""
    span = _DAY_MS
    while True:
        found: deque[int] = deque(maxlen=CATCH_UP_MAX)
        for each in occurrences(timing, max(first, now - span), since):
            if each > now:
                break
            found.append(each)
        if len(found) == CATCH_UP_MAX or now - span <= first:
            return tuple(found)
        span *= 2


def _next_by_interval(timing: Timing, after: int, since: int) -> int:
    if timing.start_at:
        # With a start that is itself the first occurrence.
        if after < timing.start_at:
            return timing.start_at
        steps = (after - timing.start_at) // timing.every_ms + 1
        return timing.start_at + steps * timing.every_ms
    return since + max(1, (after - since) // timing.every_ms + 1) * timing.every_ms


# ---- cron ----------------------------------------------------------------------------------------


def _next_by_cron(timing: Timing, after: int) -> int:
    zone, start = read_zone(timing.zone), _EPOCH + timedelta(milliseconds=after // 1000 * 1000)
    minute, hour = timing.cron.split()[:2]
    fixed = not minute.startswith("*") and not hour.startswith("*")
    found = (_next_fixed if fixed else _next_recurring)(timing.cron, zone, start)
    return 0 if found is None else _milliseconds(found)


def _next_fixed(cron: str, zone: tzinfo, after: datetime) -> datetime | None:
    for wall in _wall_times(cron, _wall(after, zone)):
        moment = wall.replace(tzinfo=zone).astimezone(UTC)
        if _wall(moment, zone) != wall:  # skipped: when the clock has jumped
            before = moment - timedelta(days=1)
            moment = _first_jump(zone, before, moment) or moment
        if moment > after:
            return moment
    return None


def _next_recurring(cron: str, zone: tzinfo, after: datetime) -> datetime | None:
    """Follow the wall clock from jump to jump: between two it runs evenly."""
    wall = earlier = _wall(after, zone)
    while True:
        found = next(_wall_times(cron, earlier), None)
        if found is None:
            return None
        moment = after + (found - wall)
        jump = _first_jump(zone, after, moment)
        if jump is None:
            return moment
        after, wall = jump, _wall(jump, zone)
        earlier = wall - _SECOND  # what the clock shows at the jump itself may match


def _first_jump(zone: tzinfo, after: datetime, until: datetime) -> datetime | None:
    """The first moment after one and until another at which the zone's clock jumps, if there is."""
    offset, low = after.astimezone(zone).utcoffset(), after
    while low < until:
        high = min(low + _WEEK, until)  # no zone jumps there and back within a week
        if high.astimezone(zone).utcoffset() == offset:
            low = high
            continue
        while high - low > _SECOND:
            middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
            if middle.astimezone(zone).utcoffset() == offset:
                low = middle
            else:
                high = middle
        return high
    return None


def _wall_times(cron: str, after: datetime) -> Iterator[datetime]:
    """Times after that one at which the expression matches, on a clock that never jumps."""
    from cronsim import CronSim

    return iter(CronSim(cron, after))


def _wall(moment: datetime, zone: tzinfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


# ---- what people write ---------------------------------------------------------------------------


def read_cron(text: str) -> str:
    """Return a cron expression in its plain form; `Invalid` if it is none, or never occurs."""
    from cronsim import CronSimError

    written = " ".join(text.split())
    written = _NICKNAMES.get(written.lower(), written).upper()
    if len(written.split(" ")) != 5:
        raise Invalid(f"a cron expression has five fields, got {text[:60]!r}", _CRON_REMEDY)
    try:
        found = next(_wall_times(written, datetime(2000, 1, 1)), None)  # noqa: DTZ001 - on a wall
    except (CronSimError, ValueError, TypeError, AssertionError) as error:
        problem = str(error).lower() or "a field that cannot be read"
        raise Invalid(f"the cron expression {text[:60]!r} has a {problem}", _CRON_REMEDY) from error
    if found is None:
        raise Invalid(f"the cron expression {text[:60]!r} never occurs", "Check day and month.")
    return written


@lru_cache(maxsize=512)
def read_zone(name: str) -> tzinfo:
    """Return a time zone by its name, such as Europe/Berlin."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise Invalid(
            f"there is no time zone {name[:60]!r}",
            "Name one like Europe/Berlin, America/New_York or UTC.",
        ) from error


def read_moment(text: str, zone: str) -> int:
    """Return the moment that a date and time mean in a zone, unless they name an offset themselves.

    A time that the zone's clock skips is `Invalid`; of one that it shows twice, the first is meant.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise Invalid(
            f"there is no date and time {text[:60]!r} ({error})", "Write it like 2026-12-01T08:00."
        ) from error
    if not 1970 < moment.year < 3000:
        raise Invalid(f"{text[:60]} is not of this age", "Write it like 2026-12-01T08:00.")
    if moment.tzinfo is None:
        there = read_zone(zone)
        exact = moment.replace(tzinfo=there, fold=0).astimezone(UTC)
        if _wall(exact, there) != moment:
            raise Invalid(
                f"{text[:60]} does not exist in {zone}: the clocks are put forward over it",
                "Name a time before or after.",
            )
        moment = exact
    return _milliseconds(moment)


def iso(moment: int, zone: str = "UTC") -> str:
    """Return a moment as people read it, by the clock of a zone: 2026-12-01T08:00:00+01:00."""
    local = (_EPOCH + timedelta(milliseconds=moment)).astimezone(read_zone(zone))
    return local.isoformat(timespec="milliseconds" if moment % 1000 else "seconds")
