"""Envelopes: what is written is what is read, unknown fields stay, unknown versions are refused."""

from __future__ import annotations

import doctest
import hashlib
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentq.core import triggers as t
from agentq.core.digests import SPEC_FIELDS, body_digest, canonical_json, spec_digest, spec_to_dict
from agentq.core.errors import AgentqError, Invalid
from agentq.core.states import State
from agentq.core.task import (
    ApprovalPolicy,
    Escalation,
    ExpectedOutput,
    Gates,
    OnDependencyFailure,
    Priority,
    Spec,
    Usage,
)
from agentq.core.values import fields_of, replace
from agentq.protocol import envelope
from agentq.protocol.envelope import iso, spec_from_dict, task_to_dict
from agentq.protocol.spec_validation import check_spec
from tests.core.building import BY_STATE, LEASE_MS, NOW, a_spec, claimed, submitted, then
from tests.core.drawn import any_json, sound_specs

#: The task envelope as the design gives it.
DESIGN_EXAMPLE = {
    "v": 1, "task_id": "task-123", "epoch": 0, "from": "coordinator",
    "to": "implementation-worker", "type": "implementation", "priority": "normal",
    "ttl_seconds": 3600, "reply_to": "results.coordinator",
    "context_ref": "file:///shared/tasks/task-123.md",
    "instructions": "Implement one scoped change and run tests.",
    "expected_output": {
        "format": "markdown", "artifacts": ["summary", "patch", "test-output", "risks"],
    },
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}  # fmt: skip


# -- round trips -------------------------------------------------------------------------------


@given(sound_specs)
def test_a_spec_survives_being_written_and_read(spec: Spec) -> None:
    plain = spec_to_dict(spec)
    assert spec_from_dict(plain) == spec
    # Also as JSON, by whoever writes it, in whatever order,
    again = spec_from_dict(dict(reversed(json.loads(canonical_json(plain)).items())))
    assert again == spec
    # and with it what was approved, and what is recognised as the same.
    assert spec_digest(again) == spec_digest(spec)
    assert body_digest(again) == body_digest(spec)


def test_what_is_at_its_default_is_not_written() -> None:
    # So a digest does not change when a later version adds a field.
    assert spec_to_dict(Spec("task-1", "worker")) == {"task_id": "task-1", "to": "worker"}


def test_the_envelope_of_the_design_is_read() -> None:
    spec = spec_from_dict(DESIGN_EXAMPLE)
    check_spec(spec)
    assert (spec.id, spec.to, spec.sender) == ("task-123", "implementation-worker", "coordinator")
    assert spec.expected_output.artifacts == ("summary", "patch", "test-output", "risks")
    assert spec.extra == {}
    assert DESIGN_EXAMPLE.items() >= spec_to_dict(spec).items()


def test_every_field_has_its_word_in_the_envelope() -> None:
    words = {word for _, word, _ in SPEC_FIELDS}
    assert {"task_id", "from", "to", "type", "priority", "ttl_seconds", "reply_to"} <= words
    assert "sender" not in words and "id" not in words
    assert len(words) == len(fields_of(Spec))


# -- fields and versions of tomorrow -----------------------------------------------------------


def test_unknown_fields_are_preserved() -> None:
    plain = {"task_id": "task-1", "to": "worker", "mood": "good", "nested": {"deep": [1, None]}}
    spec = spec_from_dict(plain)
    assert spec.extra == {"mood": "good", "nested": {"deep": [1, None]}}
    # Through as many hops as it takes, and they are part of what is approved.
    assert spec_from_dict(spec_to_dict(spec)) == spec
    assert spec_digest(spec) != spec_digest(replace(spec, extra={}))
    assert task_to_dict(then(submitted(extra=spec.extra)))["extra"] == spec.extra


@pytest.mark.parametrize("version", [0, 2, 99, "1", None, [1]])
def test_unknown_versions_are_refused(version: object) -> None:
    with pytest.raises(Invalid) as refusal:
        spec_from_dict({"v": version, "task_id": "task-1", "to": "worker"})
    assert repr(version) in refusal.value.cause
    assert refusal.value.remedy


@pytest.mark.parametrize("plain", [{"v": 1}, {}], ids=["said", "unsaid"])
def test_the_known_version_is_read_also_when_it_is_not_said(plain: dict[str, Any]) -> None:
    assert spec_from_dict({**plain, "task_id": "task-1", "to": "worker"}).extra == {}


@pytest.mark.parametrize("word", ["ttl_seconds", "reply_to", "priority", "after", "budget", "next"])
def test_a_field_that_is_null_is_a_field_that_is_not_there(word: str) -> None:
    assert spec_from_dict({"task_id": "task-1", "to": "worker", word: None}) == a_spec()


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("to", 5),
        ("task_id", ["task-1"]),
        ("ttl_seconds", 1.5),
        ("ttl_seconds", "1h"),
        ("max_attempts", True),
        ("irreversible", 1),
        ("priority", "asap"),
        ("on_dependency_failure", 3),
        ("expected_output", "patch"),
        ("expected_output", {"artifacts": "patch"}),
        ("budget", {"euro": 5}),
        ("budget", {"usd": "5"}),
        ("budget", 5),
        ("tree_budget", {"euro": 5}),
        ("after", "task-0"),
        ("after", [1]),
        ("base", "task-0"),
        ("base", [1]),
        ("labels", {"a": 1}),
        ("labels", ["a"]),
        ("next", {"to": "worker"}),
        ("next", ["task-2"]),
        ("next", [{"to": "worker"}]),
        ("extra", []),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(word: str, value: object) -> None:
    with pytest.raises(Invalid) as refusal:
        spec_from_dict({"task_id": "task-1", "to": "worker", word: value})
    assert word in refusal.value.cause or word == "next"


@pytest.mark.parametrize("lacking", ["task_id", "to"])
def test_a_field_that_must_be_there_is_named(lacking: str) -> None:
    plain = {"task_id": "task-1", "to": "worker"}
    del plain[lacking]
    with pytest.raises(Invalid, match=lacking):
        spec_from_dict(plain)


def test_endless_follow_ups_are_refused_not_followed() -> None:
    plain: dict[str, Any] = {"task_id": "task-1", "to": "worker"}
    for _ in range(5000):
        plain = {"task_id": "task-1", "to": "worker", "next": [plain]}
    with pytest.raises(Invalid):
        spec_from_dict(plain)


@given(st.dictionaries(st.sampled_from([w for _, w, _ in SPEC_FIELDS]), any_json))
def test_whatever_comes_over_the_wire_it_is_read_or_refused(plain: dict[str, Any]) -> None:
    with suppress(AgentqError):
        spec = spec_from_dict({"task_id": "task-1", "to": "worker", **plain})
        check_spec(spec)
        assert spec_from_dict(json.loads(canonical_json(spec_to_dict(spec)))) == spec


# -- digests -----------------------------------------------------------------------------------

#: Another value for every field.
OTHER: dict[str, Any] = {
    "id": "task-2", "to": "other", "sender": "other", "type": "other", "title": "x",
    "priority": Priority.HIGH, "instructions": "x", "context_ref": "x", "context_sha256": "x",
    "expected_output": ExpectedOutput("json"), "ttl_seconds": 1, "timeout_seconds": 1,
    "delay_seconds": 1, "lease_seconds": 1, "max_attempts": 1, "after": ("x",), "base": ("x",),
    "on_dependency_failure": OnDependencyFailure.RUN, "next": (Spec("n", "w"),),
    "resources": ("x",), "idempotency_key": "x", "irreversible": True, "requires_approval": True,
    "approval_timeout_seconds": 1, "review": True, "budget": Usage(usd=1),
    "tree_budget": Usage(usd=1), "reply_to": "x",
    "labels": {"x": "y"}, "traceparent": "x", "parent": "x", "extra": {"x": 1},
    "gates": Gates(person=True), "approval": ApprovalPolicy(60, (Escalation(90, "lead"),)),
    "wait_for": ("x",), "inputs": {"x": 1}, "each": "x", "workflow": "x", "reviews": "x",
}  # fmt: skip


def test_another_value_is_known_for_every_field() -> None:
    assert set(OTHER) == {each.name for each in fields_of(Spec)}


@pytest.mark.parametrize("name", OTHER)
def test_an_approval_binds_to_every_field(name: str) -> None:
    assert spec_digest(replace(a_spec(), **{name: OTHER[name]})) != spec_digest(a_spec())


@pytest.mark.parametrize("name", OTHER)
def test_idempotency_compares_everything_but_the_names(name: str) -> None:
    same = body_digest(replace(a_spec(), **{name: OTHER[name]})) == body_digest(a_spec())
    assert same is (name in {"id", "idempotency_key"})


def test_digests_do_not_change_from_version_to_version() -> None:
    # These stand in ledgers out there: approvals and dedup records would be lost with them.
    def digest_of(written: str) -> str:
        return hashlib.sha256(written.encode()).hexdigest()

    assert spec_digest(a_spec()) == digest_of('{"task_id":"task-1","to":"worker"}')
    assert spec_digest(a_spec(title="Grüße", sender="ann", after=("b", "a"))) == digest_of(
        '{"after":["b","a"],"from":"ann","task_id":"task-1","title":"Grüße","to":"worker"}'
    )
    dear = a_spec(budget=Usage(usd=1), labels={"b": "2", "a": "1"}, idempotency_key="k")
    assert body_digest(dear) == digest_of(
        '{"budget":{"usd":1.0},"labels":{"a":"1","b":"2"},"to":"worker"}'
    )


def test_a_whole_dollar_is_a_dollar() -> None:
    # The ledger gives 1.0 back for 1; that must not make another payload of it.
    for digest in (spec_digest, body_digest):
        assert digest(a_spec(budget=Usage(usd=1, seconds=60))) == digest(
            a_spec(budget=Usage(usd=1.0, seconds=60.0))
        )


def test_children_named_after_a_generated_parent_do_not_make_another_body() -> None:
    def family(parent: str, child: str) -> Spec:
        return Spec(parent, "worker", next=(Spec(child, "worker"),))

    assert body_digest(family("task-x", "task-x.1")) == body_digest(family("task-y", "task-y.1"))
    assert body_digest(family("task-x", "mine")) != body_digest(family("task-x", "other"))


# -- the shape users see -----------------------------------------------------------------------


def test_moments_are_iso_8601_in_utc() -> None:
    assert iso(0) is None
    assert iso(1) == "1970-01-01T00:00:00.001Z"
    assert doctest.testmod(envelope).failed == 0


def test_the_shape_of_a_task() -> None:
    task = then(
        claimed(
            title="Fix it", ttl_seconds=60, budget=Usage(usd=2), labels={"team": "core"},
            expected_output=ExpectedOutput(artifacts=("patch",)), reply_to="results.boss",
        ),
        t.Spend(1, Usage(usd=0.5)),
        t.Progress(1, 40, "reading"),
    )  # fmt: skip
    assert task_to_dict(task, context_ref="file:///c.md") == {
        "v": 1, "task_id": "task-1", "state": "in_progress", "epoch": 1,
        "from": "coordinator", "to": "worker", "type": "task", "title": "Fix it",
        "priority": "normal", "ttl_seconds": 60, "timeout_seconds": None, "delay_seconds": None,
        "lease_seconds": 60, "max_attempts": 3, "reply_to": "results.boss",
        "context_ref": "file:///c.md", "instructions": "",
        "expected_output": {"format": "markdown", "artifacts": ["patch"]},
        "after": [], "on_dependency_failure": "fail", "next": [], "resources": [],
        "idempotency_key": None, "irreversible": False, "requires_approval": False,
        "review": False, "budget": {"usd": 2}, "labels": {"team": "core"}, "traceparent": None,
        "parent": None, "version": 4, "holder": "ann", "lease_until": "2023-11-14T22:14:20.000Z",
        "wake_at": "2023-11-14T22:14:20.000Z", "submitted_at": "2023-11-14T22:13:20.000Z",
        "updated_at": "2023-11-14T22:13:20.000Z", "waiting_for": [], "held": None,
        "awaits_approval": False,
        "approved_by": None, "reason": None, "reason_kind": None, "failures": 0, "crashes": 0,
        "interruptions": 0, "rounds": 0,
        "denied": 0, "progress": {"percent": 40, "note": "reading"},
        "score": None, "review_task": None, "asked_of": None, "children": [],
        "ended_children": {}, "signals": [], "data": None,
        "cost": {"usd": 0.5}, "summary": None, "applied": None, "result_ref": None, "messages": [],
        "notes": [],
    }  # fmt: skip


@pytest.mark.parametrize("state", list(State), ids=str)
def test_the_shape_is_the_same_in_every_state(state: State) -> None:
    plain = task_to_dict(BY_STATE[state]())
    assert list(plain) == list(task_to_dict(submitted()))
    assert plain["state"] == state.value
    assert json.loads(json.dumps(plain)) == plain


def test_the_shape_tells_what_is_waited_for_and_what_was_said() -> None:
    waiting = task_to_dict(submitted(waiting_on=("task-0",), irreversible=True, delay_seconds=5))
    assert waiting["waiting_for"] == ["dependency task-0", "approval", "time"]
    assert waiting["awaits_approval"] is True
    failed = task_to_dict(then(claimed(), t.FailAttempt(1, "no"), at=NOW))
    assert failed["notes"] == [
        {"at": "2023-11-14T22:13:20.000Z", "by": "ann", "kind": "failure", "text": "no"}
    ]
    done = then(submitted(), t.ClaimTask("ann", LEASE_MS), t.Report(1, "all green"))
    assert task_to_dict(done, result_ref="file:///r.md")["result_ref"] == "file:///r.md"
    assert task_to_dict(done)["summary"] == "all green"
