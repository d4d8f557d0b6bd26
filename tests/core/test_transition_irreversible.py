"""Irreversible tasks: approved for their exact payload, and never started again by themselves."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.digests import spec_digest
from agentq.core.effects import Announce, Notify
from agentq.core.errors import Refused
from agentq.core.states import State
from agentq.core.task import Task, Usage
from agentq.core.transition import transition
from agentq.core.values import replace
from tests.core.building import LEASE_MS, NOW, claimed, due, effects_of, submitted, then

CLAIM = t.ClaimTask("ann", LEASE_MS)

#: Every way in which an attempt can end short of a report.
CUT_SHORT: dict[str, t.Trigger | None] = {
    **{f"fails: {kind}": t.FailAttempt(1, "oh no", kind) for kind in t.FailureKind},
    "is released": t.Release(1, "shutting down"),
    "is released until later": t.Release(1, "quota", NOW + 60_000),
    "spends too much": t.Spend(1, Usage(usd=5)),
    "asks": t.BlockTask(1, "sure?"),
    "vanishes": None,
}


def cut_short(how: str) -> Task:
    task = claimed(irreversible=True, budget=Usage(usd=1))
    trigger = CUT_SHORT[how]
    return then(task, trigger) if trigger else due(task).task


def refusal(task: Task, trigger: t.Trigger) -> Refused:
    with pytest.raises(Refused) as caught:
        transition(task, trigger, task.updated_at)
    return caught.value


def test_it_waits_for_an_approval_and_says_so() -> None:
    task = submitted(irreversible=True)
    assert task.state is State.PENDING
    assert refusal(task, CLAIM).code == "wrong_state"
    assert then(task, t.Approve("boss")).state is State.READY


def test_the_submitter_cannot_approve_it() -> None:
    task = submitted(irreversible=True, sender="planner")
    error = refusal(task, t.Approve("planner"))
    assert error.code == "self_approval"
    assert error.remedy
    assert then(task, t.Approve("boss")).details.approved_by == "boss"


def test_an_approval_binds_to_the_exact_payload() -> None:
    # Given somebody who read the task as it was,
    task = submitted(irreversible=True, instructions="delete the staging database")
    read = spec_digest(task.spec)
    # when they approve that payload, then it holds; an approval of another payload does not.
    assert then(task, t.Approve("boss", read)).details.approved_digest == read
    other = submitted(irreversible=True, instructions="delete the production database")
    assert refusal(other, t.Approve("boss", read)).code == "digest_mismatch"


def test_an_approved_task_whose_payload_is_another_does_not_start() -> None:
    # Given an approved task, when its payload is no longer the one that was approved,
    approved = then(submitted(irreversible=True), t.Approve("boss"))
    altered = replace(approved, spec=replace(approved.spec, instructions="something else"))
    # then no claim starts it, and the refusal says what to do.
    error = refusal(altered, CLAIM)
    assert error.code == "not_approved"
    assert error.remedy
    assert then(approved, CLAIM).state is State.IN_PROGRESS


@pytest.mark.parametrize("how", CUT_SHORT)
def test_however_an_attempt_is_cut_short_a_person_must_look(how: str) -> None:
    task = cut_short(how)
    assert task.state is State.BLOCKED
    assert task.holder == ""
    assert (task.details.approved_by, task.details.approved_digest) == ("", "")
    assert task.reason


@pytest.mark.parametrize("how", CUT_SHORT)
def test_time_never_brings_it_back(how: str) -> None:
    task = cut_short(how)
    for _ in range(5):
        task = due(task).task
        assert task.state is State.BLOCKED


@pytest.mark.parametrize("how", CUT_SHORT)
def test_an_answer_does_not_start_it_a_fresh_approval_does(how: str) -> None:
    # Given a blocked irreversible task, an approval alone does not answer the question;
    task = cut_short(how)
    assert refusal(task, t.Approve("boss")).code == "wrong_state"
    # when it is answered, then it asks for an approval anew,
    answer = t.Answer("boss", "it did not happen", extra_budget=Usage(usd=10))
    decision = transition(task, answer, task.updated_at)
    assert decision.task.state is State.PENDING
    assert not effects_of(decision, Announce)
    assert [effect.kind for effect in effects_of(decision, Notify)] == ["approval_wanted"]
    assert refusal(decision.task, CLAIM).code == "wrong_state"
    # again from somebody other than its submitter, and only then can it be claimed.
    assert refusal(decision.task, t.Approve("coordinator")).code == "self_approval"
    assert then(decision.task, t.Approve("boss"), CLAIM, at=NOW + 60_000).epoch == 2


@pytest.mark.parametrize(
    "end",
    [t.Answer("boss", "never mind", t.Resolution.GIVE_UP), t.Reject("boss", "too late")],
    ids=["given up", "rejected"],
)
def test_a_dead_letter_needs_a_fresh_approval_after_requeue(end: t.Trigger) -> None:
    task = then(then(claimed(irreversible=True), t.FailAttempt(1, "x")), end)
    assert task.state is State.FAILED
    task = then(task, t.Requeue("boss"))
    assert task.state is State.PENDING
    assert task.details.approved_by == ""


def test_changes_requested_need_a_fresh_approval() -> None:
    task = then(
        claimed(irreversible=True, review=True),
        t.Report(1, "done"),
        t.Verdict("boss", t.Ruling.CHANGES, "undo half of it"),
    )
    assert task.state is State.PENDING
    assert task.details.approved_by == ""
    assert task.details.rounds == 1


def test_a_person_may_say_that_it_did_happen() -> None:
    task = then(cut_short("vanishes"), t.Answer("boss", "it went through", t.Resolution.DONE))
    assert task.state is State.COMPLETE
    assert task.details.report is not None
    assert task.details.report.by == "boss"


def test_a_report_completes_it() -> None:
    assert then(claimed(irreversible=True), t.Report(1, "sent")).state is State.COMPLETE


def test_a_person_may_approve_their_own_where_the_settings_let_them() -> None:
    """The trigger says so, and so does the log; without it the rule is what it always was."""
    task = submitted(irreversible=True, sender="ann")
    assert refusal(task, t.Approve("ann")).code == "self_approval"
    approved = then(task, t.Approve("ann", how="stated", own=True))
    assert approved.state is State.READY
    assert approved.details.approved_by == "ann"
