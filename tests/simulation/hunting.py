"""Which history shows which planted bug: noted, so that a hunt begins with the one that did.

A note is no proof: the history is played each time, and where it shows nothing any more, because
the code or the histories have changed, all others are played until one does. Then

    python -m tests.simulation.hunting

hunts for every bug that its note does not show, on all cores, and notes what it finds.
"""

from __future__ import annotations

import multiprocessing
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.simulation import (
    planted_chain,
    planted_holds,
    planted_quotas,
    planted_relations,
    planted_schedules,
    planted_storage,
    planted_surroundings,
)
from tests.simulation.planted import BUGS, SEEDS_MAX, Bug, Playable, hunt
from tests.simulation.planted_hooks import HOOK_BUGS
from tests.simulation.planted_wakes import WAKE_BUGS

#: Where bugs are planted that `BUGS` lists.
PLANTED_IN = (
    planted_chain, planted_holds, planted_quotas, planted_relations, planted_schedules,
    planted_storage,
    planted_surroundings,
)  # fmt: skip
ALL_BUGS = BUGS | HOOK_BUGS | WAKE_BUGS
NOTES = Path(__file__).with_name("shown_by.toml")


@cache
def noted() -> dict[str, int]:
    """By bug: the seed of a history that showed it."""
    return tomllib.loads(NOTES.read_text()) if NOTES.exists() else {}


def catch(bug: Bug) -> int:
    """The seed of a history that shows the bug, and keeps every promise without it."""
    seeds = [noted()[bug.name]] if bug.name in noted() else []
    caught = hunt(bug, [*seeds, *range(SEEDS_MAX)])
    assert caught is not None, f"{SEEDS_MAX} histories did not show {bug.name}"
    seed, found = caught
    assert found.invariant in bug.breaks, f"seed {seed}: {found}"
    if [seed] != seeds:
        print(f"{bug.name}: seed {seed} shows it now; {__name__} notes it")  # noqa: T201
    # What was caught was the bug, not the weather.
    _play_without_bugs(bug.world, seed)
    return seed


@cache
def _play_without_bugs(world: Callable[[int], Playable], seed: int) -> None:
    world(seed).run()


def _seed_of(name: str) -> tuple[str, int]:
    return name, catch(ALL_BUGS[name])


def main() -> int:
    with multiprocessing.get_context("spawn").Pool() as pool:
        found = dict(pool.imap_unordered(_seed_of, ALL_BUGS))
    lines = [f"{name} = {found[name]}\n" for name in sorted(found)]
    NOTES.write_text("# The history that shows each bug: see hunting.py.\n" + "".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
