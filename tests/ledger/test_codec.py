"""What is stored of a value: what it says beyond its defaults, however those came about."""

from __future__ import annotations

import pytest

from agentq.core.task import ExpectedOutput, Reported, Spec, TaskDetails, Usage
from agentq.core.triggers import ClaimTask, FailAttempt, FailureKind, Report, Trigger, trigger_name
from agentq.ledger.codec import decode_details, decode_spec, encode_details, encode_spec
from agentq.ledger.log_codec import decode_trigger, encode_trigger

SPEC = Spec("task-1", "worker")


def zero() -> float:
    return float("0")  # equal to the default, and not the same object


@pytest.mark.parametrize(
    ("trigger", "stored"),
    [
        (Report(1, "built", cost=Usage(zero())), '{"epoch":1,"summary":"built"}'),
        (Report(1, "built", cost=Usage(0.5)), None),
        (ClaimTask("me", 1000), '{"holder":"me","lease_ms":1000}'),
        (FailAttempt(2, reason="slow", kind=FailureKind.TIMEOUT, jitter=zero()), None),
    ],
)
def test_triggers_keep_what_they_say_and_no_defaults(trigger: Trigger, stored: str | None) -> None:
    text = encode_trigger(trigger)
    if stored is not None:
        assert text == stored
    assert decode_trigger(trigger_name(trigger), text, SPEC) == trigger


def test_details() -> None:
    assert encode_details(TaskDetails()) == ""
    assert encode_details(TaskDetails(spent=Usage(zero(), 0, 0, zero()))) == ""
    details = TaskDetails(failures=300, report=Reported(1, "me", "done"), spent=Usage(0.25, 300))
    assert decode_details(encode_details(details)) == details


def test_specs_with_equal_defaults_and_children() -> None:
    bare = Spec("task-1", "worker", expected_output=ExpectedOutput(), budget=Usage(zero()))
    assert encode_spec(bare) == encode_spec(SPEC) == '{"id":"task-1","to":"worker"}'
    child = Spec("task-1.1", "reviewer", labels={"kind": "review"})
    parent = Spec("task-1", "worker", next=(child,), lease_seconds=3600)
    assert decode_spec(encode_spec(parent)) == parent
    assert '"next":[{"id":"task-1.1","to":"reviewer","labels":{"kind":"review"}}]' in encode_spec(
        parent
    )
