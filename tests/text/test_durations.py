"""Durations: what people write becomes seconds, everything else becomes a clear refusal."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core import durations
from agentq.core.durations import DURATION_SECONDS_MAX, format_duration, parse_duration
from agentq.core.errors import Invalid


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("8h", 28_800),
        ("2d", 172_800),
        ("1w", 604_800),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("1w2d3h4m5s", 788_645),
        (" 5m ", 300),
        ("3600", 3_600),
        (3600, 3_600),
        ("007s", 7),
        ("3650d", DURATION_SECONDS_MAX),
    ],
)
def test_what_people_write(written: object, seconds: int) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    "written",
    [
        "", " ", "s", "h", "1.5h", "-5m", "+5m", "5 m", "5M", "5min", "30m1h", "1h1h", "1h30",
        "1e3", "0x10", "٣s", "５m", "5m\n", "1h  30m", "forever", "1_000s", None, True, False,
        1.5, [], {}, b"5m", "9" * 5_000, "9" * 13 + "s",
    ],
)  # fmt: skip
def test_what_nobody_should_have_to_guess(written: object) -> None:
    with pytest.raises(Invalid) as refusal:
        parse_duration(written, field="ttl")
    assert refusal.value.cause.startswith("ttl: expected")
    assert len(refusal.value.cause) < 200
    assert "90s" in refusal.value.remedy


@pytest.mark.parametrize("written", ["0", "0s", 0, "0h0m"])
def test_zero_only_where_it_means_something(written: object) -> None:
    with pytest.raises(Invalid, match="more than zero"):
        parse_duration(written)
    assert parse_duration(written, allow_zero=True) == 0


@pytest.mark.parametrize("written", ["3651d", DURATION_SECONDS_MAX + 1, "999999999999w", 10**30])
def test_ten_years_are_enough(written: object) -> None:
    with pytest.raises(Invalid, match="at most 10 years"):
        parse_duration(written)


def test_a_number_too_large_to_print_is_refused_all_the_same() -> None:
    with pytest.raises(Invalid, match="at most 10 years"):
        parse_duration(10**5000)


def test_a_negative_number_is_no_time_span() -> None:
    with pytest.raises(Invalid, match="negative"):
        parse_duration(-1, allow_zero=True)


@pytest.mark.parametrize(
    ("seconds", "short", "exact"),
    [
        (0, "0s", "0s"),
        (59, "59s", "59s"),
        (60, "1m", "1m"),
        (90, "1m30s", "1m30s"),
        (3_601, "1h", "1h1s"),
        (93_784, "1d2h", "1d2h3m4s"),
        (604_800, "1w", "1w"),
        (-90, "-1m30s", "-1m30s"),
    ],
)
def test_short_and_exact(seconds: int, short: str, exact: str) -> None:
    assert format_duration(seconds) == short
    assert format_duration(seconds, exact=True) == exact


@given(st.integers(min_value=1, max_value=DURATION_SECONDS_MAX))
def test_the_exact_text_reads_back(seconds: int) -> None:
    assert parse_duration(format_duration(seconds, exact=True)) == seconds


@given(st.integers(min_value=1, max_value=DURATION_SECONDS_MAX))
def test_the_short_text_is_never_longer_than_the_span(seconds: int) -> None:
    shown = parse_duration(format_duration(seconds))
    assert shown <= seconds < shown + max(60, shown)


@given(
    st.one_of(
        st.text(),
        st.text(alphabet="0123456789wdhms. -+"),
        st.integers(),
        st.floats(),
        st.none(),
        st.binary(),
        st.lists(st.integers()),
    )
)
def test_nothing_but_a_number_or_a_refusal(anything: object) -> None:
    try:
        seconds = parse_duration(anything)
    except Invalid:
        return
    assert 0 < seconds <= DURATION_SECONDS_MAX


def test_the_examples_in_the_documentation_run() -> None:
    assert doctest.testmod(durations).failed == 0
