"""Keeping waiting tasks from starting, and letting them start: hold and dispatch."""

from __future__ import annotations

import pytest

from agentq.client.queue import Queue
from agentq.core.errors import Conflict
from agentq.core.states import State
from tests.interfaces.conftest import Submit, run_here

pytestmark = pytest.mark.both_ways


def test_a_task_is_held_and_dispatched(submit: Submit) -> None:
    task = submit()
    told = run_here("hold", task, "--reason", "after the release").ok().out
    assert f"{task} is pending: held by" in told and "(after the release)" in told
    shown = run_here("status", task).ok().out
    assert "waits for" in shown and "dispatch" in shown and "after the release" in shown
    plain = run_here("status", task, "--json").ok().json()
    assert plain["waiting_for"] == ["dispatch"]
    assert plain["held"]["reason"] == "after the release" and plain["held"]["at"]
    explained = run_here("explain", task).ok().out
    assert "it is held by" in explained and f"agentq dispatch {task}" in explained
    run_here("claim", "--as", "worker").refused(6)
    # Holding it again says who holds it.
    assert "(after the release)" in run_here("hold", task, "--reason", "mine").ok().out
    assert "is ready: dispatched" in run_here("dispatch", task).ok().out
    assert "neither held nor delayed" in run_here("dispatch", task).ok().out
    assert run_here("status", task, "--json").ok().json()["held"] is None
    run_here("replay", task).ok()
    kinds = [each["kind"] for each in run_here("events", task, "--json").ok().lines()]
    assert kinds == ["submitted", "held", "dispatched"]


def test_a_dispatch_says_what_a_task_still_waits_for(submit: Submit) -> None:
    first = submit()
    task = submit("--after", first, "--delay", "1h")
    assert "`agentq dispatch" in run_here("explain", task).ok().out
    told = run_here("dispatch", task).ok().out
    assert "is pending: dispatched" in told and f"it still waits for dependency {first}" in told
    told = run_here("dispatch", task).ok().out
    assert "neither held nor delayed, nothing was changed; it still waits for" in told


def test_many_at_once(submit: Submit, queue: Queue) -> None:
    first, second = submit(), submit()
    preview = run_here("hold", "--role", "worker").ok()
    assert first in preview.out and "--yes would hold 2 tasks" in preview.err
    assert queue.task(first).state is State.READY
    run_here("hold", "--role", "worker", "--yes").ok()
    assert {queue.task(each).state for each in (first, second)} == {State.PENDING}
    assert "no task is meant" in run_here("hold", "--all", "--yes").ok().err
    assert run_here("dispatch", "--all", "--json").ok().json()["would"] == "dispatch"
    told = run_here("dispatch", first, second, "nothing").refused(3)
    assert f"{first} is ready" in told.out and f"{second} is ready" in told.out
    assert "2 tasks changed, 1 refused" in told.err
    assert "no task is meant" in run_here("dispatch", "--all", "--yes").ok().err


def test_what_cannot_be_held(submit: Submit, queue: Queue) -> None:
    running, over = submit(), submit()
    run_here("claim", running, "--as", "worker").ok()
    run_here("cancel", over).ok()
    for words, status, says in (
        (["hold", running], 4, "stop it with `agentq cancel`, or wait"),
        (["dispatch", running], 4, "It runs already"),
        (["hold", over], 4, "It is over"),
        (["hold", "nothing"], 3, "There is no task"),
        (["hold"], 2, "Which tasks?"),
        (["dispatch"], 2, "Which tasks?"),
        (["dispatch", running, "--all"], 2, "not both"),
    ):
        assert says in run_here(*words).refused(status).err


def test_the_sdk(queue: Queue) -> None:
    task = queue.submit("worker", "do it")
    held = queue.admin.hold(task, "ann", "not now")
    assert held.details.held is not None and held.details.held.reason == "not now"
    with pytest.raises(Conflict, match="has changed"):
        queue.admin.dispatch(task, "ann", if_version=task.version)
    assert queue.admin.dispatch(task, "ann", if_version=held.version).state is State.READY
