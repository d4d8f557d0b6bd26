"""Gates, approval policies and signals of a spec: what could not be kept to is refused."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core.errors import Invalid
from agentq.core.limits import SIGNALS_KEPT
from agentq.core.task import ApprovalPolicy, Escalation, Gates, OnTimeout
from agentq.protocol.envelope import spec_from_dict
from agentq.protocol.spec_validation import check_spec
from tests.core.building import a_spec

YEARS_11 = 11 * 366 * 24 * 3600
LEAD = Escalation(60, "lead")


def wrong(**fields: Any) -> Any:
    """A value of another type than is promised."""
    return fields


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (wrong(gates=None), "gates"),
        (wrong(gates=Gates(min_score=101)), "min_score"),
        (wrong(gates=Gates(min_score=True)), "min_score"),
        (wrong(gates=Gates(max_rounds=-1)), "max_rounds"),
        (wrong(gates=Gates(reviewer="rae", max_rounds=101)), "from 0 to 100, got '101'"),
        (wrong(gates=Gates(verify=5)), "gates"),  # type: ignore[arg-type]
        (wrong(gates=Gates(person=1)), "person"),  # type: ignore[arg-type]
        (wrong(gates=Gates(verify="two\nlines")), "gates"),
        (wrong(gates=Gates(reviewer="two words")), "reviewer"),
        (wrong(gates=Gates(reviewer="worker")), "cannot review its own work"),
        (wrong(gates=Gates(min_score=5)), "for a reviewer"),
        (wrong(gates=Gates(max_rounds=5)), "for a reviewer"),
        (wrong(approval=None), "approval"),
        (wrong(approval=ApprovalPolicy(on_timeout="hold")), "on_timeout"),  # type: ignore[arg-type]
        (wrong(approval=ApprovalPolicy(escalate=[LEAD])), "steps"),  # type: ignore[arg-type]
        (wrong(approval=ApprovalPolicy(escalate=(LEAD,) * 21)), "20 steps"),
        (wrong(approval=ApprovalPolicy(escalate=("lead",))), "`after` and `to`"),  # type: ignore[arg-type]
        (wrong(approval=ApprovalPolicy(escalate=(Escalation(5, " "),))), "`after` and `to`"),
        (wrong(approval=ApprovalPolicy(escalate=(Escalation(5, 5),))), "`after`"),  # type: ignore[arg-type]
        (wrong(approval=ApprovalPolicy(escalate=(Escalation(1.5, "x"),))), "approval"),  # type: ignore[arg-type]
        (wrong(approval=ApprovalPolicy(-1)), "approval"),
        (wrong(approval=ApprovalPolicy(escalate=(Escalation(0, "x"),))), "each later"),
        (wrong(approval=ApprovalPolicy(escalate=(LEAD, LEAD))), "each later"),
        (wrong(approval=ApprovalPolicy(escalate=(LEAD, Escalation(5, "x")))), "each later"),
        (wrong(approval=ApprovalPolicy(YEARS_11)), "10 years"),
        (wrong(approval=ApprovalPolicy(escalate=(Escalation(YEARS_11, "x"),))), "10 years"),
        (wrong(approval=ApprovalPolicy(escalate=(Escalation(5, "a\nb"),))), "approval"),
        (wrong(approval=ApprovalPolicy(on_timeout=OnTimeout.REJECT)), "no timeout"),
        (
            wrong(
                approval=ApprovalPolicy(on_timeout=OnTimeout.APPROVE),
                approval_timeout_seconds=60,
                irreversible=True,
            ),
            "never approves",
        ),
        (wrong(wait_for=("two words",)), "signal's name"),
        (wrong(wait_for=(5,)), "wait_for"),
        (wrong(wait_for=("x",) * (SIGNALS_KEPT + 1)), str(SIGNALS_KEPT)),
        (wrong(inputs={"x": 1j}), "inputs"),
        (wrong(inputs={"x": "nul\x00"}), "inputs"),
    ],
    ids=repr,
)
def test_what_could_not_be_kept_to_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        check_spec(a_spec(**fields))


def test_what_is_in_order_passes() -> None:
    check_spec(
        a_spec(
            gates=Gates("make test", "reviewer", 80, 2, True),
            approval=ApprovalPolicy(60, (LEAD, Escalation(90, "head")), OnTimeout.REJECT),
            approval_timeout_seconds=600, requires_approval=True, wait_for=("go", "go"),
            inputs={"files": ["a.py"], "deep": {"n": None}},
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("word", "plain"),
    [
        ("gates", {"unknown": 1}),
        ("gates", {"min_score": 101}),
        ("gates", []),
        ("approval", {"unknown": 1}),
        ("approval", {"escalate": [{"after_seconds": 5}]}),
        ("approval", {"escalate": {}}),
        ("approval", {"on_timeout": "explode"}),
        ("approval", {"on_timeout": []}),
        ("approval", {"remind_seconds": "soon"}),
    ],
)
def test_over_the_wire_it_is_refused_as_well(word: str, plain: object) -> None:
    with pytest.raises(Invalid):
        spec_from_dict({"task_id": "task-1", "to": "worker", word: plain})


def test_over_the_wire_it_is_read() -> None:
    approval = {"remind_seconds": 5, "escalate": [{"after_seconds": 60, "to": "lead"}],
                "on_timeout": "reject"}  # fmt: skip
    spec = spec_from_dict(
        {"task_id": "task-1", "to": "worker", "gates": {"person": True}, "approval": approval}
    )
    assert spec.gates == Gates(person=True)
    assert spec.approval == ApprovalPolicy(5, (LEAD,), OnTimeout.REJECT)


def test_as_many_rounds_as_anybody_may_want() -> None:
    assert check_spec(a_spec(gates=Gates(reviewer="rae", max_rounds=100))) is None  # type: ignore[func-returns-value]
