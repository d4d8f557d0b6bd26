"""Histories of an organisation keep what is promised about wakes, and planted bugs are caught."""

from __future__ import annotations

import pytest

from tests.simulation.planted_wakes import WAKE_BUGS
from tests.simulation.wakes import PROMISES, play_wakes

QUICK, LONG, HUNTED_MAX = 6, 150, 100


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
    assert {each for _, promises in WAKE_BUGS.values() for each in promises} == set(PROMISES)


#: What the first histories show; the others are hunted for longer.
SOON = ("a_wake_without_work", "what_was_listed_is_forgotten", "working_hours_are_ignored")


@pytest.mark.parametrize("name", SOON)
def test_a_bug_is_caught_soon(name: str) -> None:
    _hunt(name)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [each for each in WAKE_BUGS if each not in SOON])
def test_the_bug_is_caught(name: str) -> None:
    _hunt(name)


def _hunt(name: str) -> None:
    plant, promises = WAKE_BUGS[name]
    with plant():
        found = next((each for seed in range(HUNTED_MAX) if (each := play_wakes(seed))), None)
    assert found is not None, f"{HUNTED_MAX} histories did not show it"
    assert found.invariant in promises, found
