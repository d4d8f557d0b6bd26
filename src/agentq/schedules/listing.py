"""Schedules as people look at them: rows of the ledger and files beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.contracts.schedule_values import ScheduleChange, ScheduleState
from agentq.core.access import SYSTEM
from agentq.core.errors import AgentqError, NotFound
from agentq.protocol.occurrences import next_after, occurrences
from agentq.schedules.folder import doubles, read_schedule, scan
from agentq.schedules.opening import file_schedules
from agentq.schedules.sources import same_name
from agentq.settings.addresses import is_server

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.core.task import Task


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule as it is shown; `is_known` says whether there is a row of it yet."""

    name: str
    state: ScheduleState
    zone: str = "UTC"
    rule: str = ""
    next_at: int = 0
    problem: str = ""
    description: str = ""
    is_known: bool = True


class ScheduleListing:
    """The schedules of one installation. Where its ledger is elsewhere, so are their files."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._files = file_schedules(client.installation.settings)
        self._is_here = not is_server(client.installation.settings.url)

    @property
    def folder(self) -> Path:
        return self._files.folder

    def names(self) -> list[str]:
        """The names of the files that are here."""
        return sorted(scan(self.folder))

    def every(self) -> list[ScheduleView]:
        """Every schedule that there is a file or a row of, by name."""
        states = {each.name: each for each in self._client.service.schedules(self._client.who)}
        files = self.names() if self._is_here else []
        return [self._view(name, states.get(name)) for name in sorted({*files, *states})]

    def _view(self, name: str, state: ScheduleState | None) -> ScheduleView:
        known = state or ScheduleState(name)
        try:
            is_file = self._is_here and not known.kind
            schedule = read_schedule(self.folder, name) if is_file else None
        except AgentqError as error:
            return ScheduleView(name, known, problem=error.cause, is_known=state is not None)
        if schedule is None:
            return ScheduleView(name, known, "UTC", known.rule, known.next_at, known.problem)
        next_at = known.next_at
        if schedule.timing.rule != known.rule:
            now = self._client.service.now()
            next_at = next_after(schedule.timing, now, now // 1000 * 1000)
        return ScheduleView(
            name, known, schedule.timing.zone, schedule.timing.rule, next_at, known.problem,
            schedule.description, state is not None,
        )  # fmt: skip

    def problems(self, names: Sequence[str]) -> list[tuple[str, AgentqError]]:
        """What keeps these from running, each with its file and line."""
        found: list[tuple[str, AgentqError]] = []
        twice = doubles(self.names())
        for name in names:
            try:
                self._files.check(read_schedule(self.folder, name), self._client.service)
                if name in twice:
                    raise same_name(self.folder / f"{name}.md", twice[name])
            except AgentqError as error:
                found.append((name, error))
        return found

    def upcoming(self, name: str, count: int) -> tuple[str, list[int]]:
        """The zone of a schedule, and when it occurs next."""
        schedule = read_schedule(self.folder, name)
        now = self._client.service.now()
        row = next((each for each in self._states() if each.name == schedule.name), None)
        same = row is not None and row.rule == schedule.timing.rule
        since = row.since_at if row is not None and same else now // 1000 * 1000
        return schedule.timing.zone, list(islice(occurrences(schedule.timing, now, since), count))

    def pause(self, name: str) -> ScheduleView:
        return self._change(name, ScheduleChange.PAUSE)

    def resume(self, name: str) -> ScheduleView:
        return self._change(name, ScheduleChange.RESUME)

    def run(self, name: str) -> tuple[ScheduleView, tuple[Task, ...]]:
        """Have it run once now; the tasks, if that was done here."""
        view = self._change(name, ScheduleChange.RUN)
        if not self._is_here or view.state.kind or not view.state.is_asked_for:
            return view, ()  # whoever knows how to run it does so soon
        service = self._client.service
        planned = self._files.firing(service, view.state, service.now())
        if planned is None:
            return view, ()
        fired = service.fire_schedule(SYSTEM, planned.firing, planned.contexts)
        return self._view(view.name, fired.state or view.state), fired.tasks

    def _change(self, name: str, change: ScheduleChange) -> ScheduleView:
        client, name = self._client, name.removesuffix(".md")
        if self._is_here:
            self._files.sync(client.service)
        asked_at = client.service.now() if change is ScheduleChange.RUN else 0
        try:
            state = client.service.change_schedule(client.who, name, change, asked_at)
        except NotFound:
            if self._is_here:
                read_schedule(self.folder, name)  # says what there is instead
            raise
        return self._view(name, state)

    def _states(self) -> list[ScheduleState]:
        return self._client.service.schedules(self._client.who)
