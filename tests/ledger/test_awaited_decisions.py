"""What waits for decisions of people, under a clock that the test moves."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.overview_values import AwaitedDecision, AwaitedDecisions, DecisionKind
from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.errors import Invalid
from agentq.core.policy_steps import PolicyStepKind
from agentq.core.states import State
from agentq.core.task import ApprovalPolicy, Escalation, Gates, OnTimeout, Spec, Usage
from agentq.ledger import awaited_decisions
from tests.ledger.conftest import LedgerEnv

HOUR = 3600
POLICY = ApprovalPolicy(
    HOUR, (Escalation(2 * HOUR, "lead"), Escalation(4 * HOUR, "boss")), OnTimeout.REJECT
)


def asked(
    env: LedgerEnv, role: str = "", asked_of: str = "", limit: int = 50, *, everything: bool = False
) -> AwaitedDecisions:
    return env.ledger.queries.approvals(role, asked_of, limit, with_reviewers=everything)


def ids(found: AwaitedDecisions) -> list[str]:
    return [each.task_id for each in found.decisions]


def only(env: LedgerEnv, **wanted: Any) -> AwaitedDecision:
    (found,) = asked(env, **wanted).decisions
    return found


def after(env: LedgerEnv, seconds: int) -> None:
    """Let time pass, with a process that looks at every moment that matters."""
    end = env.clock.now + seconds * 1000
    while (wake := env.ledger.queries.next_wake()) and wake <= end:
        env.clock.forward((wake - env.clock.now) / 1000)
        env.ledger.tick()
    env.clock.forward((end - env.clock.now) / 1000)


def test_the_irreversible_first_then_what_waits_longest(env: LedgerEnv) -> None:
    env.submit("old", requires_approval=True)
    env.clock.forward(60)
    env.submit("report", review=True)
    env.start("report")
    env.report("report")
    env.clock.forward(60)
    env.submit("pay", irreversible=True)
    env.submit("free")
    env.submit("given", requires_approval=True, after=("free",))
    env.approve("given")
    found = asked(env)
    assert ids(found) == ["pay", "old", "report"]
    assert (found.at, found.more) == (env.clock.now, False)
    assert [str(each.kind) for each in found.decisions] == ["approval", "approval", "review"]
    pay = found.decisions[0]
    assert (pay.irreversible, pay.version) == (True, 1)
    assert pay.digest == spec_digest(env.task("pay").spec)


def test_what_a_policy_asks_of_whom_and_what_it_does_next(env: LedgerEnv) -> None:
    start = env.clock.now
    env.submit(requires_approval=True, approval=POLICY, approval_timeout_seconds=8 * HOUR)
    after(env, 3 * HOUR)
    found = only(env)
    assert (found.since, found.waits_for) == (start, "an approval")
    assert (found.asked_of, found.escalation, found.escalations) == ("lead", 1, 2)
    assert [(each.kind, each.at - start) for each in found.steps] == [
        (PolicyStepKind.ESCALATE, 4 * HOUR * 1000),
        (PolicyStepKind.REMIND, 4 * HOUR * 1000),
        (PolicyStepKind.TIMEOUT, 8 * HOUR * 1000),
    ]
    assert asked(env, asked_of="lead").decisions == (found,)
    assert asked(env, asked_of="boss").decisions == ()
    after(env, 2 * HOUR)
    assert only(env, asked_of="boss").escalation == 2
    after(env, 4 * HOUR)
    assert asked(env).decisions == () and env.state() is State.FAILED


def test_what_nobody_approved_in_time_is_held_and_still_listed(env: LedgerEnv) -> None:
    env.submit(requires_approval=True, approval_timeout_seconds=HOUR)
    after(env, 2 * HOUR)
    held = env.clock.now - HOUR * 1000
    after(env, 3 * 24 * HOUR)  # reminders come in between
    found = only(env)
    assert found.waits_for == f"an approval: nobody approved it within {HOUR} s"
    assert (found.state, found.since) == (State.BLOCKED, held)
    env.submit("question")
    env.start("question")
    env.ledger.block(env.key("question"), 1, "which branch?")
    assert ids(asked(env)) == ["task-1"], "a question is no approval"


def test_a_report_waits_since_it_came_whatever_was_noted_since(env: LedgerEnv) -> None:
    env.submit(review=True)
    env.start()
    env.spend("task-1", 0.25)
    env.report(summary="two pages", cost=Usage(usd=0.5))
    reported = env.clock.now
    after(env, 5 * 24 * HOUR)
    env.ledger.apply(env.key("task-1"), t.Comment("ann", "I look tomorrow"))
    found = only(env)
    assert (found.kind, found.since) == (DecisionKind.REVIEW, reported)
    assert (found.summary, found.waits_for, found.epoch) == ("two pages", "a verdict", 1)
    assert found.cost.usd == 0.75


def test_what_a_reviewer_is_about_to_judge_is_listed_on_request(env: LedgerEnv) -> None:
    env.submit(gates=Gates(reviewer="reviewer", person=True))
    env.start()
    env.report()
    assert asked(env).decisions == ()
    found = only(env, everything=True)
    assert (found.waits_for, found.review_task) == (
        "its review task-1.review-1", "task-1.review-1",
    )  # fmt: skip
    env.start("task-1.review-1", "rob")
    env.report("task-1.review-1", data='{"verdict": "accept", "score": 90}')
    found = only(env)
    assert found.waits_for == "a verdict: a reviewer has accepted it with 90 of 100"
    assert (found.score, found.review_task) == (90, "")


def test_a_person_who_is_asked_because_the_review_failed_reads_why(env: LedgerEnv) -> None:
    env.submit(gates=Gates(reviewer="reviewer"))
    env.start()
    env.report()
    env.ledger.cancel(env.key("task-1.review-1"), "boss")
    assert "its review task-1.review-1 is cancelled" in only(env).waits_for


def test_a_reviewer_may_accept_without_a_score(env: LedgerEnv) -> None:
    env.submit(gates=Gates(reviewer="reviewer", person=True))
    env.start()
    env.report()
    env.start("task-1.review-1", "rob")
    env.report("task-1.review-1", data='{"verdict": "accept"}')
    assert only(env).waits_for == "a verdict: a reviewer has accepted it"


def test_what_else_it_waits_for_is_named(env: LedgerEnv) -> None:
    env.submit("first")
    env.submit(requires_approval=True, after=("first",))
    assert only(env).waits_for == "an approval; also dependency first"


def test_of_one_role(env: LedgerEnv) -> None:
    env.submit("a", "worker", requires_approval=True)
    env.submit("b", "writer", requires_approval=True)
    env.submit("c", "writer", review=True)
    env.start("c")
    env.report("c")
    assert ids(asked(env, role="writer")) == ["b", "c"]
    assert ids(asked(env, role="nobody")) == []


def test_a_list_is_bounded_and_says_that_there_are_more(
    env: LedgerEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    env.submit_many(*(Spec(f"a-{n:03}", "w", requires_approval=True) for n in range(30)))
    env.clock.forward(60)
    env.submit("pay", irreversible=True)
    found = asked(env, limit=10)
    assert ids(found) == ["pay", *(f"a-{n:03}" for n in range(9))] and found.more
    assert not asked(env).more

    # What is looked at is bounded as well: the oldest.
    monkeypatch.setattr(awaited_decisions, "LOOKED_MAX", 20)
    monkeypatch.setattr(awaited_decisions, "_PAGE", 10)
    found = asked(env)
    assert ids(found) == [f"a-{n:03}" for n in range(20)] and found.more
    for wrong in (0, -1, 1001):
        with pytest.raises(Invalid, match="1 to 1000 decisions are listed"):
            asked(env, limit=wrong)
