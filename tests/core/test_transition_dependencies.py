"""Dependencies: a child starts only when they allow it, and a failed one always resolves it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentq.core import triggers as t
from agentq.core.effects import Announce, Reply, ResolveDependents
from agentq.core.schedule import waiting_for
from agentq.core.states import TERMINAL, State
from agentq.core.task import OnDependencyFailure, Task
from agentq.core.transition import Decision, transition
from tests.core.building import NOW, a_spec, due, submitted, then

FAIL, SKIP, RUN = OnDependencyFailure.FAIL, OnDependencyFailure.SKIP, OnDependencyFailure.RUN
NOT_COMPLETE = sorted(TERMINAL - {State.COMPLETE})


def before_submit(policy: OnDependencyFailure, outcome: State) -> Decision:
    spec = a_spec(after=("task-0",), on_dependency_failure=policy, reply_to="results.boss")
    return transition(None, t.Submit(spec, (), (("task-0", outcome),)), NOW)


def after_submit(policy: OnDependencyFailure, outcome: State) -> Decision:
    task = submitted(waiting_on=("task-0",), on_dependency_failure=policy, reply_to="results.boss")
    return transition(task, t.DependencyEnded("task-0", outcome), NOW)


moments = pytest.mark.parametrize("ended", [before_submit, after_submit])
Ended = Callable[[OnDependencyFailure, State], Decision]


@moments
@pytest.mark.parametrize("policy", list(OnDependencyFailure))
def test_a_complete_dependency_lets_the_child_run(
    ended: Ended, policy: OnDependencyFailure
) -> None:
    decision = ended(policy, State.COMPLETE)
    assert decision.task.state is State.READY
    assert decision.task.details.waiting_on == ()
    assert decision.effects == (Announce("worker"),)


@moments
@pytest.mark.parametrize("outcome", NOT_COMPLETE)
@pytest.mark.parametrize(
    ("policy", "becomes"), [(FAIL, State.FAILED), (SKIP, State.CANCELLED), (RUN, State.READY)]
)
def test_what_did_not_complete_is_answered_by_the_policy(
    ended: Ended, outcome: State, policy: OnDependencyFailure, becomes: State
) -> None:
    task = ended(policy, outcome).task
    assert task.state is becomes
    assert task.details.waiting_on == ()
    if becomes is not State.READY:
        # The reason names which dependency, and how it ended.
        assert task.reason == f"its dependency task-0 is {outcome}"
        assert task.details.reason_kind == "dependency"


@moments
@pytest.mark.parametrize("policy", [FAIL, SKIP])
def test_a_resolved_child_tells_its_own_children_and_whoever_asked(
    ended: Ended, policy: OnDependencyFailure
) -> None:
    decision = ended(policy, State.FAILED)
    assert decision.effects[0] == ResolveDependents(decision.task.state)
    assert isinstance(decision.effects[1], Reply)


def test_every_dependency_must_end() -> None:
    task = submitted(waiting_on=("task-a", "task-b", "task-c"))
    assert waiting_for(task) == [f"dependency task-{each}" for each in "abc"]
    for number, each in enumerate("bac", 1):
        assert task.state is State.PENDING
        task = then(task, t.DependencyEnded(f"task-{each}", State.COMPLETE))
        assert len(task.details.waiting_on) == 3 - number
    assert task.state is State.READY


def test_the_first_failure_settles_it_without_waiting_for_the_rest() -> None:
    task = submitted(waiting_on=("task-a", "task-b"))
    task = then(task, t.DependencyEnded("task-b", State.EXPIRED))
    assert task.state is State.FAILED
    assert task.details.waiting_on == ()


def test_running_regardless_still_waits_for_all_of_them() -> None:
    task = submitted(waiting_on=("task-a", "task-b"), on_dependency_failure=RUN)
    task = then(task, t.DependencyEnded("task-a", State.FAILED))
    assert task.state is State.PENDING
    assert then(task, t.DependencyEnded("task-b", State.FAILED)).state is State.READY


def test_an_end_that_is_not_waited_for_is_no_news() -> None:
    task = submitted(waiting_on=("task-0",))
    for name in ("task-7", "task-"):
        decision = transition(task, t.DependencyEnded(name, State.FAILED), NOW)
        assert decision.task is task
        assert decision.events == ()


def test_an_end_told_twice_counts_once() -> None:
    task = submitted(waiting_on=("task-a", "task-b"))
    ended = t.DependencyEnded("task-a", State.COMPLETE)
    once = then(task, ended)
    assert transition(once, ended, NOW).task is once


def test_a_failed_dependency_also_settles_a_child_that_is_blocked() -> None:
    # Given a child that is blocked over its approval while its dependency is under way,
    task = submitted(waiting_on=("task-0",), requires_approval=True, approval_timeout_seconds=60)
    blocked = due(task).task
    # when the dependency fails, then nobody is asked any longer.
    settled = then(blocked, t.DependencyEnded("task-0", State.FAILED))
    assert settled.state is State.FAILED
    # When it completes instead, the question remains.
    assert then(blocked, t.DependencyEnded("task-0", State.COMPLETE)).state is State.BLOCKED


def _blocked_child() -> Task:
    task = submitted(waiting_on=("task-0",), requires_approval=True, approval_timeout_seconds=60)
    return due(task).task


@pytest.mark.parametrize(
    "end",
    [
        lambda: due(submitted(waiting_on=("task-0",), ttl_seconds=60)).task,
        lambda: then(submitted(waiting_on=("task-0",)), t.Cancel("boss")),
        lambda: then(submitted(waiting_on=("task-0",), requires_approval=True), t.Reject("boss")),
        lambda: then(_blocked_child(), t.Reject("boss")),
        lambda: then(_blocked_child(), t.Answer("boss", "", t.Resolution.GIVE_UP)),
        lambda: then(_blocked_child(), t.Answer("boss", "", t.Resolution.DONE)),
        lambda: then(_blocked_child(), t.Cancel("boss")),
    ],
    ids=["expired", "cancelled", "rejected", "rejected late", "given up", "done", "withdrawn"],
)
def test_a_child_that_ended_by_itself_waits_for_nothing_any_more(end: Callable[[], Task]) -> None:
    task = end()
    assert task.is_terminal
    assert task.details.waiting_on == ()
    assert task.details.not_before == 0


def test_a_promised_task_that_cannot_be_accepted_is_born_as_a_dead_letter() -> None:
    """Whatever it would have waited for: it says why, and whoever asked is told."""
    spec = a_spec(after=("task-0",), delay_seconds=60, reply_to="results.boss")
    decision = transition(None, t.Submit(spec, ("task-0",), refused="too late"), NOW)
    task = decision.task
    assert (task.state, task.wake_at, task.details.waiting_on) == (State.FAILED, 0, ())
    assert (task.details.reason, task.details.reason_kind) == ("too late", "refused")
    assert [event.kind for event in decision.events] == ["failed"]
    assert ResolveDependents(State.FAILED) in decision.effects
    assert any(isinstance(effect, Reply) for effect in decision.effects)
