"""Signals: kept until something waits for them, taken once, and no more than a task can keep."""

from __future__ import annotations

import pytest

from agentq.core import triggers as t
from agentq.core.effects import Announce
from agentq.core.errors import Refused
from agentq.core.limits import DATA_CHARS_MAX, NOTE_CHARS_MAX, SIGNALS_KEPT
from agentq.core.schedule import waiting_for
from agentq.core.signals import signals_to_come
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.transition import transition
from agentq.core.values import replace
from tests.core.building import (
    LEASE_MS,
    NOW,
    claimed,
    due,
    effects_of,
    failed_task,
    submitted,
    then,
)

DEPLOYED = t.Signal("ci", "deployed", '{"to":"prod"}')
SEEN = t.Signal("ann", "seen")


def test_a_task_waits_for_its_signals_and_starts_when_all_have_come() -> None:
    task = submitted(wait_for=("deployed", "seen"))
    assert (task.state, waiting_for(task)) == (State.PENDING, ["signal deployed", "signal seen"])
    task = then(task, SEEN)
    assert waiting_for(task) == ["signal deployed"]
    decision = transition(task, DEPLOYED, NOW + 5)
    assert decision.task.state is State.READY
    assert effects_of(decision, Announce) == [Announce("worker")]
    # What a signal brought is a note for the attempt.
    assert [(n.at, n.by, n.kind, n.text) for n in decision.task.details.notes] == [
        (NOW, "ann", "signal", "seen"),
        (NOW + 5, "ci", "signal", 'deployed: {"to":"prod"}'),
    ]


def test_only_one_that_was_taken_is_waited_for_no_more() -> None:
    task = submitted(wait_for=("deployed", "seen"))
    kept = then(claimed(), DEPLOYED).details.signals
    details = replace(task.details, signals=kept)
    assert signals_to_come(replace(task, details=details)) == ("deployed", "seen")
    details = replace(details, signals=(replace(kept[0], is_taken=True),))
    assert signals_to_come(replace(task, details=details)) == ("seen",)


def test_one_that_comes_early_is_kept_and_taken_by_a_later_wait() -> None:
    task = then(claimed(), DEPLOYED)
    assert (task.state, task.holder) == (State.IN_PROGRESS, "ann")
    assert [each.is_taken for each in task.details.signals] == [False]
    task = then(task, t.Yield(1, signals=("deployed",)))
    assert task.state is State.READY
    assert [each.is_taken for each in task.details.signals] == [True]
    # It was taken: another wait needs another signal.
    task = then(task, t.ClaimTask("bob", LEASE_MS), t.Yield(2, signals=("deployed",)))
    assert task.state is State.PENDING
    assert then(task, DEPLOYED).state is State.READY


def test_each_signal_lets_one_wait_go_on() -> None:
    task = then(submitted(wait_for=("deployed", "deployed")), DEPLOYED)
    assert (task.state, task.details.awaited_signals) == (State.PENDING, ("deployed",))
    assert then(task, DEPLOYED).state is State.READY


def test_a_signal_nobody_waits_for_changes_nothing_else() -> None:
    task = submitted(waiting_on=("task-0",))
    told = then(task, DEPLOYED)
    assert (told.state, told.wake_at, told.details.waiting_on) == (State.PENDING, 0, ("task-0",))
    blocked = then(claimed(), t.BlockTask(1, "what now?"), DEPLOYED)
    assert (blocked.state, blocked.details.remind_at) == (State.BLOCKED, blocked.wake_at)


def test_a_task_that_waits_for_more_than_signals_goes_on_waiting() -> None:
    task = then(
        submitted(wait_for=("deployed",), requires_approval=True, delay_seconds=60), DEPLOYED
    )
    assert waiting_for(task) == ["approval", "time"]


def test_no_more_are_kept_than_a_task_can_keep() -> None:
    full = then(claimed(), *[SEEN] * SIGNALS_KEPT)
    with pytest.raises(Refused) as caught:
        transition(full, SEEN, NOW)
    assert caught.value.code == "too_many_signals"
    # One that was taken makes room,
    roomy = then(full, t.Yield(1, signals=("seen",)), t.ClaimTask("bob", LEASE_MS), DEPLOYED)
    assert len(roomy.details.signals) == SIGNALS_KEPT
    assert roomy.details.signals[-1].name == "deployed"
    # and one that is waited for always comes through.
    waiting = then(full, t.Yield(1, signals=("deployed",)))
    assert waiting.state is State.PENDING
    assert then(waiting, DEPLOYED).state is State.READY
    assert len(then(waiting, DEPLOYED).details.signals) == SIGNALS_KEPT


def test_a_note_of_a_signal_is_no_longer_than_a_note() -> None:
    big = t.Signal("ci", "deployed", '{"text":"' + "x" * (DATA_CHARS_MAX - 20) + '"}')
    task = then(submitted(wait_for=("deployed",)), big)
    assert len(task.details.notes[0].text) <= NOTE_CHARS_MAX
    assert task.details.signals[0].data == big.data


def test_one_that_is_over_takes_no_signal() -> None:
    for task in (failed_task(), then(claimed(), t.Report(1, "done"))):
        with pytest.raises(Refused) as caught:
            transition(task, DEPLOYED, NOW)
        assert caught.value.code == "wrong_state"


def expired() -> Task:
    """It had one of two signals when its time was over."""
    return due(then(submitted(wait_for=("deployed", "seen"), ttl_seconds=60), SEEN)).task


def test_one_that_is_opened_again_waits_for_those_that_have_not_come() -> None:
    task = expired()
    assert (task.state, task.details.awaited_signals) == (State.EXPIRED, ())
    again = then(task, t.Requeue("boss"))
    assert waiting_for(again) == ["signal deployed"]
    assert then(again, DEPLOYED).state is State.READY
    # One that has started once had them all.
    started = then(
        then(submitted(wait_for=("deployed",)), DEPLOYED),
        t.ClaimTask("ann", LEASE_MS), t.FailAttempt(1, "no", t.FailureKind.INVALID),
        t.Requeue("boss"),
    )  # fmt: skip
    assert started.state is State.READY
