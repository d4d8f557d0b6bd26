"""Reports that a reviewer judges: a task of another role; its structured result is the verdict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.effects import CancelTasks, Notify, RequestReview, ResolveDependents
from agentq.core.errors import Refused
from agentq.core.gates import gates_of
from agentq.core.limits import NOTE_CHARS_MAX
from agentq.core.reviews import ReviewResult, parse_review, review_id
from agentq.core.states import State
from agentq.core.task import ApprovalPolicy, Gates, Task
from agentq.core.transition import Decision, transition
from tests.core.building import LEASE_MS, NOW, a_spec, claimed, due, effects_of, submitted, then

REVIEW = "task-1.review-1"
ACCEPT, CHANGES, REJECT = t.Ruling.ACCEPT, t.Ruling.CHANGES, t.Ruling.REJECT


def judged(
    ruling: t.Ruling, score: int = -1, feedback: str = "", review: str = REVIEW, epoch: int = 1
) -> t.Verdict:
    return t.Verdict("reviewer", ruling, feedback, "system", score, review, epoch)


def reported(**fields: Any) -> Task:
    """Its report waits for a reviewer; fields that are gates are put there."""
    named = ("min_score", "max_rounds", "person")
    gates = {name: fields.pop(name) for name in named if name in fields}
    task = claimed(gates=Gates(**{"reviewer": "reviewer", **gates}), **fields)
    return then(task, t.Report(1, "done"))


def decide(task: Task, trigger: t.Trigger) -> Decision:
    return transition(task, trigger, task.updated_at)


# -- asking for it ---------------------------------------------------------------------------------


def test_a_report_that_wants_a_reviewer_asks_for_one_and_not_for_a_person() -> None:
    task = claimed(gates=Gates(reviewer="reviewer"))
    decision = transition(task, t.Report(1, "done"), NOW)
    assert decision.effects == (RequestReview(),)
    assert (decision.task.state, decision.task.details.review_task) == (State.REVIEW, REVIEW)


def test_gates_of_the_role_count_as_if_they_were_its_own() -> None:
    task = then(submitted(), t.ClaimTask("ann", LEASE_MS, gates=Gates(reviewer="reviewer")))
    assert then(task, t.Report(1, "done")).details.review_task == REVIEW
    # They are those of the newest claim.
    again = then(task, t.Release(1), t.ClaimTask("ann", LEASE_MS))
    assert then(again, t.Report(2, "done")).state is State.COMPLETE


@pytest.mark.parametrize(
    ("own", "role", "both"),
    [
        (Gates(), Gates(), Gates()),
        (Gates(verify="make"), Gates(), Gates(verify="make")),
        (Gates(), Gates("make", "rae", 50, 2, True), Gates("make", "rae", 50, 2, True)),
        (Gates("a", "ann", 60, 3), Gates("b", "bob", 50, 2), Gates("a", "ann", 60, 2)),
        (Gates(max_rounds=1, reviewer="ann"), Gates(min_score=9), Gates("", "ann", 9, 1)),
    ],
)
def test_the_stricter_of_both_gates_count(own: Gates, role: Gates, both: Gates) -> None:
    task = then(submitted(gates=own), t.ClaimTask("ann", LEASE_MS, gates=role))
    assert gates_of(task) == both


def test_a_review_by_a_person_is_a_gate_like_the_others() -> None:
    assert gates_of(submitted(review=True)) == Gates(person=True)


def test_the_role_that_did_the_work_does_not_judge_it() -> None:
    task = then(submitted(), t.ClaimTask("ann", LEASE_MS, gates=Gates(reviewer="worker")))
    decision = transition(task, t.Report(1, "done"), NOW)
    assert decision.effects == (Notify("review_wanted", "done"),)
    assert decision.task.details.review_task == ""


def test_a_review_is_not_reviewed() -> None:
    # Two roles that review each other would never end.
    task = submitted(reviews="task-0")
    task = then(task, t.ClaimTask("rae", LEASE_MS, gates=Gates(reviewer="other", max_rounds=2)))
    assert gates_of(task) == Gates()
    assert then(task, t.Report(1, data='{"verdict": "accept"}')).state is State.COMPLETE
    strict = then(
        submitted(reviews="task-0"), t.ClaimTask("rae", LEASE_MS, gates=Gates(person=True))
    )
    assert then(strict, t.Report(1, data='{"verdict": "accept"}')).state is State.REVIEW


def test_long_ids_have_reviews_of_their_own() -> None:
    one, two = (submitted(id=f"{'x' * 120}{number}") for number in (1, 2))
    assert review_id(one) != review_id(two)
    assert max(map(len, map(review_id, (one, two)))) <= 128


# -- what it says ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "result"),
    [
        ({"verdict": "accept"}, ReviewResult(ACCEPT)),
        ({"ruling": "reject", "score": 0}, ReviewResult(REJECT, 0)),
        ({"verdict": "changes", "score": 41.0, "notes": "x"}, ReviewResult(CHANGES, 41, "x")),
        ({"verdict": "accept", "score": None}, ReviewResult(ACCEPT)),
    ],
)
def test_a_review_is_read(said: dict[str, Any], result: ReviewResult) -> None:
    assert parse_review(json.dumps(said)) == result


def test_long_notes_are_shortened() -> None:
    said = parse_review(json.dumps({"verdict": "accept", "notes": "x" * 30_000}))
    assert len(said.notes) <= NOTE_CHARS_MAX


@pytest.mark.parametrize(
    "data",
    [
        "", "no json", "[]", "5", "[" * 30_000, '{"score": 5}', '{"verdict": "great"}',
        '{"verdict": []}', '{"verdict": {}}', '{"verdict": "accept", "score": 101}',
        '{"verdict": "accept", "score": 1.5}', '{"verdict": "accept", "score": true}',
        '{"verdict": "accept", "notes": 5}', '{"verdict": "changes"}',
        '{"verdict": "changes", "notes": " "}',
    ],
)  # fmt: skip
def test_anything_else_is_refused_and_the_attempt_goes_on(data: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_review(data)
    assert caught.value.code == "bad_review"
    review = then(submitted(reviews="task-0"), t.ClaimTask("rae", LEASE_MS))
    with pytest.raises(Refused):
        transition(review, t.Report(1, data=data), NOW)


# -- the verdict -----------------------------------------------------------------------------------


def test_what_a_reviewer_accepts_is_complete() -> None:
    decision = decide(reported(), judged(ACCEPT, 90, "well done"))
    task = decision.task
    assert (task.state, task.details.score, task.details.review_task) == (State.COMPLETE, 90, "")
    assert ResolveDependents(State.COMPLETE) in decision.effects
    assert task.details.notes[-1].text == "well done"


def test_without_a_minimum_no_score_is_needed() -> None:
    assert then(reported(), judged(ACCEPT)).state is State.COMPLETE


@pytest.mark.parametrize(("score", "words"), [(-1, "no score"), (79, "a score of 79")])
def test_below_the_minimum_changes_are_asked_for(score: int, words: str) -> None:
    task = then(reported(min_score=80), judged(ACCEPT, score, "nearly"))
    assert (task.state, task.details.rounds) == (State.READY, 1)
    assert task.details.notes[-1].text == f"{words}, and 80 is needed. nearly"
    assert then(reported(min_score=80), judged(ACCEPT, 80)).state is State.COMPLETE


def test_a_reviewer_may_reject() -> None:
    task = then(reported(), judged(REJECT, 5, "wrong repository"))
    assert (task.state, task.reason) == (State.FAILED, "rejected by reviewer: wrong repository")


def test_changes_lead_to_a_new_report_and_a_review_of_its_own() -> None:
    task = then(reported(), judged(CHANGES, 20, "add tests"), t.ClaimTask("bob", LEASE_MS))
    assert task.details.review_task == ""
    task = then(task, t.Report(2, "with tests"))
    assert task.details.review_task == "task-1.review-2"


def test_after_so_many_rounds_a_person_is_asked_and_nothing_is_lost() -> None:
    task = then(reported(max_rounds=1), judged(CHANGES, 1, "more"), t.ClaimTask("bob", LEASE_MS))
    task = then(task, t.Report(2, "more"))
    decision = decide(task, judged(CHANGES, 2, "and more", "task-1.review-2", 2))
    after = decision.task
    assert (after.state, after.details.reason_kind) == (State.REVIEW, "rounds")
    assert "asked for changes 2 times, and 1 rounds are allowed" in after.reason
    assert after.details.report is not None
    assert [each.kind for each in effects_of(decision, Notify)] == ["review_wanted"]
    # Whatever they decide, why they were asked is not said of it any more.
    for ruling in (ACCEPT, CHANGES):
        details = then(after, t.Verdict("boss", ruling, "fine")).details
        assert (details.reason, details.reason_kind, details.remind_at) == ("", "", 0)


def test_what_a_reviewer_accepts_may_still_wait_for_a_person() -> None:
    task = then(reported(person=True), judged(ACCEPT, 90))
    assert (task.state, task.details.accepted_epoch) == (State.REVIEW, 1)
    assert task.details.review_task == ""
    assert then(task, t.Verdict("boss", ACCEPT)).state is State.COMPLETE


def test_a_person_may_decide_first_and_then_no_reviewer_goes_on() -> None:
    for ruling, state in ((ACCEPT, State.COMPLETE), (CHANGES, State.READY), (REJECT, State.FAILED)):
        decision = decide(reported(), t.Verdict("boss", ruling, "so"))
        assert decision.task.state is state
        (cancelled,) = effects_of(decision, CancelTasks)
        assert cancelled.tasks == (REVIEW,)
    (cancelled,) = effects_of(decide(reported(), t.Cancel("boss")), CancelTasks)
    assert cancelled.tasks == (REVIEW,)


def test_a_review_of_another_report_does_not_count() -> None:
    again = then(
        reported(), t.Verdict("boss", CHANGES, "more"), t.ClaimTask("bob", LEASE_MS),
        t.Report(2, "more"),
    )  # fmt: skip
    with pytest.raises(Refused) as caught:
        decide(again, judged(ACCEPT))
    assert caught.value.code == "other_report"
    assert then(again, t.ReviewFailed(REVIEW, State.FAILED)) is again


def test_nobody_judges_their_own_work() -> None:
    task = then(submitted(gates=Gates(reviewer="rae")), t.ClaimTask("rae", LEASE_MS))
    task = then(task, t.Report(1, "done"))
    with pytest.raises(Refused) as caught:
        decide(task, t.Verdict("rae", ACCEPT, review=REVIEW, reviewed=1))
    assert caught.value.code == "self_review"


@pytest.mark.parametrize("reason", ["", "no time"])
def test_a_review_that_comes_to_nothing_leaves_it_to_a_person(reason: str) -> None:
    decision = decide(reported(), t.ReviewFailed(REVIEW, State.FAILED, reason))
    task = decision.task
    assert (task.state, task.details.review_task) == (State.REVIEW, "")
    assert task.reason == f"its review {REVIEW} is failed" + (f": {reason}" if reason else "")
    assert effects_of(decision, Notify) == [Notify("review_wanted", task.reason)]
    # People are reminded of it, with the reason.
    assert effects_of(due(task), Notify) == [Notify("reminder", task.reason)]


def test_one_that_is_opened_again_is_reviewed_anew() -> None:
    task = then(reported(), judged(REJECT, 5), t.Requeue("boss"), t.ClaimTask("bob", LEASE_MS))
    task = then(task, t.Report(2, "again"))
    assert (task.details.review_task, task.details.rounds) == ("task-1.review-2", 0)


def test_the_policy_begins_anew_when_a_person_is_asked() -> None:
    policy = ApprovalPolicy(remind_seconds=30)
    task = reported(approval=policy, approval_timeout_seconds=60)
    later = transition(task, t.ReviewFailed(REVIEW, State.FAILED), NOW + 50_000).task
    assert later.details.asked_at == NOW + 50_000


def test_a_structured_result_is_part_of_the_report() -> None:
    task = then(claimed(), t.Report(1, "done", data='{"files":["a.py"]}'))
    assert task.details.report is not None
    assert task.details.report.data == '{"files":["a.py"]}'
    assert a_spec().gates == Gates()
