"""Holds and dispatches: what keeps a task from starting beside everything else it waits for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentq.core import triggers as t
from agentq.core.access import (
    TABLE,
    Action,
    Principal,
    PrincipalKind,
    check_submitter,
    coordinator,
)
from agentq.core.effects import Announce
from agentq.core.errors import Refused
from agentq.core.schedule import waiting_for
from agentq.core.states import State
from agentq.core.task import ApprovalPolicy, OnTimeout, Task
from agentq.core.transition import transition
from tests.core.building import (
    BY_STATE,
    LEASE_MS,
    NOW,
    SECOND,
    claimed,
    due,
    effects_of,
    submitted,
    then,
)

HOLD = t.Hold("ann", "after the release", "stated")
DISPATCH = t.Dispatch("ann", "stated")
BY_PROGRAM = "coordinator"


def held(**fields: object) -> Task:
    return then(submitted(**fields), HOLD)  # type: ignore[arg-type]


def test_a_held_task_waits_until_it_is_dispatched() -> None:
    # Given a task that could be claimed, when somebody holds it,
    decision = transition(submitted(), HOLD, NOW + SECOND)
    task = decision.task
    # then it waits for nothing else, and says who, since when and why.
    assert (task.state, waiting_for(task), task.wake_at) == (State.PENDING, ["dispatch"], 0)
    assert [event.kind for event in decision.events] == ["held"] and not decision.effects
    assert task.details.held is not None
    assert (task.details.held.by, task.details.held.at) == ("ann", NOW + SECOND)
    assert task.details.held.reason == "after the release"
    with pytest.raises(Refused):
        transition(task, t.ClaimTask("bob", LEASE_MS), NOW + SECOND)
    # When it is dispatched, workers of its role hear of it.
    decision = transition(task, DISPATCH, NOW + 2 * SECOND)
    assert (decision.task.state, decision.task.details.held) == (State.READY, None)
    assert [event.kind for event in decision.events] == ["dispatched"]
    assert effects_of(decision, Announce) == [Announce("worker")]


def test_holding_twice_and_dispatching_what_is_not_held_change_nothing() -> None:
    task = held()
    for again in (HOLD, t.Hold("bob", "another reason"), t.Hold("ci", "", BY_PROGRAM)):
        decision = transition(task, again, NOW + SECOND)
        assert decision.task is task and not decision.events
    for other in (submitted(), submitted(waiting_on=("task-0",)), then(task, DISPATCH)):
        decision = transition(other, DISPATCH, NOW + SECOND)
        assert decision.task is other and not decision.events


def test_a_dispatch_ends_every_delay() -> None:
    assert then(submitted(delay_seconds=60), DISPATCH).state is State.READY
    assert then(claimed(), t.FailAttempt(1, "no"), DISPATCH).state is State.READY
    later = t.Release(1, "quota", NOW + 3600 * SECOND)
    assert then(claimed(), later, DISPATCH).state is State.READY
    both = held(delay_seconds=60)
    assert waiting_for(both) == ["time", "dispatch"]
    assert then(both, DISPATCH).state is State.READY
    # A delay that is over leaves the hold.
    waited = due(both).task
    assert (waited.state, waiting_for(waited)) == (State.PENDING, ["dispatch"])


WAITING: dict[str, tuple[Callable[[], Task], t.Trigger, str]] = {
    "a dependency": (
        lambda: submitted(waiting_on=("task-0",)),
        t.DependencyEnded("task-0", State.COMPLETE),
        "dependency task-0",
    ),
    "an approval": (lambda: submitted(requires_approval=True), t.Approve("boss"), "approval"),
    "a signal": (
        lambda: submitted(wait_for=("deployed",)),
        t.Signal("boss", "deployed"),
        "signal deployed",
    ),
    "its children": (
        lambda: then(claimed(), t.ChildrenSubmitted(("task-8",)), t.Yield(1)),
        t.DependencyEnded("task-8", State.FAILED),
        "children task-8",
    ),
}


@pytest.mark.parametrize("what", WAITING)
def test_a_hold_stands_beside_what_else_is_waited_for(what: str) -> None:
    make, comes, words = WAITING[what]
    task = then(make(), HOLD)
    assert waiting_for(task) == [words, "dispatch"]
    # What it waits for comes, and the hold is left; or the other way round.
    assert waiting_for(then(task, comes)) == ["dispatch"]
    assert then(task, comes, DISPATCH).state is State.READY
    dispatched = then(task, DISPATCH)
    assert (dispatched.state, waiting_for(dispatched)) == (State.PENDING, [words])
    assert then(dispatched, comes).state is State.READY


def test_edits_leave_the_hold_and_ends_end_it() -> None:
    for edit in (
        t.Edit("ed", instructions="else"), t.Edit("ed", priority="high"), t.Edit("ed", to="other")
    ):  # fmt: skip
        edited = then(held(), edit)
        assert edited.state is State.PENDING and edited.details.held is not None
    assert then(held(), t.Cancel("boss")).details.held is None
    expired = due(held(ttl_seconds=60)).task
    assert (expired.state, expired.details.held) == (State.EXPIRED, None)
    assert then(expired, t.Requeue("boss")).state is State.READY
    broken = then(held(waiting_on=("task-0",)), t.DependencyEnded("task-0", State.FAILED))
    assert (broken.state, broken.details.held) == (State.FAILED, None)


def test_an_approval_policy_goes_on_while_a_task_is_held() -> None:
    policy = ApprovalPolicy(on_timeout=OnTimeout.APPROVE)
    asked = {"requires_approval": True, "approval_timeout_seconds": 60}
    approved = due(held(approval=policy, **asked)).task
    assert approved.details.approved_by and waiting_for(approved) == ["dispatch"]
    # Nobody has approved it in time: it asks, and is held still once somebody does.
    blocked = due(held(**asked)).task
    assert blocked.state is State.BLOCKED and blocked.details.held is not None
    assert waiting_for(then(blocked, t.Approve("boss"))) == ["dispatch"]
    for trigger in (HOLD, DISPATCH):
        with pytest.raises(Refused, match="blocked"):
            then(blocked, trigger)


@pytest.mark.parametrize(
    ("state", "trigger", "remedy"),
    [
        (State.IN_PROGRESS, HOLD, "stop it with `agentq cancel`, or wait"),
        (State.REVIEW, HOLD, "waits for a verdict"),
        (State.COMPLETE, HOLD, "It is over"),
        (State.FAILED, HOLD, "agentq requeue"),
        (State.IN_PROGRESS, DISPATCH, "It runs already"),
        (State.CANCELLED, DISPATCH, "agentq rerun"),
        (State.EXPIRED, DISPATCH, "agentq requeue"),
    ],
    ids=str,
)
def test_what_cannot_be_held_or_dispatched(state: State, trigger: t.Trigger, remedy: str) -> None:
    with pytest.raises(Refused, match=f"is {state}") as refused:
        transition(BY_STATE[state](), trigger, NOW)
    assert remedy in refused.value.remedy and refused.value.code == "wrong_state"


def test_what_a_person_holds_no_program_dispatches() -> None:
    by_program = t.Dispatch("ci", BY_PROGRAM)
    with pytest.raises(Refused, match="ann holds task-1") as refused:
        then(held(), by_program)
    assert refused.value.code == "not_permitted"
    with pytest.raises(Refused):
        then(held(delay_seconds=60), by_program)
    # What a program holds it may dispatch, until a person has held it as well.
    own = then(submitted(), t.Hold("ci", "", BY_PROGRAM))
    assert then(own, by_program).state is State.READY
    assert then(own, DISPATCH).state is State.READY
    taken_over = then(own, HOLD)
    assert taken_over.details.held is not None and taken_over.details.held.by == "ann"
    with pytest.raises(Refused):
        then(taken_over, by_program)


def test_who_may() -> None:
    may = {kind for kind, action in TABLE if action in (Action.HOLD, Action.DISPATCH)}
    assert may == {PrincipalKind.PERSON, PrincipalKind.COORDINATOR, PrincipalKind.SYSTEM}
    check_submitter(Principal(PrincipalKind.PERSON, "ann"), Action.HOLD, submitted(sender="boss"))
    with pytest.raises(Refused, match="may not hold task-1: boss has submitted it"):
        check_submitter(coordinator("ci"), Action.HOLD, submitted(sender="boss"))
