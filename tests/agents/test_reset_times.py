"""When a provider serves again, from the words of many; and what is no such word."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.agents.error_classification import known_error
from agentq.agents.reset_times import WAIT_MS_MAX, moment, reset_time
from agentq.contracts.agent import AttemptOutcome

#: A Sunday.
NOW_IS = datetime(2026, 11, 15, 19, 0, tzinfo=UTC)
NOW = int(NOW_IS.timestamp() * 1000)


def shown(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%m-%d %H:%M:%S") if at else "-"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("Please retry in 21.5s.", "11-15 19:00:21"),
        ("try again in 20 seconds", "11-15 19:00:20"),
        ("try again in 3 days 6 hours 57 minutes.", "11-19 01:57:00"),
        ("Please try again in 6m0s.", "11-15 19:06:00"),
        ("try again in 1 hour and 5 minutes", "11-15 20:05:00"),
        ("Your quota will reset after 18h31m10s.", "11-16 13:31:10"),
        ('"retryDelay": "34s"', "11-15 19:00:34"),
        ("retry-after: 90", "11-15 19:01:30"),
        ("Claude AI usage limit reached|1794790000", "11-16 00:46:40"),
        ("resets at 2026-11-16T02:00:00Z", "11-16 02:00:00"),
        ("resets at 2026-11-16T02:00:00+02:00", "11-16 00:00:00"),
        ("try again at 3:28 PM.", "11-16 15:28:00"),
        ("resets 11pm", "11-15 23:00:00"),
        ("session limit · resets 3pm (America/New_York)", "11-15 20:00:00"),
        ("resets 12am (UTC)", "11-16 00:00:00"),
        ("weekly limit · resets Nov 20, 1pm (Europe/Berlin)", "11-20 12:00:00"),
        ("try again at Nov 20th, 2026 12:30 PM", "11-20 12:30:00"),
        ("Try again Nov 18.", "11-18 00:00:00"),
        ("resets 3pm (No/Where)", "11-16 15:00:00"),
        ("", "-"),
        ("429 Too Many Requests", "-"),
        ("resets 31", "-"),
        ("try again at 99:99 PM", "-"),
        ("try again Feb 31", "-"),
        ("resets at 2019-01-01T00:00:00Z", "-"),
        ("resets at 9999-01-01T00:00:00Z", "-"),
        ("try again in 9999 days", "-"),
        ("try again later", "-"),
    ],
)
def test_words(words: str, expected: str) -> None:
    assert shown(reset_time(words, NOW, UTC)) == expected


def test_fields() -> None:
    later = NOW + 60_000
    assert moment(later // 1000, NOW) == moment(later, NOW) == later
    assert moment(str(later // 1000), NOW) == moment("2026-11-15T19:01:00Z", NOW) == later
    for nothing in (None, "", "soon", True, -5, 0, NOW - 1, float("nan"), 10**30, [later], NOW * 9):
        assert moment(nothing, NOW) == 0


@given(
    st.one_of(
        st.text(max_size=300),
        st.lists(
            st.sampled_from(
                [
                    *("try again", "in", "at", "resets", "3pm", "Nov", "31", "99999999", "h", "("),
                    *("days", "2026-99-99T99:99", "1794790000", ".", " ", "after", "am", "(A/B)"),
                ]
            ),
            max_size=30,
        ).map(" ".join),
    )
)
def test_no_words_raise_or_close_a_provider_for_good(words: str) -> None:
    at = reset_time(words, NOW)
    assert at == 0 or NOW < at <= NOW + WAIT_MS_MAX
    found = known_error(words, NOW)
    assert found is None or isinstance(found.outcome, AttemptOutcome)


@pytest.mark.parametrize(
    ("message", "outcome"),
    [
        ('API Error: 529 {"type":"overloaded_error"}', AttemptOutcome.OVERLOADED),
        ("API Error (500): Internal server error", AttemptOutcome.OVERLOADED),
        ("fetch failed: ECONNREFUSED", AttemptOutcome.OVERLOADED),
        ("Your credit balance is too low to access the API", AttemptOutcome.SURROUNDINGS),
        ("RESOURCE_EXHAUSTED", AttemptOutcome.QUOTA),
        ("Invalid API key · Please run /login", AttemptOutcome.SURROUNDINGS),
        ("OAuth authentication is currently not supported", AttemptOutcome.SURROUNDINGS),
        ("error: unknown option '--frobnicate'", AttemptOutcome.SURROUNDINGS),
        ("error: unexpected argument '-C' found", AttemptOutcome.SURROUNDINGS),
        (
            "  -i, --interactive  run in mode  [boolean] [default: false]",
            AttemptOutcome.SURROUNDINGS,
        ),
        (
            "  -v, --version                   Show version number  [boolean]",
            AttemptOutcome.SURROUNDINGS,
        ),
        ("appears to violate our Usage Policy", AttemptOutcome.REFUSED),
        ("I have no idea", None),
        ("wrote 429 lines", None),
        ("", None),
    ],
)
def test_messages(message: str, outcome: AttemptOutcome | None) -> None:
    found = known_error(message, NOW)
    assert (found.outcome if found else None) is outcome
