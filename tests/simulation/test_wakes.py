"""Histories of an organisation keep what is promised about wakes, and planted bugs are caught."""

from __future__ import annotations

import pytest

from tests.simulation.hunting import catch
from tests.simulation.planted_wakes import WAKE_BUGS
from tests.simulation.wakes import PROMISES, play_wakes
from tests.tiers import long_but

#: `make sim` plays a thousand.
QUICK, LONG = 6, 20


def test_every_promise_about_wakes_is_kept(session_seed: int) -> None:
    seeds = [*range(QUICK // 2), *(session_seed * 1000 + each for each in range(QUICK // 2))]
    found = {seed: broken for seed in seeds if (broken := play_wakes(seed)) is not None}
    assert found == {}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_more_histories(session_seed: int) -> None:
    seeds = [*range(LONG), *(session_seed * 1000 + each for each in range(LONG))]
    found = {seed: broken for seed in seeds if (broken := play_wakes(seed)) is not None}
    assert found == {}


def test_every_promise_has_a_bug() -> None:
    assert {each for bug in WAKE_BUGS.values() for each in bug.breaks} == set(PROMISES)


#: What the first histories show; the others are hunted for longer.
SOON = ("a_wake_without_work", "what_was_listed_is_forgotten", "working_hours_are_ignored")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", long_but(SOON, WAKE_BUGS))
def test_the_bug_is_caught(name: str) -> None:
    catch(WAKE_BUGS[name])
