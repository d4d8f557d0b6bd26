"""Token buckets: whole numbers, no drift, never below nothing, and harmless clocks."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core import rates
from agentq.core.errors import Invalid
from agentq.core.rates import NO_RATE, RATE_SECONDS_MAX, SET_BACK_MS, STARTS_MAX, Rate, TokenBucket

NOW = 1_800_000_000_000
RATES = st.builds(
    Rate, st.integers(1, STARTS_MAX), st.integers(1, RATE_SECONDS_MAX), st.integers(0, STARTS_MAX)
)
PAUSES = st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(0, 5)), max_size=30)


def take_some(bucket: TokenBucket, rate: Rate, wanted: int) -> tuple[TokenBucket, int]:
    count = min(wanted, rates.tokens(bucket, rate))
    return rates.taken(bucket, rate, count), count


@given(RATES, PAUSES)
def test_however_often_somebody_looks_the_same_comes_in(
    rate: Rate, pauses: list[tuple[int, int]]
) -> None:
    """One who looks at every moment and one who looks at the last have the same bucket."""
    empty, now = TokenBucket(0, NOW), NOW
    often = empty
    for pause, _ in pauses:
        now += pause
        often = rates.refilled(often, rate, now)
    assert often == rates.refilled(empty, rate, now)


@given(RATES, PAUSES)
def test_no_stretch_of_time_gives_more_than_burst_and_rate(
    rate: Rate, pauses: list[tuple[int, int]]
) -> None:
    bucket, now = rates.full(rate, NOW), NOW
    starts: list[int] = []
    for pause, wanted in pauses:
        now += pause
        bucket, count = take_some(rates.refilled(bucket, rate, now), rate, wanted)
        starts += [now] * count
        assert 0 <= bucket.level <= rate.most * rate.parts_of_token
    for nth, since in enumerate(starts):
        gained = Fraction((now - since) * rate.starts, rate.parts_of_token)
        assert len(starts) - nth <= rate.most + gained


@given(RATES, st.integers(0, 10**16), st.integers(0, 10**9))
def test_the_next_comes_at_that_very_moment(rate: Rate, level: int, passed: int) -> None:
    bucket = TokenBucket(min(level, rate.most * rate.parts_of_token), NOW)
    bucket = rates.refilled(bucket, rate, NOW + passed)
    moment = rates.next_at(bucket, rate)
    if not moment:
        assert rates.tokens(bucket, rate) >= 1
        return
    assert moment > NOW + passed and rates.tokens(bucket, rate) == 0
    assert rates.tokens(rates.refilled(bucket, rate, moment - 1), rate) == 0
    assert rates.tokens(rates.refilled(bucket, rate, moment), rate) >= 1


@given(RATES, st.integers(0, 10**16), st.integers(1, 10**10))
def test_a_clock_that_was_set_back_gives_and_takes_nothing(
    rate: Rate, level: int, back: int
) -> None:
    bucket = TokenBucket(min(level, rate.most * rate.parts_of_token), NOW)
    after = rates.refilled(bucket, rate, NOW - back)
    assert after.level == bucket.level
    # By a moment: another process was faster. By more: measured anew, so that nobody waits for
    # the clock to come to where it was.
    assert after.level_at == (NOW if back <= SET_BACK_MS else NOW - back)


def test_a_minute_in_numbers() -> None:
    rate = Rate.parse("10/1m")
    bucket, count = take_some(rates.full(rate, NOW), rate, 99)
    assert count == 10 and rates.next_at(bucket, rate) == NOW + 6_000
    assert rates.tokens(rates.refilled(bucket, rate, NOW + 59_999), rate) == 9
    assert rates.tokens(rates.refilled(bucket, rate, NOW + 86_400_000), rate) == 10


def test_a_rate_that_is_set_anew_keeps_whole_tokens() -> None:
    slow, quick = Rate(2, 3600), Rate(10, 60, burst=1)
    first = rates.changed(TokenBucket(0, 0), NO_RATE, quick, NOW)
    assert rates.tokens(first, quick) == 1
    spent = rates.taken(rates.full(slow, NOW), slow, 1)
    assert rates.changed(spent, slow, quick, NOW) == TokenBucket(60_000, NOW)
    none = rates.taken(spent, slow, 1)
    assert rates.changed(none, slow, quick, NOW) == TokenBucket(0, NOW), "no way to fill it"


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/1m", Rate(10, 60)),
        (" 5 / 1h30m ", Rate(5, 5400)),
        ("1/90", Rate(1, 90)),
        ("0", NO_RATE),
    ],
)
def test_written_rates(text: str, rate: Rate) -> None:
    assert Rate.parse(text) == rate
    assert Rate.parse(str(rate)) == rate if rate.starts else str(rate) == "any"


@pytest.mark.parametrize(
    "text",
    ["", "abc", "10", "10/", "/1m", "-1/1m", "1.5/1m", "0/1m", "10/0s", "10/1y", "1/1m/1m",
     "9999999/1s", "1/400d", "9" * 13 + "/1m"],
)  # fmt: skip
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        Rate.parse(text)
    assert "rate" in caught.value.cause and caught.value.remedy


@pytest.mark.parametrize(
    "rate",
    [Rate(1, 0), Rate(0, 60), Rate(burst=1), Rate(1, 60, -1), Rate(1, 60, STARTS_MAX + 1),
     Rate(1.5, 60), Rate(True, 60)],  # type: ignore[arg-type]
)  # fmt: skip
def test_what_no_bucket_can_keep_to(rate: Rate) -> None:
    with pytest.raises(Invalid):
        rates.checked(rate)


def test_a_clock_counts_as_set_back_after_a_minute() -> None:
    # Whoever waited for a lock for less than that still measures by the clock that was ahead.
    bucket, rate = TokenBucket(0, NOW), Rate(1, 60)
    assert rates.refilled(bucket, rate, NOW - 60_000).level_at == NOW
    assert rates.refilled(bucket, rate, NOW - 60_001).level_at == NOW - 60_001
