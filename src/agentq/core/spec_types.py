"""What kind of value each field of a spec holds. What could not be read back must not get in."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from agentq.core.errors import Invalid
from agentq.core.graph import parents_first
from agentq.core.task import (
    NO_OUTPUT_EXPECTED,
    NO_USAGE,
    ExpectedOutput,
    OnDependencyFailure,
    Priority,
    Spec,
    Usage,
)

#: How deep unknown fields, and next tasks of next tasks, may nest.
EXTRA_DEPTH_MAX = 32
NEXT_DEPTH_MAX = 8
_WHOLE_MAX = 2**63 - 1
AMOUNT_MAX = 1e15

_OTHERS: dict[str, type] = {
    "priority": Priority,
    "expected_output": ExpectedOutput,
    "on_dependency_failure": OnDependencyFailure,
    "budget": Usage,
    "tree_budget": Usage,
    "after": tuple,
    "base": tuple,
    "next": tuple,
    "resources": tuple,
    "labels": dict,
    "extra": dict,
    "irreversible": bool,
    "requires_approval": bool,
    "review": bool,
    "max_attempts": int,
}
NAMES = tuple(each.name for each in fields(Spec))
KINDS = tuple(_OTHERS.get(n, int if n.endswith("_seconds") else str) for n in NAMES)
_values = attrgetter(*NAMES)
_WORDS = {
    str: "text",
    int: "a whole number",
    bool: "true or false",
    tuple: "a list",
    dict: "a mapping",
}


def wrong_kind(name: str, kind: type, value: object) -> Invalid:
    word = _WORDS.get(kind, kind.__name__)
    return Invalid(f"The field {name} takes {word}, got {str(value)[:80]!r}.", "Mend that field.")


def first_wrong_kind(
    names: tuple[str, ...], kinds: tuple[type, ...], values: tuple[Any, ...]
) -> Invalid:
    """What to say of the first value that is not of its field's kind; there must be one."""
    each = zip(names, kinds, values, strict=True)
    return wrong_kind(*next(held for held in each if type(held[2]) is not held[1]))


def check_kinds(spec: Spec) -> None:
    """Raise `Invalid`, naming the field, unless every value is of its field's kind."""
    values = _values(spec)
    if tuple(map(type, values)) != KINDS:
        raise first_wrong_kind(NAMES, KINDS, values)
    if spec.after or spec.resources:
        _check_texts("after", spec.after)
        _check_texts("resources", spec.resources)
    if spec.base:
        _check_texts("base", spec.base)
    if spec.expected_output is not NO_OUTPUT_EXPECTED:
        _check_texts("expected_output", (spec.expected_output.format,))
        if type(spec.expected_output.artifacts) is not tuple:
            raise wrong_kind("expected_output", tuple, spec.expected_output.artifacts)
        _check_texts("expected_output", spec.expected_output.artifacts)
    if spec.labels:
        _check_texts("labels", (*spec.labels, *spec.labels.values()))
    if spec.budget is not NO_USAGE:
        check_usage("budget", spec.budget)
    if spec.tree_budget is not NO_USAGE:
        check_usage("tree_budget", spec.tree_budget)
    if spec.extra:
        _check_plain(spec.extra)


def _check_texts(name: str, values: tuple[Any, ...]) -> None:
    for value in values:
        if type(value) is not str:
            raise wrong_kind(name, str, value)


def is_readable(text: str) -> bool:
    """Whether a text can be written down: bytes in the guise of text cannot."""
    if text.isascii():
        return "\x00" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def check_usage(name: str, usage: Usage) -> None:
    """Money, tokens, turns and seconds: numbers from 0 that can be written down."""
    if type(usage) is not Usage:
        raise wrong_kind(name, Usage, usage)
    if usage.estimated_usd and name != "cost":
        raise Invalid(f"{name} has no estimated_usd: a cost has, a budget is what it says.")
    for unit in ("usd", "tokens", "turns", "seconds", "estimated_usd"):
        value = getattr(usage, unit)
        whole = unit in ("tokens", "turns")
        if type(value) is not int and (whole or type(value) is not float):
            raise wrong_kind(f"{name}.{unit}", int, value)
        if not 0 <= value <= AMOUNT_MAX:
            raise Invalid(
                f"{name}.{unit} must be from 0 to {AMOUNT_MAX:.0e}, got {value}.",
                "Leave it out for no budget.",
            )


def _check_plain(extra: Mapping[str, Any]) -> None:
    """Fields this version does not know are kept, so they must be what JSON can hold."""
    level: list[Any] = [extra]
    for _ in range(EXTRA_DEPTH_MAX):
        if not level:
            return
        level = [inner for value in level for inner in _inside(value)]
    raise Invalid(f"The field extra nests deeper than {EXTRA_DEPTH_MAX} levels.", "Flatten it.")


def _inside(value: Any) -> Iterator[Any]:
    kind = type(value)
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise Invalid("The field extra has a key that is not text.", "JSON keys are text.")
        yield from value.values()
    elif kind is list or kind is tuple:
        yield from value
    elif kind is int:
        if not -_WHOLE_MAX - 1 <= value <= _WHOLE_MAX:
            raise Invalid(f"The field extra holds {value}, too big a number.", "Send it as text.")
    elif kind is float:
        if not math.isfinite(value):
            raise Invalid(f"The field extra holds {value}, which JSON cannot.", "Leave it out.")
    elif value is not None and kind not in (str, bool):
        raise Invalid(
            f"The field extra holds {kind.__name__}, which JSON cannot.", "Send plain data."
        )


def check_family(spec: Spec) -> None:
    """Next tasks, and theirs, end somewhere and share no name: later is too late to say no."""
    seen = {spec.id}
    level = list(spec.next)
    for _ in range(NEXT_DEPTH_MAX):
        if not level:
            return
        for child in level:
            if type(child) is not Spec:
                raise wrong_kind("next", Spec, child)
            if child.id in seen:
                raise Invalid(
                    f"Two of the tasks that follow {spec.id} are called {child.id}.",
                    "Give each its own id.",
                )
            seen.add(child.id)
        parents_first(level)  # raises if they wait for each other
        level = [grandchild for child in level for grandchild in child.next]
    raise Invalid(
        f"The tasks that follow {spec.id} nest deeper than {NEXT_DEPTH_MAX} levels.",
        "Let the last of them submit the rest.",
    )
