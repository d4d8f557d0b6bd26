"""Simulate many histories on all cores, or replay one: `python -m tests.simulation.run --help`."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tests.simulation.blind_spots import blind_spots
from tests.simulation.contended import ContendedWorld
from tests.simulation.hook_world import HookWorld
from tests.simulation.planted import Playable
from tests.simulation.schedule_world import ScheduleWorld
from tests.simulation.violation import Violation
from tests.simulation.wakes import WakeWorld
from tests.simulation.world import HOUR, START_MS, World, describe

#: Histories that one process plays before it reports back.
BLOCK = 20
#: Histories of other things; a campaign plays one of each to so many of the ledger's own.
OTHERS: tuple[Callable[[int], Playable], ...] = (
    ContendedWorld, ScheduleWorld, HookWorld, WakeWorld,
)  # fmt: skip
OTHERS_SHARE = 4
#: So many histories of the ledger show everything that there is.
ALL_SHOWN = 4_000


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one history; `failure` is empty when every promise was kept."""

    seed: int
    steps: int
    events: int
    virtual_ms: int
    seen: frozenset[str]
    invariant: str = ""
    failure: str = ""


def play(seed: int, steps: int = 0) -> Played:
    """Play one history to its end."""
    world = World(seed, steps)
    invariant = failure = ""
    try:
        world.run()
    except Violation as violation:
        told = "\n".join(f"  {describe(line)}" for line in world.trace)
        invariant = violation.invariant
        failure = (
            f"seed {seed}, step {world.steps}: {violation}\n{told}\n"
            f"  replay: {how_to_replay(seed, steps)}"
        )
    except Exception as crash:
        crash.add_note(f"seed {seed}; replay: {how_to_replay(seed, steps)}")
        raise
    virtual_ms = world.clock.at - START_MS
    seen = frozenset(world.model.seen)
    return Played(seed, world.steps, len(world.model.log), virtual_ms, seen, invariant, failure)


def how_to_replay(seed: int, steps: int = 0) -> str:
    return f"python -m tests.simulation.run --seed {seed}" + (f" --steps {steps}" if steps else "")


def _play_block(block: tuple[tuple[int, ...], int]) -> list[Played]:
    """A block of histories, with the collector run once: histories leave next to no cycles."""
    seeds, steps = block
    gc.disable()
    try:
        return [play(seed, steps) for seed in seeds]
    finally:
        gc.enable()
        gc.collect()


def play_all(seeds: Iterable[int], steps: int = 0, cores: int = 0) -> Iterator[Played]:
    """Play histories on all cores, in no particular order."""
    listed = list(seeds)
    blocks = [(tuple(listed[at : at + BLOCK]), steps) for at in range(0, len(listed), BLOCK)]
    cores = min(cores or len(os.sched_getaffinity(0)), len(blocks))
    if cores <= 1:
        for block in blocks:
            yield from _play_block(block)
        return
    # Fresh processes: whatever threads the caller has, none of them is forked.
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        for played in pool.imap_unordered(_play_block, blocks):
            yield from played


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4000, help="how many histories (4000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--steps", type=int, default=0, help="faulty steps per history (drawn)")
    parser.add_argument("--seed", type=int, help="replay this one, and print every call")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.steps)
    seeds = range(options.start, options.start + options.seeds)
    failed = _campaign(seeds, options.steps)
    failed += _play_others(range(options.start, options.start + options.seeds // OTHERS_SHARE))
    return 1 if failed else 0


def _replay(seed: int, steps: int) -> int:
    world = World(seed, steps, tell=print)
    print(f"seed {seed}: {world.profile}")
    try:
        world.run()
    except Violation as violation:
        print(f"VIOLATED {violation}")
        return 1
    print(f"kept every promise in {world.steps} steps, {_hours(world.clock.at - START_MS)}")
    return 0


def _campaign(seeds: range, steps: int) -> int:
    """Histories of the ledger; how many failed, and how much none of them has shown."""
    started, told = time.monotonic(), 0.0
    done, failed = [], 0
    for played in play_all(seeds, steps):
        done.append(played)
        if played.failure:
            failed += 1
            print(f"\n{played.failure}", flush=True)
        if time.monotonic() - told > 5 or len(done) == len(seeds):
            told = time.monotonic()
            rate = len(done) / max(told - started, 0.001)
            progress = f"{len(done)} of {len(seeds)} histories, {failed} failed, {rate:.0f}/s"
            print(progress, flush=True)
    _sum_up(done, time.monotonic() - started)
    missing = blind_spots(played.seen for played in done)
    print(f"never seen: {', '.join(sorted(missing)) or 'nothing'}")
    return failed + (len(missing) if len(seeds) >= ALL_SHOWN else 0)


def _play_others(seeds: range) -> int:
    """Histories of schedules, webhooks, wakes and contention; how many failed."""
    failed = 0
    with multiprocessing.get_context("spawn").Pool() as pool:
        for number, world in enumerate(OTHERS):
            played = pool.imap_unordered(_play_other, [(number, seed) for seed in seeds], BLOCK)
            failures = [failure for failure in played if failure]
            failed += len(failures)
            print("".join(f"\n{failure}\n" for failure in failures), end="")
            print(f"{len(seeds)} histories of {world.__name__}, {len(failures)} failed", flush=True)
    return failed


def _play_other(which: tuple[int, int]) -> str:
    number, seed = which
    try:
        OTHERS[number](seed).run()
    except Violation as violation:
        return f"{OTHERS[number].__name__}({seed}).run(): {violation}"
    return ""


def _sum_up(done: list[Played], seconds: float) -> None:
    steps = sum(each.steps for each in done)
    events = sum(each.events for each in done)
    print(
        f"{len(done)} histories of {_hours(sum(each.virtual_ms for each in done))} in"
        f" {seconds:.1f} s ({len(done) / max(seconds, 0.001):.1f}/s);"
        f" {steps} calls and {events} events, every invariant checked after each;"
        f" {sum(bool(each.failure) for each in done)} failed"
    )


def _hours(virtual_ms: int) -> str:
    return f"{virtual_ms / HOUR:,.0f} virtual hours"


if __name__ == "__main__":
    sys.exit(main())
