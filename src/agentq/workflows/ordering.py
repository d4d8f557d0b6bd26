"""Which step comes after which: the order of a workflow, what is before a step, and cycles."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.workflows.model import WorkflowStep

#: More than these are not named: who mends them will look again.
CYCLES_MAX = 20


def levels(steps: Sequence[WorkflowStep]) -> list[list[WorkflowStep]]:
    """Steps by level: each as soon as all that it comes after are in a level before.

    Steps that are part of a cycle, or come after one, are in none. Names that no step has count
    for nothing.
    """
    names = {step.id for step in steps}
    followers: dict[str, list[int]] = {name: [] for name in names}
    waits = [0] * len(steps)
    for place, step in enumerate(steps):
        for each in names.intersection(step.after):
            followers[each].append(place)
            waits[place] += 1
    found: list[list[WorkflowStep]] = []
    ready = [place for place, count in enumerate(waits) if not count]
    while ready:
        found.append([steps[place] for place in sorted(ready)])
        following: list[int] = []
        for name in {steps[place].id for place in ready}:
            for place in followers.pop(name, ()):
                waits[place] -= 1
                if not waits[place]:
                    following.append(place)
        ready = following
    return found


def all_before(steps: Sequence[WorkflowStep]) -> dict[str, frozenset[str]]:
    """All that is over once a step starts, by step; without those that never start."""
    before: dict[str, frozenset[str]] = {}
    for level in levels(steps):
        for step in level:
            direct = [each for each in step.after if each in before]
            before[step.id] = frozenset(direct).union(*(before[each] for each in direct))
    return before


def cycles(steps: Sequence[WorkflowStep]) -> list[list[str]]:
    """Steps that wait for each other: each comes after the next, and the last after the first."""
    found: list[list[str]] = []
    left = list(steps)
    while len(found) < CYCLES_MAX:
        placed = {step.id for level in levels(left) for step in level}
        stuck = [step for step in left if step.id not in placed]
        if not stuck:
            break
        found.append(_cycle_of(stuck))
        left = [step for step in left if step.id not in found[-1]]
    return found


def _cycle_of(stuck: Sequence[WorkflowStep]) -> list[str]:
    """Go from a step to one that it comes after, until one comes again: none has an end."""
    after = {step.id: step.after for step in stuck}
    name, way = stuck[0].id, dict[str, int]()
    while name not in way:
        way[name] = len(way)
        name = next(each for each in after[name] if each in after)
    cycle = list(way)[way[name] :]
    first = min(range(len(cycle)), key=lambda place: list(after).index(cycle[place]))
    return cycle[first:] + cycle[:first]
