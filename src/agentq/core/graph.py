"""Dependencies inside one batch: an order with parents first, or the cycle that forbids it."""

from __future__ import annotations

from collections.abc import Sequence

from agentq.core.errors import Invalid
from agentq.core.task import Spec


def parents_first(specs: Sequence[Spec]) -> list[Spec]:
    """The same specs, each after all of the batch that it comes after; otherwise in given order."""
    if not any(spec.after for spec in specs):
        return list(specs)
    within = {spec.id: spec for spec in specs}
    ordered: list[Spec] = []
    done: set[str] = set()
    for root in specs:
        # An explicit stack: a chain of thousands must not meet the recursion limit.
        path: list[tuple[Spec, list[str]]] = [(root, [])] if root.id not in done else []
        if path:
            path[-1] = (root, [each for each in root.after if each in within])
        on_path = [root.id] if path else []
        while path:
            spec, left = path[-1]
            left[:] = [each for each in left if each not in done]
            if left:
                parent = left.pop()
                if parent in on_path:
                    raise _cycle([*on_path[on_path.index(parent) :], parent])
                path.append((within[parent], [p for p in within[parent].after if p in within]))
                on_path.append(parent)
            else:
                done.add(spec.id)
                ordered.append(spec)
                path.pop()
                on_path.pop()
    return ordered


def _cycle(names: list[str]) -> Invalid:
    return Invalid(
        f"These tasks wait for each other, so none could ever start: {' after '.join(names)}."
        " Nothing was submitted.",
        "Remove one of the --after links.",
        code="cycle",
    )
