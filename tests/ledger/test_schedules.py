"""Schedules in the ledger: each occurrence once, never early, and what overlaps."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.contracts.doorbell import SCHEDULES_TOPIC
from agentq.contracts.schedule_values import (
    QUEUED_MAX,
    DeclaredSchedule,
    FiredSchedule,
    Overlap,
    ScheduleChange,
    ScheduledOccurrence,
    ScheduleFiring,
    ScheduleState,
)
from agentq.core.errors import NotFound, Refused
from agentq.core.states import State
from agentq.core.task import Spec
from agentq.ledger.codec import SpecCache
from agentq.ledger.schedules import ScheduleLedger
from tests.ledger.conftest import NOW, LedgerEnv

HOUR = 3_600_000
FIRST = NOW + HOUR


class Schedules:
    """One ledger's schedules, and short words for what is done with them."""

    def __init__(self, env: LedgerEnv) -> None:
        self.env = env
        self.ledger = ScheduleLedger(env.store, SpecCache())

    def declare(self, name: str = "nightly", **fields: Any) -> int:
        given: dict[str, Any] = {"rule": "every hour", "since_at": NOW, "digest": "a"}
        given |= {"next_at": FIRST} | fields
        return self.ledger.declare([DeclaredSchedule(name, **given)], ())

    def state(self, name: str = "nightly") -> ScheduleState:
        return next(each for each in self.ledger.every() if each.name == name)

    def firing(self, *moments: int, **fields: Any) -> ScheduleFiring:
        state = self.state()
        occurrences = tuple(
            ScheduledOccurrence(at, (Spec(f"task-{at}", "worker", instructions="x"),))
            for at in moments
        )
        fields.setdefault("next_at", max(moments, default=state.next_at) + HOUR)
        fields.setdefault("asked", state.is_asked_for)
        return ScheduleFiring(
            state.name, fields.pop("seen_at", state.wake_at), occurrences, **fields
        )

    def fire(self, *moments: int, **fields: Any) -> FiredSchedule:
        return self.ledger.fire(self.firing(*moments, **fields))

    def wait_for(self, moment: int) -> None:
        self.env.clock.now = moment


@pytest.fixture
def schedules(env: LedgerEnv) -> Schedules:
    found = Schedules(env)
    found.declare()
    return found


class TestFiring:
    def test_an_occurrence_is_submitted_with_its_row(
        self, schedules: Schedules, env: LedgerEnv
    ) -> None:
        schedules.wait_for(FIRST)
        fired = schedules.fire(FIRST)
        assert fired.done and [task.id for task in fired.tasks] == [f"task-{FIRST}"]
        state = schedules.state()
        assert state == fired.state
        assert (state.last_at, state.next_at, state.wake_at) == (FIRST, FIRST + HOUR, FIRST + HOUR)
        assert (state.fired, state.skipped, state.open_tasks) == (1, 0, (f"task-{FIRST}",))
        assert env.ledger.queries.by_id([f"task-{FIRST}"])[f"task-{FIRST}"].state is State.READY

    def test_who_comes_second_does_nothing(self, schedules: Schedules, env: LedgerEnv) -> None:
        schedules.wait_for(FIRST)
        decided = schedules.firing(FIRST)
        assert schedules.ledger.fire(decided).done
        assert schedules.ledger.fire(decided) == FiredSchedule(False)
        assert schedules.state().fired == 1

    def test_nothing_comes_early(self, schedules: Schedules) -> None:
        schedules.wait_for(FIRST - 1)
        with pytest.raises(Refused, match="not due for another 1 ms"):
            schedules.fire(FIRST)
        schedules.wait_for(FIRST)
        with pytest.raises(Refused, match="not due for another 3600000 ms"):
            schedules.fire(FIRST, FIRST + HOUR)
        assert schedules.state().fired == 0

    @pytest.mark.parametrize(
        ("moments", "next_at"),
        [
            ((FIRST, FIRST), FIRST + HOUR),
            ((FIRST - 1,), FIRST + HOUR),
            ((FIRST,), FIRST),
            ((), FIRST),
        ],
    )
    def test_nothing_comes_twice(
        self, schedules: Schedules, moments: tuple[int, ...], next_at: int
    ) -> None:
        schedules.wait_for(FIRST)
        with pytest.raises(Refused, match="decided already"):
            schedules.fire(*moments, next_at=next_at)

    def test_one_that_is_not_there_or_does_not_wake_is_left_alone(
        self, schedules: Schedules
    ) -> None:
        schedules.wait_for(FIRST)
        decided = schedules.firing(FIRST)
        schedules.ledger.change("nightly", ScheduleChange.PAUSE)
        assert not schedules.ledger.fire(decided).done
        assert not schedules.fire(FIRST).done  # decided on a row that wakes never
        schedules.ledger.declare((), ["nightly"])
        assert not schedules.ledger.fire(decided).done

    def test_a_task_that_is_there_already_is_not_made_again(
        self, schedules: Schedules, env: LedgerEnv
    ) -> None:
        env.submit(f"task-{FIRST}", instructions="of somebody else")
        schedules.wait_for(FIRST)
        fired = schedules.fire(FIRST)
        assert fired.done and fired.tasks == ()
        assert schedules.state().next_at == FIRST + HOUR

    def test_what_asks_for_nothing_is_skipped_with_its_reason(self, schedules: Schedules) -> None:
        schedules.wait_for(FIRST)
        occurrences = (ScheduledOccurrence(FIRST, reason="no work"),)
        firing = ScheduleFiring("nightly", FIRST, occurrences, FIRST + HOUR)
        assert schedules.ledger.fire(firing).done
        assert (schedules.state().skipped, schedules.state().note) == (1, "no work")
        schedules.wait_for(FIRST + HOUR)
        firing = ScheduleFiring("nightly", FIRST + HOUR, (ScheduledOccurrence(FIRST + HOUR),), 0)
        assert schedules.ledger.fire(firing).done
        assert (schedules.state().skipped, schedules.state().note) == (2, "nothing to do")
        assert schedules.state().wake_at == 0

    def test_missed_ones_are_counted(self, schedules: Schedules) -> None:
        schedules.wait_for(FIRST + 5 * HOUR)
        schedules.fire(FIRST + 5 * HOUR, missed=5)
        state = schedules.state()
        assert (state.fired, state.skipped, state.note) == (1, 5, "5 were missed")
        schedules.wait_for(FIRST + 9 * HOUR)
        schedules.fire(missed=4, next_at=FIRST + 10 * HOUR)
        assert schedules.state().last_at == FIRST + 6 * HOUR


class TestOverlap:
    def test_it_is_skipped_while_an_earlier_one_is_not_over(
        self, schedules: Schedules, env: LedgerEnv
    ) -> None:
        schedules.wait_for(FIRST)
        schedules.fire(FIRST)
        schedules.wait_for(FIRST + HOUR)
        assert schedules.fire(FIRST + HOUR).tasks == ()
        state = schedules.state()
        assert (state.fired, state.skipped) == (1, 1)
        assert state.note == f"task-{FIRST} of an earlier occurrence is not over"
        env.ledger.cancel(env.key(f"task-{FIRST}"), "ann")
        schedules.wait_for(FIRST + 2 * HOUR)
        assert len(schedules.fire(FIRST + 2 * HOUR).tasks) == 1
        assert schedules.state().open_tasks == (f"task-{FIRST + 2 * HOUR}",)
        assert schedules.state().note == ""

    def test_or_waits_for_the_earlier_ones(self, schedules: Schedules, env: LedgerEnv) -> None:
        schedules.wait_for(FIRST + HOUR)
        first, second = schedules.fire(FIRST, FIRST + HOUR, overlap=Overlap.QUEUE).tasks
        assert (first.state, second.state) == (State.READY, State.PENDING)
        schedules.wait_for(FIRST + 2 * HOUR)
        (third,) = schedules.fire(FIRST + 2 * HOUR, overlap=Overlap.QUEUE).tasks
        assert third.spec.after == (second.id,)
        # However the earlier one ends, the next one runs.
        env.ledger.cancel(env.key(first.id), "ann")
        assert env.ledger.queries.by_id([second.id])[second.id].state is State.READY

    def test_but_not_in_a_queue_without_end(self, schedules: Schedules, env: LedgerEnv) -> None:
        moments = [FIRST + n * HOUR for n in range(QUEUED_MAX + 2)]
        schedules.wait_for(moments[-1])
        schedules.fire(*moments, overlap=Overlap.QUEUE)
        state = schedules.state()
        assert (state.fired, state.skipped) == (QUEUED_MAX, 2)
        assert state.note == f"{QUEUED_MAX} earlier occurrences wait already"


class TestPeople:
    def test_a_paused_one_does_not_wake_and_goes_on_where_it_was(
        self, schedules: Schedules, env: LedgerEnv
    ) -> None:
        assert schedules.ledger.change("nightly", ScheduleChange.PAUSE).paused
        assert schedules.ledger.waking(9) == []
        resumed = schedules.ledger.change("nightly", ScheduleChange.RESUME)
        assert resumed.wake_at == resumed.next_at == FIRST
        assert env.rung.count(SCHEDULES_TOPIC) == 2
        schedules.ledger.change("nightly", ScheduleChange.RESUME)
        assert env.rung.count(SCHEDULES_TOPIC) == 2

    def test_one_that_is_asked_for_runs_once_and_keeps_its_times(
        self, schedules: Schedules
    ) -> None:
        schedules.ledger.change("nightly", ScheduleChange.PAUSE)
        asked = schedules.ledger.change("nightly", ScheduleChange.RUN)
        assert asked.is_asked_for and asked.wake_at == NOW
        assert [each.name for each in schedules.ledger.waking(9)] == ["nightly"]
        assert len(schedules.fire(NOW, next_at=0).tasks) == 1
        state = schedules.state()
        assert (state.next_at, state.last_at, state.ran_at, state.wake_at) == (FIRST, 0, NOW, 0)
        # The same request again is the same run; an earlier one is forgotten, a later one is not.
        assert not schedules.ledger.change("nightly", ScheduleChange.RUN, NOW).is_asked_for
        assert not schedules.ledger.change("nightly", ScheduleChange.RUN, NOW - 5).is_asked_for
        schedules.wait_for(NOW + 5)
        assert schedules.ledger.change("nightly", ScheduleChange.RUN, FIRST).asked_at == NOW + 5

    def test_one_whose_clock_is_a_little_ahead_is_the_same_request_a_moment_later(
        self, schedules: Schedules
    ) -> None:
        ahead = NOW + 3
        asked = schedules.ledger.change("nightly", ScheduleChange.RUN, ahead)
        assert (asked.asked_at, asked.wake_at) == (ahead, ahead)
        with pytest.raises(Refused) as early:
            schedules.fire(ahead, next_at=0)
        assert early.value.code == "early"
        schedules.wait_for(ahead)
        assert schedules.ledger.change("nightly", ScheduleChange.RUN, ahead) == asked
        assert len(schedules.fire(ahead, next_at=0).tasks) == 1
        schedules.wait_for(ahead + 1)
        assert not schedules.ledger.change("nightly", ScheduleChange.RUN, ahead).is_asked_for

    def test_it_runs_though_an_earlier_one_is_not_over(self, schedules: Schedules) -> None:
        schedules.wait_for(FIRST)
        schedules.fire(FIRST)
        schedules.wait_for(FIRST + 5)
        schedules.ledger.change("nightly", ScheduleChange.RUN)
        (task,) = schedules.fire(FIRST + 5, overlap=Overlap.QUEUE).tasks
        assert task.state is State.READY
        assert len(schedules.state().open_tasks) == 2

    def test_a_request_is_not_mistaken_for_an_occurrence_at_the_same_moment(
        self, schedules: Schedules
    ) -> None:
        schedules.wait_for(FIRST)
        schedules.ledger.change("nightly", ScheduleChange.RUN)
        assert schedules.state().wake_at == FIRST
        assert not schedules.fire(FIRST, asked=False).done
        asked = schedules.firing(FIRST)
        assert schedules.ledger.fire(asked).done
        assert schedules.state().wake_at == FIRST
        assert not schedules.ledger.fire(asked).done

    def test_a_broken_or_unknown_one_cannot_be_asked_for(self, schedules: Schedules) -> None:
        schedules.declare(problem="nightly.md, line 2: no.")
        with pytest.raises(Refused, match="line 2"):
            schedules.ledger.change("nightly", ScheduleChange.RUN)
        with pytest.raises(NotFound, match="no schedule 'nobody'"):
            schedules.ledger.change("nobody", ScheduleChange.PAUSE)


class TestDeclaring:
    def test_the_same_rule_keeps_its_times_and_another_begins_anew(
        self, schedules: Schedules
    ) -> None:
        assert schedules.declare() == 0
        assert schedules.declare(digest="b", next_at=FIRST + 9) == 1
        assert schedules.state().next_at == FIRST
        assert schedules.declare(rule="every day", next_at=FIRST + 9, since_at=5) == 1
        assert (schedules.state().wake_at, schedules.state().since_at) == (FIRST + 9, 5)

    def test_a_broken_one_sleeps_and_catches_up_when_it_is_mended(
        self, schedules: Schedules
    ) -> None:
        schedules.declare(rule="", next_at=0, problem="broken")
        assert (schedules.state().wake_at, schedules.state().next_at) == (0, FIRST)
        schedules.declare()
        assert (schedules.state().wake_at, schedules.state().problem) == (FIRST, "")

    def test_what_is_gone_is_dropped_and_the_kinds_are_told_apart(
        self, schedules: Schedules
    ) -> None:
        schedules.declare("agent:ceo")
        assert [each.kind for each in schedules.ledger.every()] == ["agent", ""]
        assert schedules.ledger.declare((), ["nightly", "nobody"]) == 1
        assert [each.name for each in schedules.ledger.every()] == ["agent:ceo"]
