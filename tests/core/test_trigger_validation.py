"""What is said to a task must fit the log: kinds, bounds and readable texts, field by field."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.errors import Invalid
from agentq.core.limits import NAME_CHARS_MAX, NOTE_CHARS_MAX, PROGRESS_CHARS_MAX, SUMMARY_CHARS_MAX
from agentq.core.task import Gates
from agentq.core.trigger_validation import check_trigger
from agentq.core.values import fields_of, replace
from tests.core.building import A_TRIGGER

#: Values that no field of that kind may have: what could not be read back must not get in.
WRONG: dict[str, list[Any]] = {
    "str": [5, None, b"bytes", "caf\udce9", "nul\x00", "x" * 100_000],
    "int": [1.5, None, "5", 2**70, -(2**70), float("nan")],
    "float": [None, "x", float("nan"), float("inf")],
    "bool": [None, 1, "yes"],
    "FailureKind": ["weird", None, 5],
    "Resolution": ["weird", None, 5],
    "Ruling": ["weird", None, 5],
    "Usage": [None, 5, {"usd": 1}],
    "Gates": [None, 5, {"person": True}, Gates(min_score=101), Gates(reviewer=None)],  # type: ignore[arg-type]
    "tuple[str, ...]": [None, "patch", (5,), ("caf\udce9",)],
}
#: What people and workers say. The ledger makes the others itself, out of what it knows.
SAID = [
    name
    for name in A_TRIGGER
    if name
    not in (
        "Submit",
        "DependencyEnded",
        "Tick",
        "RefuseReport",
        "ReviewFailed",
        "ChildrenSubmitted",
    )
]
FIELDS = [
    (name, each.name, str(each.type))
    for name in SAID
    for each in fields_of(type(A_TRIGGER[name]))
    if (name, each.name) != ("Requeue", "waiting_on")
]


@pytest.mark.parametrize("name", A_TRIGGER)
def test_what_is_in_order_passes(name: str) -> None:
    assert check_trigger(A_TRIGGER[name]) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(("name", "field", "kind"), FIELDS)
def test_a_value_the_log_could_not_keep_is_refused(name: str, field: str, kind: str) -> None:
    word: Any = A_TRIGGER[name]
    for value in WRONG[kind]:
        with pytest.raises(Invalid) as refusal:
            check_trigger(replace(word, **{field: value}))
        assert refusal.value.cause.endswith("."), value


@pytest.mark.parametrize(
    "trigger",
    [
        t.Progress(1, 101),
        t.Progress(1, -1),
        t.AddArtifact(1, "log", -1, "0"),
        t.Release(1, "quota", -1),
        t.ClaimTask("", 1000),
        t.Approve(""),
        t.Approve("two\nlines"),
        t.Verdict("boss", t.Ruling.ACCEPT, score=101),
        t.Verdict("boss", t.Ruling.ACCEPT, score=-2),
    ],
    ids=repr,
)
def test_a_value_that_makes_no_sense_is_refused(trigger: t.Trigger) -> None:
    with pytest.raises(Invalid):
        check_trigger(trigger)


@pytest.mark.parametrize(
    ("trigger", "limit"),
    [
        (t.Report(1, "x"), SUMMARY_CHARS_MAX),
        (t.FailAttempt(1, "x"), SUMMARY_CHARS_MAX),
        (t.Answer("boss", "x"), NOTE_CHARS_MAX),
        (t.Verdict("boss", t.Ruling.ACCEPT, "x"), NOTE_CHARS_MAX),
        (t.Progress(1, 5, "x"), PROGRESS_CHARS_MAX),
        (t.Yield(1, note="x"), SUMMARY_CHARS_MAX),
        (t.Cancel("x"), NAME_CHARS_MAX),
    ],
    ids=["summary", "reason", "answer", "feedback", "progress", "yield", "name"],
)
def test_texts_have_their_bounds_and_may_fill_them(trigger: Any, limit: int) -> None:
    # Given the one text of a word that is an x,
    (field,) = [
        each.name for each in fields_of(type(trigger)) if getattr(trigger, each.name) == "x"
    ]
    # then it may be exactly so long, in any language, and no longer.
    check_trigger(replace(trigger, **{field: "é" * limit}))
    with pytest.raises(Invalid, match=str(limit)):
        check_trigger(replace(trigger, **{field: "é" * (limit + 1)}))


def test_a_branch_may_have_a_longer_name_than_a_person() -> None:
    assert check_trigger(t.Applied("ann", "c0ffee", "b" * 800)) is None  # type: ignore[func-returns-value]
    with pytest.raises(Invalid, match="801"):
        check_trigger(t.Applied("ann", "c0ffee", "b" * 801))
