"""What kind of value each field of a spec holds. What could not be read back must not get in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from agentq.core.errors import Invalid
from agentq.core.graph import parents_first
from agentq.core.task import (
    NO_GATES,
    NO_OUTPUT_EXPECTED,
    NO_POLICY,
    NO_USAGE,
    ApprovalPolicy,
    Escalation,
    ExpectedOutput,
    Gates,
    OnDependencyFailure,
    OnTimeout,
    Priority,
    Spec,
    Usage,
)
from agentq.core.values import fields_of

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
    "gates": Gates,
    "approval": ApprovalPolicy,
    "wait_for": tuple,
    "inputs": dict,
    "irreversible": bool,
    "requires_approval": bool,
    "review": bool,
    "max_attempts": int,
}
NAMES = tuple(each.name for each in fields_of(Spec))
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
        check_plain("extra", spec.extra)
    if spec.inputs or spec.wait_for:
        check_plain("inputs", spec.inputs)
        _check_texts("wait_for", spec.wait_for)
    if spec.gates is not NO_GATES or spec.approval is not NO_POLICY:
        check_gates(spec.gates)
        _check_policy(spec.approval)


#: What a score goes up to, and how many rounds anybody may want.
SCORE_MAX = 100
_ROUNDS_ALLOWED = 100
_ESCALATIONS_ALLOWED = 20


def check_gates(gates: Gates) -> None:
    """Raise `Invalid` unless every field of the gates is of its kind and within its range."""
    for name, most in (("min_score", SCORE_MAX), ("max_rounds", _ROUNDS_ALLOWED)):
        value = getattr(gates, name)
        if type(value) is not int or not 0 <= value <= most:
            raise Invalid(f"{name} is a whole number from 0 to {most}, got {str(value)[:60]!r}.")
    _check_texts("gates", (gates.verify, gates.reviewer))
    if type(gates.person) is not bool:
        raise wrong_kind("gates.person", bool, gates.person)


def _check_policy(policy: ApprovalPolicy) -> None:
    if type(policy.on_timeout) is not OnTimeout:
        known = ", ".join(OnTimeout)
        raise Invalid(f"on_timeout is {known}; got {str(policy.on_timeout)[:60]!r}.")
    if type(policy.escalate) is not tuple or len(policy.escalate) > _ESCALATIONS_ALLOWED:
        raise Invalid(f"An approval escalates in at most {_ESCALATIONS_ALLOWED} steps.")
    waits = [policy.remind_seconds]
    for each in policy.escalate:
        if type(each) is not Escalation or type(each.to) is not str or not each.to.strip():
            raise Invalid(
                f"A step of an escalation says `after` and `to`, got {str(each)[:80]!r}.",
                "For example: {after: 4h, to: lead}.",
            )
        waits.append(each.after_seconds)
    if any(type(each) is not int or each < 0 for each in waits):
        raise wrong_kind("approval", int, waits)
    if sorted({0, *waits[1:]}) != [0, *waits[1:]]:
        raise Invalid("The steps of an escalation come one after the other, each later.")


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


def check_plain(name: str, extra: Any) -> None:
    """Raise `Invalid` unless this is what JSON can hold, to a bounded depth."""
    level: list[Any] = [extra]
    for _ in range(EXTRA_DEPTH_MAX):
        if not level:
            return
        level = [inner for value in level for inner in _inside(name, value)]
    raise Invalid(f"The field {name} nests deeper than {EXTRA_DEPTH_MAX} levels.", "Flatten it.")


def _inside(name: str, value: Any) -> Iterator[Any]:
    kind = type(value)
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise Invalid(f"The field {name} has a key that is not text.", "JSON keys are text.")
        yield from value.values()
    elif kind is list or kind is tuple:
        yield from value
    elif kind is int:
        if not -_WHOLE_MAX - 1 <= value <= _WHOLE_MAX:
            raise Invalid(f"The field {name} holds {value}, too big a number.", "Send it as text.")
    elif kind is float:
        if not math.isfinite(value):
            raise Invalid(f"The field {name} holds {value}, which JSON cannot.", "Leave it out.")
    elif value is not None and kind not in (str, bool):
        raise Invalid(
            f"The field {name} holds {kind.__name__}, which JSON cannot.", "Send plain data."
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
