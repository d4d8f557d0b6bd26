"""Wakes by the clock: what profiles say under `wake`, as rows among the schedules.

A row is called `agent:NAME`. When it is due it is first asked whether there is anything to do; if
not, the occurrence is skipped, and counted as such. Outside working hours it waits until they
begin. What was missed meanwhile is one wake.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.schedule_values import (
    DeclaredSchedule,
    ScheduledOccurrence,
    ScheduleFiring,
    ScheduleState,
)
from agentq.core.access import SYSTEM
from agentq.core.errors import Invalid
from agentq.core.values import replace
from agentq.organisation.waking import KIND, wake_of
from agentq.protocol.occurrences import Timing, next_after, read_cron
from agentq.schedules.firing import PlannedFiring
from agentq.settings.profile_changes import ProfileFolder

if TYPE_CHECKING:
    from agentq.contracts.service import Service
    from agentq.settings.profiles import Profile

#: How often rows are held against files that look the same.
_COMPARE_SECONDS = 60.0
#: How many are declared in one transaction.
_BATCH = 500


class AgentWakes:
    """The wakes of the agents of one folder, as a source of schedules."""

    kind = KIND

    def __init__(self, folder: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.folder = ProfileFolder(folder)
        self._monotonic = monotonic
        self._compare_at = 0.0

    def sync(self, service: Service) -> int:
        """Bring the rows in step with the profiles; how many changed."""
        change = self.folder.look()
        is_news = change.added or change.changed or change.removed
        if not is_news and self._monotonic() < self._compare_at:
            return 0
        self._compare_at = self._monotonic() + _COMPARE_SECONDS
        rows = {each.name: each for each in service.schedules(SYSTEM) if each.kind == self.kind}
        now = service.now()
        wanted = {
            row_name(profile): self._declared(profile, now)
            for profile in self.folder.profiles.values()
            if profile.wake.is_timed
        }
        declared = [each for name, each in wanted.items() if _differs(rows.get(name), each)]
        dropped = [name for name in rows if name not in wanted]
        changed = 0
        for start in range(0, len(declared), _BATCH):
            changed += service.declare_schedules(SYSTEM, declared[start : start + _BATCH])
        if dropped:
            changed += service.declare_schedules(SYSTEM, (), dropped)
        return changed

    def _declared(self, profile: Profile, now: int) -> DeclaredSchedule:
        name = row_name(profile)
        try:
            timing = timing_of(profile)
        except Invalid as error:
            return DeclaredSchedule(name, digest="", problem=error.cause)
        since = now // 1000 * 1000
        return DeclaredSchedule(name, timing.rule, since, next_after(timing, now, since), "ok")

    def firing(self, service: Service, state: ScheduleState, now: int) -> PlannedFiring | None:
        """What a wake that is due comes to: a task, or a skip with the reason."""
        profile = self.folder.refreshed(state.name.removeprefix(f"{self.kind}:"))
        if profile is None or not profile.wake.is_timed:
            service.declare_schedules(SYSTEM, (), [state.name])
            return None
        timing = timing_of(profile)
        if timing.rule != state.rule:
            service.declare_schedules(SYSTEM, [self._declared(profile, now)])
            return None
        asked = state.is_asked_for
        plan = ScheduleFiring(state.name, state.wake_at, asked=asked)
        if not asked and not profile.hours.is_open(now):
            return PlannedFiring(replace(plan, next_at=profile.hours.next_open(now)), {})
        at = state.asked_at if asked else state.next_at
        found = wake_of(
            service, SYSTEM, profile, self.folder.profiles, now,
            always=profile.wake.always or asked,
        )  # fmt: skip
        specs = () if found.spec is None else (found.spec,)
        occurrence = ScheduledOccurrence(at, specs, found.reason)
        next_at = state.next_at if asked else next_after(timing, now, state.since_at)
        return PlannedFiring(replace(plan, occurrences=(occurrence,), next_at=next_at), {})


def row_name(profile: Profile) -> str:
    """What the schedule of an agent's wakes is called."""
    return f"{KIND}:{profile.name}"


def timing_of(profile: Profile) -> Timing:
    """When an agent is woken by the clock; `Invalid`, with file and line, if that cannot be."""
    wake = profile.wake
    if not wake.cron:
        return Timing(every_ms=wake.every_seconds * 1000)
    try:
        return Timing(cron=read_cron(wake.cron), zone=profile.zone)
    except Invalid as error:
        raise Invalid(f"{profile.where('wake')}: {error.cause}.", error.remedy) from error


def _differs(row: ScheduleState | None, said: DeclaredSchedule) -> bool:
    if row is None or row.problem != said.problem:
        return True
    return bool(said.rule) and row.rule != said.rule
