"""Histories of an organisation keep what is promised about wakes, and planted bugs are caught."""

from __future__ import annotations

import pytest

from tests.simulation.planted_wakes import WAKE_BUGS
from tests.simulation.wakes import PROMISES, play_wakes

QUICK, LONG, HUNTED_MAX = 10, 300, 60


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


@pytest.mark.parametrize("name", WAKE_BUGS)
def test_the_bug_is_caught(name: str) -> None:
    plant, promises = WAKE_BUGS[name]
    with plant():
        found = next((each for seed in range(HUNTED_MAX) if (each := play_wakes(seed))), None)
    assert found is not None, f"{HUNTED_MAX} histories did not show it"
    assert found.invariant in promises, found
