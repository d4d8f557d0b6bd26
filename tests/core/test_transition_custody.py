"""Custody: one holder, one epoch, one lease; cancelling; late words; and reopening."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.core import triggers as t
from agentq.core.effects import Announce, Notify, ResolveDependents, StopHolder
from agentq.core.errors import Refused, Stale
from agentq.core.limits import REFUSED_REPORTS_KEPT
from agentq.core.states import DEAD_LETTERS, State
from agentq.core.task import Task, Usage
from agentq.core.transition import transition
from agentq.core.values import replace
from tests.core.building import (
    A_TRIGGER,
    BY_STATE,
    LEASE_MS,
    NOW,
    SECOND,
    claimed,
    due,
    effects_of,
    failed_task,
    submitted,
    then,
)

CLAIM = t.ClaimTask("bob", LEASE_MS)
#: What the attempt of a cancelled task still says.
LAST_WORDS = ("AddArtifact", "Spend")
OF_A_HOLDER = [
    "Progress", "AddArtifact", "Spend", "Report", "Fail", "Block", "Release",
]  # fmt: skip


def cancelled() -> Task:
    return then(claimed(), t.Cancel("boss", "changed my mind"))


def test_a_claim_gives_a_holder_a_lease_and_the_next_epoch() -> None:
    task = transition(submitted(), t.ClaimTask("ann", 30 * SECOND), NOW).task
    assert (task.state, task.holder, task.epoch) == (State.IN_PROGRESS, "ann", 1)
    assert task.wake_at == NOW + 30 * SECOND


def test_a_gated_claim_completes_by_a_verified_report_only() -> None:
    gated = then(submitted(), t.ClaimTask("ann", LEASE_MS, gated=True))
    with pytest.raises(Refused) as refusal:
        transition(gated, t.Report(1, "believe me"), NOW)
    assert refusal.value.code == "gated" and "/result.md" in refusal.value.remedy
    assert then(gated, t.Report(1, "checked", verified=True)).state is State.COMPLETE


def test_the_gate_is_of_the_claim_and_not_of_the_task() -> None:
    released = then(submitted(), t.ClaimTask("ann", LEASE_MS, gated=True), t.Release(1))
    assert then(released, CLAIM, t.Report(2, "done")).state is State.COMPLETE
    again = then(released, t.ClaimTask("bob", LEASE_MS, gated=True))
    with pytest.raises(Refused, match="before the check of its role"):
        transition(again, t.Report(2, "done"), NOW)


def test_nobody_claims_what_is_held() -> None:
    with pytest.raises(Refused):
        transition(claimed(), CLAIM, NOW)


@pytest.mark.parametrize("name", OF_A_HOLDER)
@pytest.mark.parametrize("epoch", [0, 2, -1])
def test_every_word_of_a_holder_is_fenced(name: str, epoch: int) -> None:
    word: Any = A_TRIGGER[name]
    trigger = replace(word, epoch=epoch)
    with pytest.raises(Stale) as refusal:
        transition(claimed(), trigger, NOW)
    assert refusal.value.remedy.startswith("Stop working on it")


@pytest.mark.parametrize("name", ["Progress", "AddArtifact", "Spend"])
def test_working_neither_ends_nor_extends_custody(name: str) -> None:
    task = claimed()
    after = transition(task, A_TRIGGER[name], NOW + SECOND).task
    assert (after.holder, after.epoch, after.wake_at) == ("ann", 1, task.wake_at)


def test_progress_is_the_last_word() -> None:
    task = then(claimed(), t.Progress(1, 10, "reading"), t.Progress(1, 40, "writing"))
    assert (task.details.progress_percent, task.details.progress_note) == (40, "writing")


def test_the_old_attempt_is_fenced_out_by_the_new_one() -> None:
    # Given a holder that slept past its lease, when somebody else holds the task,
    task = then(due(claimed()).task, CLAIM)
    assert (task.holder, task.epoch) == ("bob", 2)
    # then nothing it says is taken, and the new holder notices nothing.
    for name in OF_A_HOLDER:
        with pytest.raises(Stale):
            transition(task, A_TRIGGER[name], NOW + LEASE_MS)
    assert then(task, t.Report(2, "done")).state is State.COMPLETE


def test_a_late_holder_that_nobody_replaced_yet_is_stale_too() -> None:
    ready = due(claimed()).task
    with pytest.raises(Stale):
        transition(ready, t.Report(1, "done"), NOW + LEASE_MS)


# -- cancelling --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [State.PENDING, State.READY, State.REVIEW, State.BLOCKED], ids=str
)
def test_what_nobody_holds_is_cancelled_and_done_with(state: State) -> None:
    decision = transition(BY_STATE[state](), t.Cancel("boss", "no longer needed"), NOW)
    task = decision.task
    assert task.state is State.CANCELLED
    assert task.reason == "cancelled by boss: no longer needed"
    assert (task.holder, task.wake_at, task.details.waiting_on) == ("", 0, ())
    assert not effects_of(decision, StopHolder)
    assert effects_of(decision, ResolveDependents) == [ResolveDependents(State.CANCELLED)]


def test_a_holder_is_told_to_stop_and_counted_until_it_has() -> None:
    # Given a running attempt, when its task is cancelled,
    task = claimed()
    decision = transition(task, t.Cancel("boss"), NOW + SECOND)
    # then it is over at once, the holder is told, and custody ends only later:
    assert decision.task.state is State.CANCELLED
    assert decision.effects[0] == StopHolder("ann", 1)
    assert (decision.task.holder, decision.task.wake_at) == ("ann", task.wake_at)
    # when the holder says it has stopped,
    stopped = then(decision.task, t.Stopped(1))
    assert (stopped.state, stopped.holder, stopped.wake_at) == (State.CANCELLED, "", 0)
    # or when its lease ends without a word.
    silent = due(decision.task).task
    assert (silent.state, silent.holder, silent.wake_at) == (State.CANCELLED, "", 0)


def test_who_stopped_before_need_not_say_so_again() -> None:
    stopped = then(cancelled(), t.Stopped(1))
    assert transition(stopped, t.Stopped(1), NOW).events == ()


def test_another_attempt_cannot_say_that_this_one_stopped() -> None:
    task = cancelled()
    for epoch in (0, 2):
        assert transition(task, t.Stopped(epoch), NOW).task is task


@pytest.mark.parametrize("name", sorted(set(OF_A_HOLDER) - set(LAST_WORDS)))
def test_after_a_cancel_nothing_of_the_attempt_becomes_success(name: str) -> None:
    with pytest.raises(Stale):
        transition(cancelled(), A_TRIGGER[name], NOW)


@pytest.mark.parametrize("name", LAST_WORDS)
def test_a_cancelled_attempt_leaves_its_log_and_cost_until_it_has_stopped(name: str) -> None:
    task = cancelled()
    after = transition(task, A_TRIGGER[name], NOW).task
    assert (after.state, after.holder, after.wake_at) == (task.state, "ann", task.wake_at)
    assert after.reason == task.reason
    assert after.details.spent.usd == (0.5 if name == "Spend" else 0)
    # Not once it has, nor when its lease has ended; nor does it serve whoever held nothing.
    unheld = then(submitted(), t.Cancel("boss"))
    reviewed = then(claimed(review=True), t.Report(1, "done"), t.Cancel("boss"))
    for over in (then(task, t.Stopped(1)), due(task).task, unheld, reviewed):
        with pytest.raises(Stale):
            transition(over, A_TRIGGER[name], NOW)


@pytest.mark.parametrize("name", LAST_WORDS)
@pytest.mark.parametrize("epoch", [1, 3])
def test_of_a_cancelled_task_only_the_last_attempt_says_anything(name: str, epoch: int) -> None:
    # Given a second attempt at the time of the cancel,
    task = then(due(claimed()).task, CLAIM, t.Cancel("boss"))
    assert task.epoch == 2
    # then the one that it replaced is fenced out as before.
    word: Any = A_TRIGGER[name]
    with pytest.raises(Stale):
        transition(task, replace(word, epoch=epoch), NOW)


def test_what_a_cancelled_attempt_cost_blocks_nothing() -> None:
    task = then(claimed(budget=Usage(usd=1)), t.Cancel("boss"))
    for refusing in (False, True):
        cost = t.Spend(1, Usage(usd=5), unless_used_up=refusing)
        decision = transition(task, cost, NOW)
        assert decision.task.state is State.CANCELLED and not decision.effects
        assert decision.task.details.spent.usd == 5
    tree = transition(task, t.Spend(1, Usage(usd=0.1), "1 usd by a and its descendants"), NOW)
    assert effects_of(tree, Notify) == [Notify("budget_used_up", "1 usd by a and its descendants")]


def test_after_a_cancel_no_attempt_starts() -> None:
    for task in (then(submitted(), t.Cancel("boss")), cancelled(), due(cancelled()).task):
        with pytest.raises(Refused):
            transition(task, CLAIM, NOW + 2 * LEASE_MS)


# -- late words --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", list(State), ids=str)
def test_late_reports_are_kept_as_evidence_and_bounded(state: State) -> None:
    # Given a worker that never stops reporting late, in whatever state the task is,
    start = task = BY_STATE[state]()
    kept = 0
    for number in range(2 * REFUSED_REPORTS_KEPT):
        decision = transition(
            task, t.RefuseReport(0, "ann", "completed", f"take {number}"), task.updated_at
        )
        kept += len(decision.events)
        assert decision.effects == ()
        task = decision.task
    # then the log keeps a few, and nothing about the task is different.
    assert kept == REFUSED_REPORTS_KEPT
    assert (task.state, task.holder, task.wake_at) == (start.state, start.holder, start.wake_at)
    assert task.details.refused_reports == REFUSED_REPORTS_KEPT


@pytest.mark.parametrize("state", list(State), ids=str)
def test_people_may_always_comment(state: State) -> None:
    task = BY_STATE[state]()
    decision = transition(task, t.Comment("boss", "nice"), task.updated_at)
    after = decision.task
    assert (after.state, after.holder, after.wake_at) == (task.state, task.holder, task.wake_at)
    assert decision.events[0].kind == "commented"
    assert decision.effects == ()


@pytest.mark.parametrize("state", list(State), ids=str)
def test_an_attempt_may_comment_only_while_it_holds_the_task(state: State) -> None:
    task = BY_STATE[state]()
    word = t.Comment("ann", "I found something", epoch=1)
    if state is State.IN_PROGRESS:
        assert transition(task, word, task.updated_at).events
    else:
        with pytest.raises(Stale):
            transition(task, word, task.updated_at)


def test_an_older_attempt_may_not_comment() -> None:
    task = then(due(claimed()).task, CLAIM)
    with pytest.raises(Stale):
        transition(task, t.Comment("ann", "me again", epoch=1), task.updated_at)


def test_what_an_attempt_was_denied_is_counted_and_told_to_the_next() -> None:
    task = claimed()
    denied = t.Comment("ann", "2 tool calls were not allowed: Bash: git commit", 1, denied=2)
    decision = transition(task, denied, task.updated_at + 5)
    after = decision.task
    assert (after.state, after.holder, after.wake_at) == (task.state, task.holder, task.wake_at)
    (note,) = after.details.notes
    assert (note.by, note.kind, note.text) == (task.holder, "denied", denied.text)
    assert after.details.denied == 2
    again = transition(after, denied, task.updated_at + 6).task
    assert again.details.denied == 4, "of all attempts"
    assert then(due(again).task, CLAIM).details.denied == 4


def test_one_note_of_an_attempt_tells_of_all_that_it_was_denied() -> None:
    """It is told as it comes; each time the note of the attempt says it anew."""
    first = then(claimed(), t.Comment("ann", "a", 1, denied=1))
    task = then(due(first).task, CLAIM)
    task = then(task, t.Comment("ann", "b", 2, denied=1))
    task = then(task, t.Comment("ann", "b and c", 2, denied=2, replaces=True))
    told = [note.text for note in task.details.notes if note.kind == "denied"]
    assert (told, task.details.denied) == (["a", "b and c"], 4), "that of another attempt stays"
    # Its note may be gone: only so many are kept.
    alone = then(claimed(), t.Comment("ann", "d", 1, denied=1, replaces=True))
    assert [note.text for note in alone.details.notes] == ["d"]


def test_nobody_but_the_holder_says_what_was_denied() -> None:
    for task in (claimed(), BY_STATE[State.COMPLETE]()):
        with pytest.raises(Stale):
            transition(task, t.Comment("boss", "everything", denied=1), task.updated_at)


# -- reopening ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", sorted(DEAD_LETTERS), ids=str)
def test_a_dead_letter_is_reopened_with_fresh_counters(state: State) -> None:
    task = BY_STATE[state]()
    decision = transition(task, t.Requeue("boss", "fixed the network"), task.updated_at)
    after = decision.task
    assert after.state is State.READY
    assert (after.details.failures, after.details.crashes, after.details.rounds) == (0, 0, 0)
    assert (after.reason, after.details.report) == ("", None)
    assert effects_of(decision, Announce) == [Announce("worker")]
    assert decision.events[0].kind == "requeued"


def test_a_reopened_task_has_all_its_tries_again() -> None:
    # Given a task that failed, crashed and was sent back, until it was given up,
    task = claimed(review=True, max_attempts=2)
    task = then(due(then(task, t.FailAttempt(1, "x"))).task, CLAIM)
    task = then(due(task).task, CLAIM)
    task = then(task, t.Report(3, "done"), t.Verdict("boss", t.Ruling.CHANGES), CLAIM)
    task = then(task, t.FailAttempt(4, "x"))
    details = task.details
    assert (details.failures, details.crashes, details.rounds) == (2, 1, 1)
    # when it is reopened, then every counter that could end it starts anew.
    details = then(task, t.Requeue("boss")).details
    assert (details.failures, details.crashes, details.rounds) == (0, 0, 0)


def test_reopening_keeps_the_epoch_so_that_old_attempts_stay_fenced() -> None:
    task = then(failed_task(), t.Requeue("boss"))
    assert task.epoch == 1
    task = then(task, CLAIM)
    assert task.epoch == 2
    with pytest.raises(Stale):
        transition(task, t.Report(1, "done after all"), NOW)


def test_reopening_says_why_it_was_closed() -> None:
    task = then(failed_task(), t.Requeue("boss"))
    assert task.details.notes[-1].text == "was failed: no good"
    assert then(failed_task(), t.Requeue("boss", "try this")).details.notes[-1].text == "try this"


def test_reopening_waits_for_dependencies_that_are_under_way_again() -> None:
    task = then(failed_task(), t.Requeue("boss", "", ("task-0",)))
    assert (task.state, task.details.waiting_on) == (State.PENDING, ("task-0",))


@pytest.mark.parametrize("state", sorted(set(State) - DEAD_LETTERS), ids=str)
def test_only_dead_letters_are_reopened(state: State) -> None:
    with pytest.raises(Refused) as refusal:
        transition(BY_STATE[state](), t.Requeue("boss"), NOW)
    assert refusal.value.code == "wrong_state"
