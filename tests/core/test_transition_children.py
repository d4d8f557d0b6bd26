"""A task and its children: who is open, yielding to them, and reports over open ones."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.effects import Announce, CancelDescendants, CancelTasks
from agentq.core.errors import Invalid, Refused, Stale
from agentq.core.limits import CHILDREN_MAX, SIGNALS_KEPT
from agentq.core.schedule import waiting_for
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.transition import transition
from tests.core.building import LEASE_MS, NOW, a_spec, claimed, due, effects_of, submitted, then

CLAIM = t.ClaimTask("bob", LEASE_MS)


def ended(child: str, outcome: State = State.COMPLETE) -> t.DependencyEnded:
    return t.DependencyEnded(child, outcome)


def parent(*children: str) -> Task:
    """In progress, with open children."""
    return then(claimed(), t.ChildrenSubmitted(children or ("a", "b")))


def refusal(task: Task, trigger: t.Trigger) -> Refused:
    with pytest.raises(Refused) as caught:
        transition(task, trigger, task.updated_at)
    return caught.value


# -- who is open ---------------------------------------------------------------------------------


def test_a_task_knows_its_open_children_and_how_the_others_ended() -> None:
    task = then(parent("a", "b", "c"), ended("b", State.FAILED), ended("a"))
    assert task.details.children == ("c",)
    assert task.details.ended_children == (("b", State.FAILED), ("a", State.COMPLETE))
    # Custody is untouched by any of it.
    assert (task.state, task.holder, task.epoch) == (State.IN_PROGRESS, "ann", 1)
    assert task.wake_at == NOW + LEASE_MS


def test_the_same_child_is_noted_once_and_an_unknown_end_is_no_news() -> None:
    task = parent("a")
    assert then(task, t.ChildrenSubmitted(("a",))) is task
    assert then(task, ended("stranger")) is task


def test_a_child_that_is_opened_again_is_open_and_has_not_ended() -> None:
    task = then(parent("a"), ended("a", State.FAILED), t.ChildrenSubmitted(("a",)))
    assert (task.details.children, task.details.ended_children) == (("a",), ())


def test_children_may_come_with_their_parent() -> None:
    task = transition(None, t.Submit(a_spec(), children=("a", "b")), NOW).task
    assert task.details.children == ("a", "b")
    assert task.state is State.READY


def test_there_is_a_number_of_open_children_that_is_enough() -> None:
    many = tuple(f"c{number}" for number in range(CHILDREN_MAX))
    full = parent(*many)
    error = refusal(full, t.ChildrenSubmitted(("one-more",)))
    assert error.code == "too_many_children"
    assert then(full, ended("c0"), t.ChildrenSubmitted(("one-more",))).details.children
    # The same holds for those that come with their parent.
    with pytest.raises(Refused, match="open children") as caught:
        transition(None, t.Submit(a_spec(), children=(*many, "one-more")), NOW)
    assert caught.value.code == "too_many_children"
    # And what it remembers of the others has an end too.
    task = full
    for name in many:
        task = then(task, ended(name), t.ChildrenSubmitted((f"{name}-again",)))
    task = then(task, ended("c7-again"))
    assert len(task.details.ended_children) == CHILDREN_MAX
    assert task.details.ended_children[-1] == ("c7-again", State.COMPLETE)


# -- a report over open children -----------------------------------------------------------------


def test_a_report_over_open_children_is_refused_with_their_names() -> None:
    error = refusal(parent(*"abcdefg"), t.Report(1, "done"))
    assert error.code == "open_children"
    assert "7 open children: a, b, c, d, e and 2 more" in error.cause
    few = refusal(parent(*"abcde"), t.Report(1, "done"))
    assert "5 open children: a, b, c, d, e. The report" in few.cause
    assert "agentq yield" in error.remedy and "--leave-children" in error.remedy
    assert "and" not in refusal(parent("a"), t.Report(1, "done")).cause.split(".")[0]


def test_it_is_accepted_once_they_are_over_or_are_left() -> None:
    left = then(parent(), t.Report(1, "done", leaves_children=True))
    assert left.state is State.COMPLETE
    over = then(parent(), ended("a"), ended("b", State.CANCELLED), t.Report(1, "done"))
    assert over.state is State.COMPLETE


def test_a_failure_and_a_release_leave_them_as_they_are() -> None:
    for trigger in (t.FailAttempt(1, "no"), t.Release(1), t.BlockTask(1, "what now?")):
        assert then(parent(), trigger).details.children == ("a", "b")


# -- yielding ------------------------------------------------------------------------------------


def test_a_task_that_yields_waits_for_all_its_children_and_costs_no_attempt() -> None:
    task = then(parent(), t.Progress(1, 40, "asked two others"), t.Yield(1, note="then merge"))
    assert (task.state, task.holder, task.wake_at) == (State.PENDING, "", 0)
    assert waiting_for(task) == ["children a, b"]
    assert task.details.progress_percent == -1
    task = then(task, ended("a", State.FAILED))
    assert (task.state, waiting_for(task)) == (State.PENDING, ["children b"])
    # How they ended does not decide about their parent.
    decision = transition(task, ended("b", State.FAILED), NOW)
    assert decision.task.state is State.READY
    assert effects_of(decision, Announce) == [Announce("worker")]
    again = then(decision.task, CLAIM)
    assert (again.epoch, again.details.yielded, again.details.failures) == (2, "", 0)
    assert [(note.by, note.kind, note.text) for note in again.details.notes] == [
        ("ann", "yield", "then merge")
    ]


def test_what_an_attempt_said_of_its_progress_ends_with_it() -> None:
    task = then(parent("a"), t.Progress(1, 50, "half way"), t.Yield(1))
    assert (task.details.progress_percent, task.details.progress_note) == (-1, "")


def test_one_of_any_is_enough_and_each_end_is_told_once() -> None:
    task = then(parent("a", "b", "c"), t.Yield(1, "any"))
    assert waiting_for(task) == ["any of the children a, b, c"]
    task = then(task, ended("a"))
    assert task.state is State.READY
    # One ends while nobody has it: whoever claims it next finds that.
    task = then(task, ended("b"), CLAIM)
    assert task.details.ended_since == 0
    # So it may wait for the third, and only for that.
    waiting = then(task, t.Yield(2, "any"))
    assert waiting.state is State.PENDING
    assert then(waiting, ended("c")).state is State.READY


def test_one_that_ended_while_the_attempt_ran_is_not_waited_past() -> None:
    # The attempt may not know of it: it goes on at once, and finds it then.
    task = then(parent(), ended("a"), t.Yield(1, "any"))
    assert (task.state, task.details.children) == (State.READY, ("b",))
    # Of all, the others are waited for.
    assert then(parent(), ended("a"), t.Yield(1)).state is State.PENDING
    # If all have ended, there is nothing left to wait for.
    assert then(parent(), ended("a"), ended("b"), t.Yield(1)).state is State.READY


def test_to_yield_to_nothing_is_refused_so_that_nobody_goes_round_in_circles() -> None:
    assert refusal(claimed(), t.Yield(1)).code == "nothing_to_wait_for"
    task = then(parent("a"), ended("a"), t.Yield(1), CLAIM)
    assert task.details.ended_children == (("a", State.COMPLETE),)
    assert refusal(task, t.Yield(2)).code == "nothing_to_wait_for"


def test_what_cannot_be_waited_for_is_refused() -> None:
    assert refusal(
        then(claimed(irreversible=True), t.ChildrenSubmitted(("a",))), t.Yield(1)
    ).code == ("irreversible")
    with pytest.raises(Invalid, match="'some'"):
        transition(parent(), t.Yield(1, "some"), NOW)
    with pytest.raises(Invalid, match=str(SIGNALS_KEPT)):
        transition(parent(), t.Yield(1, signals=("x",) * (SIGNALS_KEPT + 1)), NOW)
    with pytest.raises(Stale):
        transition(parent(), t.Yield(2), NOW)


def test_children_and_signals_are_waited_for_together() -> None:
    task = then(parent("a"), t.Yield(1, signals=("deployed",)))
    assert waiting_for(task) == ["children a", "signal deployed"]
    signal = t.Signal("ci", "deployed")
    assert then(task, signal).state is State.PENDING
    assert then(task, ended("a")).state is State.PENDING
    assert then(task, signal, ended("a")).state is State.READY
    assert then(task, ended("a"), signal).state is State.READY


def test_new_children_of_one_that_has_yielded_are_waited_for_too() -> None:
    task = then(parent("a"), t.Yield(1), t.ChildrenSubmitted(("b",)), ended("a"))
    assert task.state is State.PENDING
    assert then(task, ended("b")).state is State.READY


# -- what else happens meanwhile ------------------------------------------------------------------


def test_one_that_has_yielded_may_be_cancelled_and_then_waits_for_nothing() -> None:
    task = then(parent(), t.Yield(1, signals=("deployed",)))
    decision = transition(task, t.Cancel("boss"), NOW)
    details = decision.task.details
    assert (details.yielded, details.awaited_signals, details.children) == ("", (), ("a", "b"))
    assert effects_of(decision, CancelTasks) == []


def test_a_tree_is_cancelled_with_all_that_descend_from_it() -> None:
    """Also where none of the children is open: theirs may be."""
    for task in (then(parent("a", "b"), ended("a")), then(parent("a"), ended("a")), claimed()):
        decision = transition(task, t.Cancel("boss", "no need", tree=True), NOW)
        assert effects_of(decision, CancelDescendants) == [CancelDescendants("boss", "no need")]
        alone = transition(task, t.Cancel("boss"), NOW)
        assert effects_of(alone, CancelDescendants) == []


def test_one_that_is_edited_while_it_waits_goes_on_waiting_and_asks_again() -> None:
    task = then(
        claimed(requires_approval=True), t.ChildrenSubmitted(("a",)), t.Yield(1),
        t.Edit("ed", instructions="do something else"),
    )  # fmt: skip
    assert waiting_for(task) == ["children a", "approval"]
    # Nobody approves it in time: it is blocked, and still told of its children.
    asked = then(
        claimed(requires_approval=True, approval_timeout_seconds=60), t.ChildrenSubmitted(("a",)),
        t.Yield(1), t.Edit("ed", instructions="do something else"),
    )  # fmt: skip
    blocked = due(asked).task
    assert (blocked.state, blocked.details.yielded) == (State.BLOCKED, "all")
    told = then(blocked, ended("a"))
    assert (told.state, told.details.yielded) == (State.BLOCKED, "")
    assert then(told, t.Approve("boss")).state is State.READY
    assert then(blocked, t.Approve("boss")).state is State.PENDING
    assert then(blocked, t.Reject("boss")).details.yielded == ""


def test_a_task_may_come_after_its_own_child() -> None:
    task = transition(None, t.Submit(a_spec(after=("a",)), ("a",), children=("a",)), NOW).task
    done = then(task, ended("a"))
    assert (done.state, done.details.children, done.details.waiting_on) == (State.READY, (), ())
    assert done.details.ended_children == (("a", State.COMPLETE),)
    # It is a dependency all the same: its failure settles the task.
    failed = then(task, ended("a", State.FAILED))
    assert (failed.state, failed.details.reason_kind) == (State.FAILED, "dependency")


def test_one_that_is_opened_again_knows_who_is_still_open() -> None:
    task = then(parent("a", "b"), t.FailAttempt(1, "no", t.FailureKind.INVALID))
    again = then(task, t.Requeue("boss", children=("b",)))
    assert (again.state, again.details.children) == (State.READY, ("b",))


def test_what_is_submitted_for_a_task_without_children_is_unchanged() -> None:
    assert submitted().details.children == ()
