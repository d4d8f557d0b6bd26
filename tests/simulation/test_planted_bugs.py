"""Can the simulation find what it looks for? Bugs are planted, and every one must be caught."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator

import pytest

from tests.simulation import (
    planted_holds,
    planted_quotas,
    planted_relations,
    planted_schedules,
    planted_storage,
    planted_surroundings,
    violation,
)
from tests.simulation.planted import BUGS, SEEDS_MAX, Playable, hunt
from tests.simulation.test_simulation import FIXED_LONG
from tests.simulation.violation import Violation
from tests.simulation.world import World

Catch = tuple[int, Violation] | None


def _hunt(name: str) -> tuple[str, Catch]:
    return name, hunt(BUGS[name], range(SEEDS_MAX))


@pytest.fixture(scope="module")
def catches() -> Iterator[dict[str, Catch]]:
    """Every bug, hunted on all cores: each in its own process, which it has to itself."""
    with multiprocessing.get_context("spawn").Pool() as pool:
        yield dict(pool.imap_unordered(_hunt, BUGS))


def test_every_promise_has_a_bug_that_breaks_it() -> None:
    promises = {text for name, text in vars(violation).items() if name.isupper()}
    broken = {promise for bug in BUGS.values() for promise in bug.breaks}
    assert promises == broken
    planted_here = {bug.plant.__module__ for bug in BUGS.values()}
    for module in (
        planted_holds, planted_quotas, planted_relations, planted_schedules, planted_storage,
        planted_surroundings,
    ):  # fmt: skip
        assert module.__name__ in planted_here


#: Those that few histories show: what `make test` hunts.
QUICK = (
    "a_cancelled_task_can_be_claimed",
    "a_role_pays_no_token",
    "the_next_task_is_spawned_twice",
    "whatever_is_told_the_same_is_decided_alike",
    "a_signal_ends_the_hold",
    "a_program_dispatches_what_a_person_holds",
    "half_a_set_of_resources_is_kept",  # in histories of its own
)


@pytest.mark.parametrize("name", QUICK)
def test_some_bugs_are_caught_soon(name: str) -> None:
    _, caught = _hunt(name)
    assert caught is not None and caught[1].invariant in BUGS[name].breaks, caught


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_caught(catches: dict[str, Catch], name: str) -> None:
    caught = catches[name]
    assert caught is not None, f"{SEEDS_MAX} histories did not show {name}"
    seed, found = caught
    assert found.invariant in BUGS[name].breaks, f"seed {seed}: {found}"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_without_a_bug_the_same_seeds_pass(catches: dict[str, Catch]) -> None:
    """What was caught above was the bug, not the weather."""
    last = dict[Callable[[int], Playable], int]()
    for name, caught in catches.items():
        if caught:
            world = BUGS[name].world
            last[world] = max(caught[0], last.get(world, 0))
    assert last.pop(World) in FIXED_LONG, "test_simulation.py plays these without a bug"
    for world, seed in last.items():
        for each in range(seed + 1):
            world(each).run()
