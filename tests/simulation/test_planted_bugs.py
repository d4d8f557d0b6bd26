"""Can the simulation find what it looks for? Bugs are planted, and every one must be caught."""

from __future__ import annotations

import pytest

from tests.simulation import violation
from tests.simulation.hunting import ALL_BUGS, NOTES, PLANTED_IN, catch, noted
from tests.simulation.planted import BUGS, SEEDS_MAX
from tests.simulation.planted_hooks import HOOK_BUGS
from tests.simulation.planted_wakes import WAKE_BUGS
from tests.tiers import long_but


def test_every_promise_has_a_bug_that_breaks_it() -> None:
    promises = {text for name, text in vars(violation).items() if name.isupper()}
    broken = {promise for bug in BUGS.values() for promise in bug.breaks}
    assert promises == broken
    planted_here = {bug.plant.__module__ for bug in BUGS.values()}
    for module in PLANTED_IN:
        assert module.__name__ in planted_here


def test_notes_are_of_bugs_that_are_planted() -> None:
    assert len(ALL_BUGS) == len(BUGS) + len(HOOK_BUGS) + len(WAKE_BUGS), "a name is given twice"
    assert noted().keys() <= ALL_BUGS.keys(), f"{NOTES} speaks of bugs that are gone"
    assert all(0 <= seed < SEEDS_MAX for seed in noted().values())


#: What `make test` hunts: each in histories of another kind, or by another way of telling.
QUICK = (
    "a_cancelled_task_can_be_claimed",
    "a_role_pays_no_token",
    "the_next_task_is_spawned_twice",
    "whatever_is_told_the_same_is_decided_alike",
    "half_a_set_of_resources_is_kept",  # in histories of its own
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", long_but(QUICK, BUGS))
def test_the_bug_is_caught(name: str) -> None:
    catch(BUGS[name])
