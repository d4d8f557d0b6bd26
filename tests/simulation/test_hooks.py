"""Histories of webhooks keep what is promised about them, and planted bugs are caught."""

from __future__ import annotations

import pytest

from tests.simulation.hook_world import PROMISES, HookWorld
from tests.simulation.hunting import catch
from tests.simulation.planted_hooks import HOOK_BUGS
from tests.simulation.violation import Violation
from tests.tiers import long_but

#: `make sim` plays a thousand.
QUICK, LONG, DRAWN_LONG = 4, 40, 15


#: What is never simulated is never found wrong.
COMMON = frozenset({
    "answered stored", "answered duplicate", "decided as 1", "decided as 3", "fault", "overtaken",
    "stored anew", "replayed",
})  # fmt: skip
RARE = frozenset({"answered backlog", "decided as 2", "pruned"})


def play(seeds: list[int]) -> set[str]:
    """Play these histories; what was seen in them."""
    seen = set[str]()
    for seed in seeds:
        world = HookWorld(seed)
        try:
            world.run()
        except Violation as violation:
            raise AssertionError(f"HookWorld({seed}), step {world.steps}: {violation}") from None
        seen |= world.seen.keys()
    return seen


def test_every_promise_about_webhooks_is_kept(session_seed: int) -> None:
    play([session_seed * 1000 + each for each in range(QUICK)])
    assert play([*range(QUICK)]) >= COMMON


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_more_histories(session_seed: int) -> None:
    play([session_seed * 1000 + each for each in range(DRAWN_LONG)])
    assert play([*range(LONG)]) >= COMMON | RARE


def test_a_seed_tells_the_same_history_again() -> None:
    first, second = HookWorld(3), HookWorld(3)
    first.run()
    second.run()
    assert first.seen == second.seen and first.known_until == second.known_until


def test_every_promise_has_a_bug() -> None:
    assert {each for bug in HOOK_BUGS.values() for each in bug.breaks} == set(PROMISES)


#: One of each promise, which the first histories show.
SOON = (
    "what_waits_makes_room_for_the_next_of_its_id", "a_known_delivery_is_taken_again",
    "tasks_are_saved_and_the_outcome_is_not", "a_rule_that_fails_stops_those_after_it",
)  # fmt: skip


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", long_but(SOON, HOOK_BUGS))
def test_the_bug_is_caught(name: str) -> None:
    catch(HOOK_BUGS[name])
