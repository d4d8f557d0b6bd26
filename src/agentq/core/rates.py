"""How often tasks may start: a rate, and the bucket of tokens that keeps to it. Pure arithmetic.

A bucket holds at most `burst` tokens. Every start takes one, and in `seconds` so many come back as
`starts` says. A level is counted in parts of a token so small that each millisecond brings a whole
number of them: a token is `seconds * 1000` parts, and a millisecond brings `starts` parts. Nothing
is rounded, so nothing drifts, however often somebody looks.
"""

from __future__ import annotations

import re

import msgspec

from agentq.core.durations import format_duration, parse_duration
from agentq.core.errors import Invalid

STARTS_MAX = 1_000_000
RATE_SECONDS_MAX = 366 * 24 * 3600
#: Processes that wait for each other's locks read the clock in another order than they go on, and
#: are behind by moments. Whoever is behind by more than this looks at a clock that was set back.
SET_BACK_MS = 60_000

_WRITTEN = re.compile(r"\s*([0-9]{1,12})\s*/\s*([0-9a-zA-Z ]{1,40})")
_REMEDY = "Write it like 10/1m (ten in a minute) or 5/1h; 0 for no limit."


class Rate(msgspec.Struct, frozen=True):
    """So many starts in so many seconds. After a quiet time `burst` may start at once; 0 stands
    for as many as `starts`. A rate of 0 starts is no limit.

    >>> Rate.parse("10/1m"), str(Rate(5, 3600, burst=1))
    (Rate(starts=10, seconds=60, burst=0), '5/1h, at most 1 at once')
    """

    starts: int = 0
    seconds: int = 0
    burst: int = 0

    @classmethod
    def parse(cls, text: str, burst: int = 0) -> Rate:
        """Return the rate that a text like `10/1m` stands for; raises `Invalid` for others."""
        if text.strip() == "0":
            return checked(cls(burst=burst))
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise Invalid(f"rate: expected starts in a time, got {text[:60]!r}.", _REMEDY)
        starts, period = found.groups()
        return checked(cls(int(starts), parse_duration(period, field="rate"), burst))

    @property
    def most(self) -> int:
        """How many tokens the bucket holds at most."""
        return self.burst or self.starts

    @property
    def parts_of_token(self) -> int:
        return self.seconds * 1000

    def __str__(self) -> str:
        if not self.starts:
            return "any"
        often = f"{self.starts}/{format_duration(self.seconds, exact=True)}"
        return often if self.most == self.starts else f"{often}, at most {self.most} at once"


NO_RATE = Rate()


def checked(rate: Rate) -> Rate:
    """Return the rate; raises `Invalid` if it is none that a bucket can keep to."""
    if any(type(each) is not int for each in (rate.starts, rate.seconds, rate.burst)):
        raise Invalid(f"rate: expected whole numbers, got {rate!r}.", _REMEDY)
    if rate.burst and not rate.starts:
        raise Invalid("A burst belongs to a rate, and there is none.", "Say the rate too: 10/1m.")
    if rate == NO_RATE:
        return rate
    if not 1 <= rate.starts <= STARTS_MAX:
        raise Invalid(f"rate: expected 1 to {STARTS_MAX} starts, got {rate.starts}.", _REMEDY)
    if not 1 <= rate.seconds <= RATE_SECONDS_MAX:
        raise Invalid(f"rate: expected a time of 1s to 366d, got {rate.seconds} s.", _REMEDY)
    if not 0 <= rate.burst <= STARTS_MAX:
        raise Invalid(f"burst: expected 1 to {STARTS_MAX}, got {rate.burst}.", _REMEDY)
    return rate


class TokenBucket(msgspec.Struct, frozen=True):
    """What was in the bucket at a moment, in parts of a token."""

    level: int
    level_at: int


def full(rate: Rate, now: int) -> TokenBucket:
    return TokenBucket(rate.most * rate.parts_of_token, now)


def refilled(bucket: TokenBucket, rate: Rate, now: int) -> TokenBucket:
    """Return what is in the bucket now.

    Under a clock that was set back nothing comes in for the time that seems not to have passed, and
    nothing is lost: from now on it is measured anew.
    """
    most = rate.most * rate.parts_of_token
    passed = now - bucket.level_at
    if passed < 0:
        return TokenBucket(
            min(bucket.level, most), now if passed < -SET_BACK_MS else bucket.level_at
        )
    return TokenBucket(min(bucket.level + passed * rate.starts, most), now)


def tokens(bucket: TokenBucket, rate: Rate) -> int:
    """How many may start by what is in the bucket."""
    return bucket.level // rate.parts_of_token


def taken(bucket: TokenBucket, rate: Rate, count: int) -> TokenBucket:
    """Return the bucket after so many starts."""
    assert 0 <= count <= tokens(bucket, rate), "nobody takes what is not there"
    return TokenBucket(bucket.level - count * rate.parts_of_token, bucket.level_at)


def next_at(bucket: TokenBucket, rate: Rate) -> int:
    """When there will be a token, if nobody takes one before; 0 if there is one."""
    missing = rate.parts_of_token - bucket.level
    return bucket.level_at - (-missing // rate.starts) if missing > 0 else 0


def changed(bucket: TokenBucket, before: Rate, after: Rate, now: int) -> TokenBucket:
    """Return the bucket of a rate that was set anew: whole tokens stay, and a first one is full."""
    if not before.starts:
        return full(after, now)
    there = tokens(refilled(bucket, before, now), before)
    return TokenBucket(min(there, after.most) * after.parts_of_token, now)
