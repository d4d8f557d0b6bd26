"""Can the simulation find what it looks for? Bugs are planted, and every one must be caught."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest

from tests.simulation import planted_storage
from tests.simulation.planted import BUGS, SEEDS_MAX, hunt
from tests.simulation.run import play_all
from tests.simulation.violation import Violation

Catch = tuple[int, Violation] | None


def _hunt(name: str) -> tuple[str, Catch]:
    return name, hunt(BUGS[name], range(SEEDS_MAX))


@pytest.fixture(scope="module")
def catches() -> Iterator[dict[str, Catch]]:
    """Every bug, hunted on all cores: each in its own process, which it has to itself."""
    with multiprocessing.get_context("spawn").Pool() as pool:
        yield dict(pool.imap_unordered(_hunt, BUGS))


def test_there_are_enough_bugs() -> None:
    assert len(BUGS) >= 18
    assert planted_storage.__doc__


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_caught(catches: dict[str, Catch], name: str) -> None:
    caught = catches[name]
    assert caught is not None, f"{SEEDS_MAX} histories did not show {name}"
    seed, violation = caught
    assert violation.invariant in BUGS[name].breaks, f"seed {seed}: {violation}"


@pytest.mark.timeout(600)
def test_without_a_bug_the_same_seeds_pass(catches: dict[str, Catch]) -> None:
    """What was caught above was the bug, not the weather."""
    last = max(caught[0] for caught in catches.values() if caught)
    failures = [played.failure for played in play_all(range(last + 1)) if played.failure]
    assert not failures, "\n\n".join(failures[:3])
