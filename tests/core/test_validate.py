"""What may be submitted: names, ranges, sizes, secrets. Everything else is refused in words."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given

from agentq.core.digests import canonical_json, spec_digest, spec_to_dict
from agentq.core.errors import AgentqError, Invalid
from agentq.core.limits import ENVELOPE_BYTES_MAX
from agentq.core.task import ExpectedOutput, Spec, Usage
from agentq.protocol.spec_validation import check_id, check_role, check_spec
from tests.core.building import a_spec
from tests.core.drawn import any_specs, sound_specs


def refused(**fields: Any) -> Invalid:
    with pytest.raises(Invalid) as refusal:
        check_spec(a_spec(**fields))
    return refusal.value


# -- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize("task_id", ["a", "7", "task-1", "A.b_c-d", "x" * 128, "0" * 12])
def test_ids_that_may_be(task_id: str) -> None:
    assert check_id(task_id) == task_id


@pytest.mark.parametrize(
    "task_id",
    ["", "-a", ".a", "_a", "a b", "a/b", "../a", "a..b", "a\n", "é", "x" * 129, "a\x00", "\udcff",
     "a:b", "task-1 "],
)  # fmt: skip
def test_ids_that_may_not_be(task_id: str) -> None:
    with pytest.raises(Invalid) as refusal:
        check_id(task_id)
    assert repr(task_id)[:100] in refusal.value.cause
    assert refusal.value.remedy
    assert refused(id=task_id).code == "invalid"


@pytest.mark.parametrize("role", ["w", "implementation-worker", "team/a:b@c.d_e", "R" * 128])
def test_roles_that_may_be(role: str) -> None:
    assert check_role(role) == role


@pytest.mark.parametrize("role", ["", "-w", "/w", "a b", "a\n", "rôle", "r" * 129, "\udcff", "*"])
def test_roles_that_may_not_be(role: str) -> None:
    assert "role" in refused(to=role).cause
    assert "sender (--from)" in refused(sender=role).cause


def test_nothing_comes_after_itself() -> None:
    assert "cannot come after itself" in refused(after=("task-0", "task-1")).cause


def test_a_base_is_waited_for() -> None:
    check_spec(a_spec(after=("task-0", "task-2"), base=("task-2", "task-0")))
    for after, base in (((), ("task-0",)), (("task-2",), ("task-0",)), ((), ("",))):
        refusal = refused(after=after, base=base)
        assert "does not come after it" in refusal.cause
    following = (Spec("task-2", "worker", base=("task-1",)),)
    assert "does not come after it" in refused(next=following).cause


def test_how_many_bases_there_may_be() -> None:
    names = tuple(f"task-{number}" for number in range(10, 27))
    check_spec(a_spec(after=names, base=names[:16]))
    assert "at most 16 others, each named once; got 17" in refused(after=names, base=names).cause
    assert "got 2" in refused(after=("task-0",), base=("task-0", "task-0")).cause


def test_dependencies_are_ids() -> None:
    assert refused(after=("task 0",)).code == "invalid"
    assert refused(after=("",)).code == "invalid"


# -- numbers -----------------------------------------------------------------------------------

DURATIONS = ["ttl_seconds", "timeout_seconds", "delay_seconds", "lease_seconds",
             "approval_timeout_seconds"]  # fmt: skip


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("seconds", [-1, 10**10, 2**63])
def test_durations_are_positive_and_at_most_ten_years(name: str, seconds: int) -> None:
    error = refused(**{name: seconds})
    assert name in error.cause
    assert str(seconds) in error.cause
    check_spec(a_spec(**{name: 1}))
    check_spec(a_spec(**{name: 3650 * 86_400}))


def test_a_lease_must_last() -> None:
    assert "lease_seconds" in refused(lease_seconds=0).cause


@pytest.mark.parametrize("attempts", [0, -1, 1001])
def test_attempts_are_one_to_a_thousand(attempts: int) -> None:
    assert "max_attempts" in refused(max_attempts=attempts).cause


@pytest.mark.parametrize("name", [*DURATIONS, "max_attempts"])
@pytest.mark.parametrize("value", [1.5, "60", True, None])
def test_numbers_are_whole(name: str, value: object) -> None:
    # What the ledger could not read back must not get in.
    assert name in refused(**{name: value}).cause


@pytest.mark.parametrize("unit", ["usd", "tokens", "turns", "seconds"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**30, "5"])
def test_budgets_are_amounts(unit: str, value: Any) -> None:
    assert "budget" in refused(budget=Usage(**{unit: value})).cause


@pytest.mark.parametrize("name", ["after", "resources"])
def test_lists_are_bounded(name: str) -> None:
    assert "1001" in refused(**{name: tuple(f"x{i}" for i in range(1001))}).cause


def test_labels_are_bounded() -> None:
    assert "labels" in refused(labels={f"x{i}": "" for i in range(1001)}).cause


# -- texts -------------------------------------------------------------------------------------


def with_text(field: str, text: str) -> dict[str, Any]:
    """A spec's fields with this text in the named place."""
    if field in ("labels", "label key"):
        return {"labels": {"team": text} if field == "labels" else {text: "core"}}
    if field == "expected_output":
        return {field: ExpectedOutput(artifacts=("patch", text))}
    if field == "format":
        return {"expected_output": ExpectedOutput(format=text)}
    if field == "extra":
        return {"extra": {"deep": [{"down": text}]}}
    if field == "extra key":
        return {"extra": {"deep": [{text: 1}]}}
    if field in ("resources", "after"):
        return {field: ("gpu", text)}
    return {field: text}


ONE_LINE = [
    "type", "title", "reply_to", "context_ref", "idempotency_key", "labels", "label key",
    "resources", "expected_output", "format", "traceparent", "context_sha256", "parent",
]  # fmt: skip
FREE = ["instructions", "extra", "extra key"]
NAMES = ["id", "to", "sender", "after"]


@pytest.mark.parametrize("field", ONE_LINE)
@pytest.mark.parametrize("text", ["two\nlines", "bell\x07", "nul\x00", "del\x7f", "x" * 1000])
def test_one_line_is_one_line(field: str, text: str) -> None:
    assert refused(**with_text(field, text)).code == "invalid"


@pytest.mark.parametrize("field", FREE)
def test_free_text_has_lines_but_no_nul(field: str) -> None:
    check_spec(a_spec(**with_text(field, "two\nlines\tand a tab")))
    assert "NUL" in refused(**with_text(field, "nul\x00")).cause


@pytest.mark.parametrize("field", [*ONE_LINE, *FREE, *NAMES])
def test_bytes_in_the_guise_of_text_are_refused(field: str) -> None:
    # What a terminal hands over for bytes that are no UTF-8; no database could store it.
    assert refused(**with_text(field, "caf\udce9")).code == "invalid"


#: An invented key, in pieces so that nobody mistakes this file for a leak.
KEY = "ghp" + "_" + "a8F3kQ9zL2mX7vB4nC6wR1tY5uJ0pH3dS8eG"


@pytest.mark.parametrize("field", [*ONE_LINE, *FREE, *NAMES])
def test_a_secret_is_named_by_its_field_and_the_rule(field: str) -> None:
    error = refused(**with_text(field, KEY))
    assert error.code == "secret"
    place = {"label key": "labels", "extra key": "extra", "format": "expected_output"}
    assert f"field {place.get(field, field)} " in error.cause
    assert "GitHub token" in error.cause
    assert KEY not in str(error)
    assert error.remedy


def test_a_secret_of_a_follow_up_is_found_too() -> None:
    assert refused(next=(Spec("task-2", "worker", instructions=f"use {KEY}"),)).code == "secret"


# -- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"instructions": "x" * ENVELOPE_BYTES_MAX},
        {"instructions": "🙂" * (ENVELOPE_BYTES_MAX // 4)},
        {"instructions": "\x01" * (ENVELOPE_BYTES_MAX // 6)},
        {"extra": {"x": "y" * ENVELOPE_BYTES_MAX}},
        {"extra": {str(i): i for i in range(10_000)}},
        {"after": tuple(f"{'x' * 100}{i}" for i in range(1000))},
        {"resources": tuple(f"{'x' * 100}{i}" for i in range(1000))},
        {"labels": {f"{'x' * 100}{i}": "" for i in range(1000)}},
        {"expected_output": ExpectedOutput(artifacts=tuple(f"{'x' * 100}{i}" for i in range(999)))},
        {"next": tuple(Spec(f"n{i}", "worker", instructions="x" * 100) for i in range(999))},
    ],
    ids=["long", "wide", "escaped", "extra", "extra keys", "after", "resources", "labels",
         "expected", "next"],
)  # fmt: skip
def test_an_envelope_has_at_most_64_kib(fields: dict[str, Any]) -> None:
    assert len(canonical_json(spec_to_dict(a_spec(**fields)))) > ENVELOPE_BYTES_MAX
    error = refused(**fields)
    assert error.code == "too_large"
    assert str(ENVELOPE_BYTES_MAX) in error.cause


def test_an_envelope_just_below_the_limit_is_accepted() -> None:
    room = ENVELOPE_BYTES_MAX - len(canonical_json(spec_to_dict(a_spec(instructions="x")))) + 1
    check_spec(a_spec(instructions="x" * room))
    assert refused(instructions="x" * (room + 1)).code == "too_large"


# -- follow-ups --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "child",
    [Spec("..", "worker"), Spec("task-2", ""), Spec("task-2", "worker", ttl_seconds=-1),
     Spec("task-2", "worker", next=(Spec("task-3", "worker", title="a\nb"),))],
    ids=["id", "role", "number", "grandchild"],
)  # fmt: skip
def test_follow_ups_are_held_to_the_same_rules(child: Spec) -> None:
    assert refused(next=(child,)).code == "invalid"


@pytest.mark.parametrize(
    "children",
    [
        (Spec("task-2", "worker"), Spec("task-2", "other")),
        (Spec("task-1", "worker"),),
        (Spec("task-2", "worker", next=(Spec("task-2", "worker"),)),),
    ],
    ids=["each other's", "their parent's", "their grandparent's"],
)
def test_follow_ups_do_not_share_a_name(children: tuple[Spec, ...]) -> None:
    # They would be submitted when the task completes: too late to say no.
    assert refused(next=children).code == "invalid"


def test_follow_ups_do_not_follow_each_other_without_end() -> None:
    spec = Spec("n", "w")
    for number in range(2000):
        spec = Spec(f"n{number}", "w", next=(spec,))
    with pytest.raises(Invalid):
        check_spec(spec)


# -- what is kept without being understood -----------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**64, -(2**64), b"bytes", {1: "a number as key"}, {"a set"},
     object()],
    ids=["nan", "infinity", "big", "small", "bytes", "key", "set", "object"],
)  # fmt: skip
def test_extra_fields_hold_what_json_holds(value: object) -> None:
    assert "extra" in refused(extra={"a": [value]}).cause


def test_extra_fields_are_not_bottomless() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert "extra" in refused(extra={"a": deep}).cause


# -- everything --------------------------------------------------------------------------------


@given(sound_specs)
def test_sound_specs_are_accepted(spec: Spec) -> None:
    check_spec(spec)
    assert len(spec_digest(spec)) == 64


@given(any_specs)
def test_anything_else_is_refused_and_never_a_crash(spec: Spec) -> None:
    with suppress(AgentqError):
        check_spec(spec)
        # Whatever was accepted can be written down, and fits.
        assert len(canonical_json(spec_to_dict(spec))) <= ENVELOPE_BYTES_MAX
