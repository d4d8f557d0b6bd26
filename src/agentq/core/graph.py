"""Tasks of one batch: in an order with parents first, and with all that follows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
        # An explicit stack: a chain of thousands must not meet the recursion limit. It is a dict,
        # so that "is this on the way here?" costs nothing even then.
        path: dict[str, Iterator[str]] = {}
        here: str | None = None if root.id in done else root.id
        while here is not None:
            if here not in path:
                path[here] = iter([each for each in within[here].after if each in within])
            parent = next((each for each in path[here] if each not in done), None)
            if parent is None:
                del path[here]
                done.add(here)
                ordered.append(within[here])
                here = next(reversed(path), None)
            elif parent in path:
                names = list(path)
                raise _cycle([*names[names.index(parent) :], parent])
            else:
                here = parent
    return ordered


def all_next(spec: Spec) -> Iterator[Spec]:
    """Everything that a task names as next, to any depth."""
    for child in spec.next:
        yield child
        yield from all_next(child)


def is_made_of_templates(spec: Spec) -> bool:
    """Whether this next task is made of what the task before left."""
    if spec.each:
        return True
    texts = [spec.title, spec.instructions, *spec.labels.values(), *_texts(spec.inputs)]
    return any("{{" in text or "{%" in text for text in texts)


def _texts(value: Any) -> Iterator[str]:
    """Every text within plain data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


def _cycle(names: list[str]) -> Invalid:
    return Invalid(
        f"These tasks wait for each other, so none could ever start: {' after '.join(names)}."
        " Nothing was submitted.",
        "Remove one of the --after links.",
        code="cycle",
    )
