"""Specs as Hypothesis draws them: sound ones, and ones that are right in their types only."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from agentq.core.task import (
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
from agentq.core.values import replace

_NAME = string.ascii_letters + string.digits
ids = st.builds(
    lambda head, tail: head + tail,
    st.sampled_from(_NAME),
    st.text(_NAME + "-_", max_size=8),
)
#: Words of ordinary languages, never long enough to look like a key.
lines = st.text("abcdefgh ÄÖéß中文🙂", max_size=12)
json_values: SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | lines,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(lines, inner, max_size=3),
    max_leaves=5,
)
usage = st.just(NO_USAGE) | st.builds(
    Usage,
    usd=st.sampled_from([0, 1, 0.25]),
    tokens=st.integers(0, 10**9),
    seconds=st.sampled_from([0, 90, 0.5]),
)


def _specs(fields: dict[str, SearchStrategy[Any]], at_most: int) -> SearchStrategy[Spec]:
    """Specs with a few fields drawn and the others at their defaults: cheap, and telling."""
    chosen = st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=at_most, unique=True)

    @st.composite
    def build(draw: st.DrawFn) -> Spec:
        drawn = {name: draw(fields[name]) for name in draw(chosen)}
        return Spec(**{"id": "task-1", "to": "worker", **drawn})

    return build()


#: Values that may be submitted.
_SOUND: dict[str, SearchStrategy[Any]] = {
    "id": ids,
    "to": ids,
    "sender": ids,
    "type": lines,
    "title": lines,
    "priority": st.sampled_from(Priority),
    "instructions": st.text("abc \n\t中🙂", max_size=30),
    "context_ref": lines,
    "expected_output": st.builds(
        ExpectedOutput,
        st.sampled_from(["markdown", "json"]),
        st.lists(ids, max_size=3).map(tuple),
    ),
    "ttl_seconds": st.integers(0, 10**6),
    "timeout_seconds": st.integers(0, 10**6),
    "delay_seconds": st.integers(0, 10**6),
    "lease_seconds": st.integers(1, 10**6),
    "max_attempts": st.integers(1, 1000),
    "after": st.lists(ids.map("dep-{}".format), max_size=2, unique=True).map(tuple),
    "on_dependency_failure": st.sampled_from(OnDependencyFailure),
    "resources": st.lists(ids, max_size=2, unique=True).map(tuple),
    "idempotency_key": lines,
    "irreversible": st.booleans(),
    "requires_approval": st.booleans(),
    "approval_timeout_seconds": st.integers(0, 10**6),
    "review": st.booleans(),
    "budget": usage,
    "tree_budget": usage,
    "reply_to": lines,
    "labels": st.dictionaries(lines, lines, max_size=3),
    "extra": st.dictionaries(lines, json_values, max_size=2),
    "inputs": st.dictionaries(lines, json_values, max_size=2),
    "gates": st.builds(
        Gates,
        st.sampled_from(["", "make test"]),
        st.just("a-reviewer-of-its-own"),
        st.integers(0, 100),
        st.integers(0, 100),
        st.booleans(),
    )
    | st.builds(Gates, person=st.booleans()),
    "approval": st.builds(
        ApprovalPolicy,
        st.integers(0, 10**6),
        st.lists(st.integers(1, 10**6), max_size=2, unique=True).map(
            lambda moments: tuple(Escalation(each, "lead") for each in sorted(moments))
        ),
    ),
    "wait_for": st.lists(ids, max_size=2).map(tuple),
}
_children = st.lists(_specs(_SOUND, 3), max_size=2, unique_by=lambda spec: spec.id).map(
    lambda specs: tuple(replace(spec, id=f"child-{spec.id}") for spec in specs)
)
sound_specs = _specs({**_SOUND, "next": _children}, 8)


any_text = st.text(st.characters(), max_size=20) | st.text(
    st.characters(categories=["Cs", "Cc", "Ll"]), max_size=5
)
any_json: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(2**70) | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=8,
)


_BY_TYPE: dict[str, SearchStrategy[Any]] = {
    "str": any_text | ids,
    "int": st.integers(),
    "bool": st.booleans(),
    "tuple[str, ...]": st.lists(any_text, max_size=3).map(tuple),
    "Usage": st.builds(Usage, st.floats(), st.integers(), st.integers(), st.floats()),
    "ExpectedOutput": st.builds(
        ExpectedOutput, any_text, st.lists(any_text, max_size=2).map(tuple)
    ),
    "Priority": st.sampled_from(Priority),
    "OnDependencyFailure": st.sampled_from(OnDependencyFailure),
    "Gates": st.builds(Gates, any_text, any_text, st.integers(), st.integers(), st.booleans()),
    "ApprovalPolicy": st.builds(
        ApprovalPolicy,
        st.integers(),
        st.lists(st.builds(Escalation, st.integers(), any_text), max_size=2).map(tuple),
        st.sampled_from(OnTimeout),
    ),
    "tuple[Spec, ...]": st.just(()),
    "Mapping[str, str]": st.dictionaries(any_text, any_text, max_size=2),
    "Mapping[str, Any]": st.dictionaries(any_text, any_json, max_size=2),
}
#: Right in their types, and in nothing else; wrong in a few places only, as otherwise the first
#: check would catch them all.
any_specs = _specs({n: _BY_TYPE[str(kind)] for n, kind in Spec.__annotations__.items()}, 3)
