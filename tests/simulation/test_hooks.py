"""Histories of webhooks keep what is promised about them, and planted bugs are caught."""

from __future__ import annotations

import pytest

from tests.simulation.hook_world import PROMISES, HookWorld, play_hooks
from tests.simulation.planted_hooks import HOOK_BUGS

QUICK, LONG, HUNTED_MAX = 6, 300, 100


def play(seeds: list[int]) -> None:
    found = {seed: broken for seed in seeds if (broken := play_hooks(seed)) is not None}
    assert found == {}, "HookWorld(seed).run() tells each again"


def test_every_promise_about_webhooks_is_kept(session_seed: int) -> None:
    play([*range(QUICK // 2), *(session_seed * 1000 + each for each in range(QUICK // 2))])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_many_more_histories(session_seed: int) -> None:
    play([*range(LONG), *(session_seed * 1000 + each for each in range(LONG))])


def test_what_is_never_simulated_is_never_found_wrong() -> None:
    seen = set[str]()
    for seed in range(8):
        world = HookWorld(seed)
        world.run()
        seen |= world.seen.keys()
    states = {f"decided as {state}" for state in (1, 2, 3)}
    answers = {f"answered {answer}" for answer in ("stored", "duplicate", "backlog")}
    assert seen >= states | answers | {"fault", "overtaken", "stored anew", "replayed", "pruned"}


def test_a_seed_tells_the_same_history_again() -> None:
    first, second = HookWorld(3), HookWorld(3)
    first.run()
    second.run()
    assert first.seen == second.seen and first.known_until == second.known_until


def test_every_promise_has_a_bug() -> None:
    assert {each for _, promises in HOOK_BUGS.values() for each in promises} == set(PROMISES)


#: One of each promise, which the first histories show.
SOON = (
    "what_waits_makes_room_for_the_next_of_its_id", "a_known_delivery_is_taken_again",
    "tasks_are_saved_and_the_outcome_is_not", "a_rule_that_fails_stops_those_after_it",
)  # fmt: skip


@pytest.mark.parametrize("name", SOON)
def test_a_bug_is_caught_soon(name: str) -> None:
    _hunt(name)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [each for each in HOOK_BUGS if each not in SOON])
def test_the_bug_is_caught(name: str) -> None:
    _hunt(name)


def _hunt(name: str) -> None:
    plant, promises = HOOK_BUGS[name]
    with plant():
        found = next((each for seed in range(HUNTED_MAX) if (each := play_hooks(seed))), None)
    assert found is not None, f"{HUNTED_MAX} histories did not show it"
    assert found.invariant in promises, found
