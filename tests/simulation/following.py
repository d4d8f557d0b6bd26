"""What must follow a completed task: as it stands there, or made of what the task has left."""

from __future__ import annotations

from typing import NamedTuple

from agentq.core.task import Spec
from agentq.core.values import replace
from tests.simulation.shadow import Shadow

#: Structured results as agents hand them in, and the parts that they name; None: no list of any.
RESULTS: dict[str, list[str] | None] = {
    '{"parts":["a","b"]}': ["a", "b"],
    '{"parts":["a","b","a"]}': ["a", "b", "a"],
    '{"parts":[]}': [],
    '{"parts":"none"}': None,
    "": None,
}


class Following(NamedTuple):
    """A task to come; `refused` if it cannot be made, and is born as a dead letter."""

    spec: Spec
    refused: bool = False


def following(shadow: Shadow) -> dict[str, Following]:
    """By id, what a task that has just completed is followed by."""
    parts = RESULTS.get(shadow.report[5]) if shadow.report else None
    made: dict[str, Following] = {}
    fanned: dict[str, tuple[str, ...]] = {}
    for child in shadow.spec.next:
        if not child.each:
            made[child.id] = Following(child)
        elif parts is None:
            made[child.id] = Following(replace(child, after=()), refused=True)
        else:
            specs = [_one_of(child, shadow.id, *part) for part in enumerate(parts, 1)]
            fanned[child.id] = tuple(spec.id for spec in specs)
            made.update((spec.id, Following(spec)) for spec in specs)
    for name, (spec, refused) in made.items():
        after = tuple(each for old in spec.after for each in fanned.get(old, (old,)))
        made[name] = Following(replace(spec, after=after), refused)
    return made


def _one_of(child: Spec, before: str, number: int, part: str) -> Spec:
    text = f"do {part}, {number} of {before}"
    return replace(child, id=f"{child.id}-{number}", each="", instructions=text)
