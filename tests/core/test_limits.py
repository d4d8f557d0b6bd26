"""Small rules about bounds: how much room a role has, and what is cut from a text."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core import errors
from agentq.core.errors import AgentqError, Refused
from agentq.core.limits import RoleLimits, shorten
from agentq.core.task import NO_USAGE, Usage
from tests.core.building import claimed, submitted


@pytest.mark.parametrize(
    ("limits", "running", "in_review", "room"),
    [
        (RoleLimits(), 1000, 1000, -1),
        (RoleLimits(max_running=3), 0, 0, 3),
        (RoleLimits(max_running=3), 2, 99, 1),
        (RoleLimits(max_running=3), 3, 0, 0),
        (RoleLimits(max_running=3), 5, 0, 0),
        (RoleLimits(max_review=2), 99, 1, -1),
        (RoleLimits(max_review=2), 0, 2, 0),
        (RoleLimits(max_running=3, max_review=2), 1, 1, 2),
        (RoleLimits(max_running=3, max_review=2), 1, 5, 0),
        (RoleLimits(paused=True), 0, 0, 0),
    ],
)
def test_how_many_more_a_role_may_start(
    limits: RoleLimits, running: int, in_review: int, room: int
) -> None:
    count, why = limits.room(running, in_review)
    assert count == room
    # Whoever is held back is told by what.
    assert bool(why) is (room == 0)


@pytest.mark.parametrize(
    ("daily", "today", "words"),
    [
        (NO_USAGE, Usage(usd=1e9), ""),
        (Usage(usd=5), Usage(usd=4.99, tokens=10**9), ""),
        (Usage(usd=5), Usage(usd=5), "5 of 5 usd are spent"),
        (Usage(usd=5, turns=3), Usage(turns=4), "4 of 3 turns are spent"),
    ],
)
def test_when_a_day_is_over_for_a_role(daily: Usage, today: Usage, words: str) -> None:
    why = RoleLimits(daily=daily).used_up(today)
    assert words in why and bool(why) is bool(words)


@pytest.mark.parametrize(
    ("budget", "today", "fits"),
    [
        (Usage(usd=2), Usage(usd=3), True),
        (Usage(usd=2), Usage(usd=3.01), False),
        (Usage(usd=9), NO_USAGE, False),  # it never will
        (Usage(tokens=10**9), Usage(usd=4.99), True),  # nothing limits tokens
        (NO_USAGE, Usage(usd=4.99), True),  # it does not say how much it may take
        (Usage(usd=0.3), Usage(usd=4.7), True),  # whatever floats make of that
    ],
)
def test_whether_a_task_fits_into_what_is_left(budget: Usage, today: Usage, fits: bool) -> None:
    why = RoleLimits(daily=Usage(usd=5)).too_small_for(submitted(budget=budget), today)
    assert bool(why) is not fits
    assert RoleLimits().too_small_for(claimed(budget=budget), today) == ""


@given(st.text(max_size=500), st.integers(80, 400))
def test_a_shortened_text_keeps_both_ends(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    else:
        assert short[:15] == text[:15] and short[-15:] == text[-15:]
        assert "characters left out" in short


KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, AgentqError)
]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_cross_from_process_to_process_whole(kind: type[AgentqError]) -> None:
    error = kind("This is so.", "Do that.", code="special")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(copy) is kind
    assert (copy.code, copy.cause, copy.remedy) == ("special", "This is so.", "Do that.")
    assert str(copy) == "This is so. Do that."


def test_every_kind_of_error_has_an_exit_status_and_a_word() -> None:
    statuses = {kind.exit_status for kind in KINDS}
    assert statuses == set(range(1, 9))
    assert errors.Stale.exit_status == Refused.exit_status
    assert len({kind.code for kind in KINDS}) == len(KINDS)
    assert str(Refused("Only this.")) == "Only this."
