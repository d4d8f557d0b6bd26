"""Seeded histories of schedules: several processes, faults, and nights on which clocks jump."""

from __future__ import annotations

import pytest

from tests.simulation.schedule_world import NIGHTS, ScheduleWorld
from tests.simulation.violation import Violation

FIXED = 8
DRAWN = 4
#: `make sim` plays a thousand.
LONG, DRAWN_LONG = 120, 40


def play(seeds: range) -> dict[str, int]:
    """Play these histories; what was seen in them."""
    seen: dict[str, int] = {}
    for seed in seeds:
        world = ScheduleWorld(seed)
        try:
            world.run()
        except Violation as violation:
            raise AssertionError(
                f"ScheduleWorld({seed}), step {world.steps}: {violation}"
            ) from None
        for what, count in {**world.seen, f"{world.zone} {world.start}": 1}.items():
            seen[what] = seen.get(what, 0) + count
    return seen


def test_each_occurrence_comes_once_and_none_early(session_seed: int) -> None:
    play(range(session_seed * 10_000, session_seed * 10_000 + DRAWN))
    seen = play(range(FIXED))
    for what in ("fault", "led by up-0", "led by up-1"):
        assert seen[what], what


@pytest.mark.long
@pytest.mark.timeout(900)
def test_in_many_more_histories(session_seed: int) -> None:
    play(range(session_seed * 10_000, session_seed * 10_000 + DRAWN_LONG))
    seen = play(range(LONG))
    # What is never simulated is never found wrong.
    for what in ("early", "asked", "broken_schedule"):
        assert seen[what], what
    assert sum(what.partition(" ")[0] in dict(NIGHTS) for what in seen) == len(NIGHTS)
    for policy in ("skip", "one", "all"):
        assert all(seen[f"fired {policy} {overlap}"] for overlap in ("skip", "queue")), policy


def test_a_seed_tells_the_same_history_again() -> None:
    first, second = ScheduleWorld(5), ScheduleWorld(5)
    first.run()
    second.run()
    assert first.seen == second.seen and first.known == second.known
