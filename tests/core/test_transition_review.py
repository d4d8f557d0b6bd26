"""Between a report and `complete`: the evidence gate and the reviewer's verdict."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.custody import already_accepted
from agentq.core.effects import (
    Announce,
    Notify,
    OfferWork,
    PublishResult,
    Reply,
    ResolveDependents,
    SpawnNext,
)
from agentq.core.errors import Refused, Stale
from agentq.core.gates import missing_evidence
from agentq.core.states import State
from agentq.core.task import ExpectedOutput, Task, Usage
from agentq.core.transition import transition
from tests.core.building import LEASE_MS, NOW, a_spec, claimed, effects_of, then

REPORT = t.Report(1, "all green", "result.md", "f" * 64)
ACCEPT = t.Verdict("boss", t.Ruling.ACCEPT, "well done")
CHANGES = t.Verdict("boss", t.Ruling.CHANGES, "add tests")
REJECT = t.Verdict("boss", t.Ruling.REJECT, "wrong repository")


def reported(**fields: Any) -> Task:
    return then(claimed(review=True, **fields), REPORT)


# -- reported and verified are separate facts --------------------------------------------------


def test_without_gates_a_report_completes() -> None:
    follow_up = a_spec(id="task-2")
    task = claimed(reply_to="results.boss", next=(follow_up,))
    decision = transition(task, REPORT, NOW)
    assert decision.task.state is State.COMPLETE
    assert decision.task.holder == ""
    assert decision.effects == (
        SpawnNext(),
        PublishResult(1, "result.md", "f" * 64),
        ResolveDependents(State.COMPLETE),
        Reply("results.boss", "completed", "all green"),
        OfferWork(1),
    )


def test_with_a_reviewer_nothing_leaves_before_the_verdict() -> None:
    # Given a task with a reviewer, when its worker reports,
    task = claimed(review=True, reply_to="results.boss", next=(a_spec(id="task-2"),))
    decision = transition(task, REPORT, NOW)
    # then the report is held, and only the reviewer hears of it.
    assert decision.task.state is State.REVIEW
    assert decision.effects == (Notify("review_wanted", "all green"),)
    assert decision.task.summary == "all green"
    # When it is accepted, then everything follows that follows a completion.
    accepted = transition(decision.task, ACCEPT, NOW)
    assert accepted.task.state is State.COMPLETE
    assert [type(effect) for effect in accepted.effects] == [
        SpawnNext, PublishResult, ResolveDependents, Reply, OfferWork
    ]  # fmt: skip


def test_a_report_without_a_result_file_publishes_none() -> None:
    decision = transition(claimed(), t.Report(1, "looked, found nothing"), NOW)
    assert effects_of(decision, PublishResult) == []


def test_changes_requested_go_back_to_the_queue_with_the_feedback() -> None:
    decision = transition(reported(), CHANGES, NOW)
    task = decision.task
    assert task.state is State.READY
    assert (task.details.rounds, task.details.report, task.details.failures) == (1, None, 0)
    assert (task.details.notes[-1].by, task.details.notes[-1].text) == ("boss", "add tests")
    assert decision.effects == (Announce("worker"),)
    # The next attempt has a new epoch; the reviewed one is fenced out.
    with pytest.raises(Stale):
        transition(then(task, t.ClaimTask("bob", LEASE_MS)), REPORT, NOW)


def test_a_rejected_report_is_a_dead_letter() -> None:
    decision = transition(reported(), REJECT, NOW)
    assert decision.task.state is State.FAILED
    assert decision.task.reason == "rejected by boss: wrong repository"
    assert effects_of(decision, PublishResult) == []


@pytest.mark.parametrize("ruling", list(t.Ruling))
def test_nobody_judges_their_own_work(ruling: t.Ruling) -> None:
    with pytest.raises(Refused) as refusal:
        transition(reported(), t.Verdict("ann", ruling), NOW)
    assert refusal.value.code == "self_review"
    assert refusal.value.remedy


def test_a_second_verdict_is_refused() -> None:
    done = then(reported(), ACCEPT)
    for verdict in (ACCEPT, CHANGES, REJECT):
        with pytest.raises(Refused):
            transition(done, verdict, NOW)


def test_changes_requested_when_the_budget_is_gone_ask_for_more_first() -> None:
    # Given a report whose cost used up the budget (the work was done, so it is not thrown away),
    task = claimed(review=True, budget=Usage(usd=1))
    task = then(task, t.Report(1, "done", cost=Usage(usd=2)))
    assert task.state is State.REVIEW
    # when changes are requested, then no attempt starts on money that is not there.
    blocked = then(task, CHANGES)
    assert (blocked.state, blocked.details.reason_kind) == (State.BLOCKED, "budget")
    assert blocked.details.rounds == 1
    more = t.Answer("boss", "go on", extra_budget=Usage(usd=5))
    assert then(blocked, more).state is State.READY


# -- at most one completion --------------------------------------------------------------------


@pytest.mark.parametrize("review", [False, True])
def test_the_same_report_again_is_recognised(review: bool) -> None:
    # A worker whose answer was lost says it again: that is not a second completion.
    task = then(claimed(review=review), REPORT)
    assert already_accepted(task, REPORT)
    assert already_accepted(task, t.Report(1, "all green", "result.md", "f" * 64, ("log",)))


@pytest.mark.parametrize(
    "other",
    [
        t.Report(2, "all green", "result.md", "f" * 64),
        t.Report(1, "other words", "result.md", "f" * 64),
        t.Report(1, "all green", "other.md", "f" * 64),
        t.Report(1, "all green", "result.md", "e" * 64),
    ],
)
def test_any_other_report_is_stale(other: t.Report) -> None:
    task = then(claimed(), REPORT)
    assert not already_accepted(task, other)
    with pytest.raises(Stale):
        transition(task, other, NOW)


def test_a_report_is_only_accepted_once_it_was_accepted() -> None:
    assert not already_accepted(claimed(), REPORT)
    assert not already_accepted(then(reported(), CHANGES), REPORT)
    assert not already_accepted(then(claimed(), t.Cancel("boss")), REPORT)


# -- evidence ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "brought"),
    [
        ("patch", "patch"),
        ("patch", "patch.diff"),
        ("patch", "out/patch.diff"),
        ("patch.diff", "patch.diff"),
        ("out/patch.diff", "out/patch.diff"),
        ("test-output", "logs/test-output.txt.gz"),
    ],
)
def test_evidence_is_met_by_a_file_of_that_name_or_stem(expected: str, brought: str) -> None:
    spec = a_spec(expected_output=ExpectedOutput(artifacts=(expected,)))
    assert missing_evidence(spec, t.Report(1, artifacts=(brought,))) == []


@pytest.mark.parametrize("brought", ["patches", "my-patch.diff", "patch/readme", "Patch", ""])
def test_evidence_is_not_met_by_something_like_it(brought: str) -> None:
    spec = a_spec(expected_output=ExpectedOutput(artifacts=("patch",)))
    assert missing_evidence(spec, t.Report(1, artifacts=(brought,))) == ["patch"]


def test_the_summary_and_the_result_of_the_report_are_evidence_too() -> None:
    spec = a_spec(expected_output=ExpectedOutput(artifacts=("summary", "result")))
    assert missing_evidence(spec, t.Report(1, "done", "result.md")) == []
    assert missing_evidence(spec, t.Report(1, "  ")) == ["summary", "result"]


def test_a_report_without_its_evidence_is_refused_and_the_attempt_goes_on() -> None:
    # Given a task that expects a patch and a test output,
    expected = ExpectedOutput(artifacts=("patch", "test-output"))
    task = claimed(expected_output=expected)
    # when the report brings only one, then it is told which one is missing,
    with pytest.raises(Refused) as refusal:
        transition(task, t.Report(1, "done", artifacts=("patch.diff",)), NOW)
    assert refusal.value.code == "evidence_missing"
    assert "missing: test-output" in refusal.value.cause
    assert refusal.value.remedy
    assert not isinstance(refusal.value, Stale)
    # and the same attempt may report again with everything.
    whole = t.Report(1, "done", artifacts=("patch.diff", "test-output.txt"))
    assert then(task, whole).state is State.COMPLETE


def test_a_stale_report_is_told_that_it_is_stale_not_what_it_lacks() -> None:
    task = claimed(expected_output=ExpectedOutput(artifacts=("patch",)))
    with pytest.raises(Stale):
        transition(task, t.Report(7, "done"), NOW)
