"""What an edit changes, whom it asks again, and what it leaves as it was."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.access import (
    Action,
    Principal,
    PrincipalKind,
    approves_own,
    check_submitter,
    coordinator,
)
from agentq.core.digests import spec_digest
from agentq.core.editing import NEW_TEXT
from agentq.core.effects import Announce, Notify
from agentq.core.errors import Invalid, Refused
from agentq.core.states import State
from agentq.core.task import Edited, Note, Priority, Task
from agentq.core.transition import transition
from agentq.core.trigger_validation import check_trigger
from agentq.core.values import replace
from tests.core.building import BY_STATE, NOW, claimed, due, effects_of, submitted, then

TEXT = t.Edit("ed", instructions="do that")
LATER = NOW + 5_000


def test_only_what_is_given_changes() -> None:
    task = submitted(title="Old", instructions="do this", context_sha256="a" * 64)
    edited = then(task, t.Edit("ed", priority="high"), at=LATER)
    assert edited.spec == replace(task.spec, priority=Priority.HIGH)
    assert edited.details.edited == Edited(2, ("ed",), priority="high")
    # New instructions are all that is asked for: a context stays only if they bring one.
    again = then(edited, t.Edit("al", "tester", "New", instructions="do that"), at=LATER)
    assert again.spec == replace(
        task.spec, to="tester", title="New", priority=Priority.HIGH, instructions="do that",
        context_sha256="",
    )  # fmt: skip
    assert again.details.edited == Edited(3, ("ed", "al"), "tester", "New", "high", "do that")
    with_context = then(again, t.Edit("ed", instructions="see", context_sha256="b" * 64))
    assert with_context.edited_context == with_context.spec.context_sha256 == "b" * 64
    assert with_context.editors == ("ed", "al")
    assert task.editors == () and task.edited_context == ""


def test_what_says_the_same_is_no_event() -> None:
    task = submitted(instructions="do that", priority=Priority.HIGH)
    for same in (TEXT, t.Edit("ed", priority="high"), t.Edit("ed", to="worker"), t.Edit("ed")):
        decision = transition(task, same, LATER)
        assert decision.task is task and not decision.events and not decision.effects


def test_a_ready_task_is_announced_to_its_new_role() -> None:
    decision = transition(submitted(), t.Edit("ed", "tester"), LATER)
    assert (decision.task.state, decision.task.to) == (State.READY, "tester")
    assert decision.effects == (Announce("tester"),)
    assert decision.events[0].kind == "edited"


def test_a_task_that_waits_goes_on_waiting() -> None:
    failed = then(claimed(), t.FailAttempt(1, "no network"))
    decision = transition(failed, t.Edit("ed", priority="low"), failed.updated_at)
    assert decision.task.state is State.PENDING
    assert decision.task.details.not_before == failed.details.not_before
    assert decision.effects == ()
    assert decision.task.details.notes == failed.details.notes


def test_the_next_attempt_is_told_that_the_text_is_new() -> None:
    failed = then(claimed(), t.FailAttempt(1, "no network"))
    edited = then(failed, TEXT, at=LATER)
    assert edited.details.notes[-1] == Note(LATER, "ed", "edit", NEW_TEXT)
    assert then(submitted(), TEXT, at=LATER).details.notes == ()


def approved() -> Task:
    return then(submitted(requires_approval=True, title="Ship"), t.Approve("boss"))


def test_an_approval_was_for_what_the_task_said_before() -> None:
    task = approved()
    decision = transition(task, TEXT, LATER)
    details = decision.task.details
    assert decision.task.state is State.PENDING
    assert (details.approved_by, details.approved_digest, details.asked_at) == ("", "", LATER)
    (told,) = effects_of(decision, Notify)
    assert told == Notify("approval_wanted", "edited by ed after boss had approved it: Ship")
    # The approval for the old payload does not fit any more.
    with pytest.raises(Refused, match="payload") as caught:
        then(decision.task, t.Approve("boss", spec_digest(task.spec)))
    assert caught.value.code == "digest_mismatch"
    again = then(decision.task, t.Approve("boss", spec_digest(decision.task.spec)))
    assert again.state is State.READY
    assert again.details.approved_digest == spec_digest(again.spec)


def test_who_is_asked_for_an_approval_is_told_what_changed() -> None:
    decision = transition(submitted(irreversible=True, title="Ship"), TEXT, LATER)
    assert effects_of(decision, Notify) == [Notify("approval_wanted", "edited by ed: Ship")]


def test_nobody_approves_what_they_wrote_themselves() -> None:
    task = then(submitted(irreversible=True), TEXT)
    with pytest.raises(Refused, match="ed edited task-1 and cannot approve it") as caught:
        then(task, t.Approve("ed"))
    assert caught.value.code == "self_approval"
    assert then(task, t.Approve("ed", own=True)).state is State.READY
    assert approves_own("ed", task, (), four_eyes=False)
    assert not approves_own("ed", task, (), four_eyes=True)
    assert not approves_own("ed", task, ("ed",), four_eyes=False)
    assert not approves_own("al", task, (), four_eyes=False)


def test_a_task_that_nobody_approved_in_time_is_asked_for_again() -> None:
    task = due(submitted(requires_approval=True, approval_timeout_seconds=60)).task
    assert task.state is State.BLOCKED
    edited = then(task, TEXT, at=task.updated_at + 1)
    assert edited.state is State.PENDING
    assert (edited.details.reason, edited.details.reason_kind) == ("", "")
    assert edited.details.asked_at == task.updated_at + 1


def test_other_blocked_tasks_are_answered() -> None:
    with pytest.raises(Refused, match="other words do not answer that") as caught:
        then(BY_STATE[State.BLOCKED](), TEXT)
    assert "agentq answer" in caught.value.remedy


@pytest.mark.parametrize(
    ("state", "remedy"),
    [
        (State.IN_PROGRESS, "agentq cancel"),
        (State.REVIEW, "agentq reject --changes"),
        *((state, "agentq rerun") for state in ("complete", "failed", "cancelled", "expired")),
    ],
)
def test_what_has_begun_is_not_edited(state: str, remedy: str) -> None:
    with pytest.raises(Refused, match="Nothing was changed") as caught:
        then(BY_STATE[State(state)](), TEXT)
    assert remedy in caught.value.remedy


def test_a_trigger_that_the_log_cannot_keep() -> None:
    check_trigger(t.Edit("ed", instructions="x" * 16_384))
    for bad in (t.Edit(""), t.Edit("ed", instructions="x" * 16_385), t.Edit("ed", title="\x00")):
        with pytest.raises(Invalid):
            check_trigger(bad)


def test_a_coordinator_edits_what_it_asked_for_itself() -> None:
    check_submitter(coordinator("coordinator"), Action.EDIT, submitted())
    check_submitter(Principal(PrincipalKind.PERSON, "ann"), Action.EDIT, submitted())
    with pytest.raises(Refused, match="boss has submitted it") as caught:
        check_submitter(coordinator("ci"), Action.EDIT, submitted(sender="boss"))
    assert caught.value.code == "not_permitted"
