"""Schedules through the service: what people say about them, and what the loop does."""

from __future__ import annotations

import pytest

from agentq.contracts.schedule_values import (
    DeclaredSchedule,
    ScheduleChange,
    ScheduledOccurrence,
    ScheduleFiring,
)
from agentq.contracts.service import Service
from agentq.core.access import SYSTEM
from agentq.core.errors import NotFound, Refused
from agentq.core.states import State
from agentq.core.values import replace
from tests.contracts.service.conftest import Ways
from tests.contracts.service.people import ANN, COORDINATOR, WORKER, spec


def declared(name: str, next_at: int) -> DeclaredSchedule:
    return DeclaredSchedule(name, f"at {next_at}", next_at - 1000, next_at, "ab")


def test_people_look_at_them_pause_them_and_ask_for_a_run(ways: Ways) -> None:
    later = ways.beside.now() + 10**7
    ways.beside.declare_schedules(SYSTEM, [declared("nightly", later), declared("agent:ceo", 1)])
    found = ways.service.schedules(ANN)
    assert [(each.name, each.kind, each.next_at) for each in found] == [
        ("agent:ceo", "agent", 1), ("nightly", "", later),
    ]  # fmt: skip
    paused = ways.service.change_schedule(ANN, "agent:ceo", ScheduleChange.PAUSE)
    assert paused.paused and not paused.wake_at
    asked_at = ways.service.now()
    asked = ways.service.change_schedule(ANN, "nightly", ScheduleChange.RUN, asked_at)
    assert asked.is_asked_for and asked.asked_at == asked_at
    assert [each.name for each in ways.beside.waking_schedules(SYSTEM)] == ["nightly"]
    assert not ways.service.change_schedule(ANN, "agent:ceo", ScheduleChange.RESUME).paused
    decided = [each for each in ways.beside.audit(ANN).entries if each.action == "schedule"]
    assert [(each.who, each.subject, each.detail) for each in decided] == [
        ("ann", "agent:ceo", "resume"), ("ann", "nightly", "run"), ("ann", "agent:ceo", "pause"),
    ]  # fmt: skip


def test_who_may_not_is_refused(service: Service) -> None:
    for who in (COORDINATOR, WORKER):
        with pytest.raises(Refused, match="may not change the schedule nightly"):
            service.change_schedule(who, "nightly", ScheduleChange.PAUSE)
    with pytest.raises(NotFound, match="no schedule 'nightly'"):
        service.change_schedule(ANN, "nightly", ScheduleChange.PAUSE)


def test_an_occurrence_comes_once_with_its_context(beside: Service) -> None:
    due = beside.now() - 5
    beside.declare_schedules(SYSTEM, [declared("nightly", due)])
    (state,) = beside.waking_schedules(SYSTEM)
    occurrence = ScheduledOccurrence(due, (spec("task-1"),))
    firing = ScheduleFiring("nightly", state.wake_at, (occurrence,))
    fired = beside.fire_schedule(SYSTEM, firing, {"task-1": b"all of it"})
    assert fired.done and [task.state for task in fired.tasks] == [State.READY]
    assert beside.context(ANN, "task-1") == "all of it"
    # Somebody who worked out the same, and is late, leaves everything as it is.
    assert not beside.fire_schedule(SYSTEM, firing, {"task-1": b"all of it"}).done
    assert beside.context(ANN, "task-1") == "all of it"
    early = ScheduleFiring("nightly", 0)
    assert not beside.fire_schedule(SYSTEM, early).done


def test_what_is_skipped_leaves_no_context_and_reviews_are_not_made_up(beside: Service) -> None:
    due = beside.now() - 5000
    beside.declare_schedules(SYSTEM, [declared("nightly", due)])
    first = ScheduledOccurrence(due, (spec("task-1"),))
    second = ScheduledOccurrence(due + 1, (spec("task-2"),))
    fired = beside.fire_schedule(
        SYSTEM, ScheduleFiring("nightly", due, (first, second)), {"task-2": b"not needed"}
    )
    assert [task.id for task in fired.tasks] == ["task-1"]
    assert fired.state is not None and fired.state.skipped == 1
    made_up = ScheduledOccurrence(due, (replace(spec("task-3"), reviews="task-1"),))
    with pytest.raises(Refused, match="only a report"):
        beside.fire_schedule(SYSTEM, ScheduleFiring("nightly", due, (made_up,)))
