"""Bugs on purpose about schedules: what comes early, twice, never, or by another clock."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from agentq.contracts.schedule_rows import ScheduleRow
from agentq.contracts.schedule_values import DeclaredSchedule, ScheduleFiring
from agentq.contracts.store import Changes
from agentq.core.values import replace
from agentq.ledger import schedules
from agentq.protocol import occurrences
from agentq.protocol.occurrences import CatchUp, DueOccurrences, Timing
from agentq.schedules import firing
from agentq.stores.sqlite.transaction import SqliteTx
from tests.simulation.planted import breaks, nothing
from tests.simulation.schedule_world import ScheduleWorld
from tests.simulation.violation import OCCURRENCES


@breaks(OCCURRENCES, world=ScheduleWorld)
def a_schedule_comes_as_early_as_whoever_asks_believes() -> AbstractContextManager[Any]:
    return patch.object(schedules, "_check_times", nothing)


@breaks(OCCURRENCES, world=ScheduleWorld)
def a_firing_is_not_compared_with_the_row() -> AbstractContextManager[Any]:
    def any_row(row: ScheduleRow, firing: ScheduleFiring) -> bool:
        return True

    return patch.object(schedules, "_is_as_decided", any_row)


@breaks(OCCURRENCES, world=ScheduleWorld)
def tasks_are_saved_and_the_row_is_not() -> AbstractContextManager[Any]:
    real = SqliteTx.save

    def half(self: SqliteTx, changes: Changes) -> None:
        real(self, replace(changes, schedules=()) if changes.new else changes)

    return patch.object(SqliteTx, "save", half)


@breaks(OCCURRENCES, world=ScheduleWorld)
def a_fixed_time_comes_in_both_hours_of_the_night() -> AbstractContextManager[Any]:
    return patch.object(occurrences, "_next_fixed", occurrences._next_recurring)


@breaks(OCCURRENCES, world=ScheduleWorld)
def the_clock_of_a_zone_never_jumps() -> AbstractContextManager[Any]:
    return patch.object(occurrences, "_first_jump", nothing)


@breaks(OCCURRENCES, world=ScheduleWorld)
def what_was_missed_is_forgotten_without_a_word() -> AbstractContextManager[Any]:
    real = occurrences.due

    def forgetful(timing: Timing, *rest: Any) -> DueOccurrences:
        return replace(real(timing, *rest), missed=0)

    return patch.object(firing, "due", forgetful)


@breaks(OCCURRENCES, world=ScheduleWorld)
def a_batch_ends_the_catching_up() -> AbstractContextManager[Any]:
    real = occurrences.due

    def hasty(
        timing: Timing, next_at: int, now: int, since: int, catch_up: CatchUp
    ) -> DueOccurrences:
        found = real(timing, next_at, now, since, catch_up)
        return replace(found, next_at=occurrences.next_after(timing, now + 60_000, since))

    return patch.object(firing, "due", hasty)


@breaks(OCCURRENCES, world=ScheduleWorld)
def what_overlaps_runs_all_the_same() -> AbstractContextManager[Any]:
    return patch.object(schedules._Step, "_overlaps", lambda self: "")


@breaks(OCCURRENCES, world=ScheduleWorld)
def a_paused_schedule_goes_on() -> AbstractContextManager[Any]:
    real = schedules._woken
    return patch.object(
        schedules, "_woken", lambda row: real(row._replace(paused=0))._replace(paused=row.paused)
    )


@breaks(OCCURRENCES, world=ScheduleWorld)
def a_file_that_is_read_again_begins_anew() -> AbstractContextManager[Any]:
    real = schedules._declared

    def anew(row: ScheduleRow | None, said: DeclaredSchedule) -> ScheduleRow:
        return real(row._replace(rule="") if row and said.rule else row, said)

    return patch.object(schedules, "_declared", anew)
