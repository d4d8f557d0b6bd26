"""Settings that change under a running worker: the next attempt works by them.

An attempt that runs keeps those it began with. The change is in the worker's log, and in the log of
the task whose attempt is the first to work by it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentq.core.errors import AgentqError, Stale, Unavailable
from agentq.core.values import replace
from agentq.settings.reloading import settings_digest

if TYPE_CHECKING:
    from agentq.settings.roles import RoleSettings
    from agentq.worker.attempt import Attempt
    from agentq.worker.worker_context import WorkerContext

log = logging.getLogger("agentq.worker")


class SettingsSource(Protocol):
    """A file that says how a role works: a table of agentq.toml, or an agent's profile."""

    path: Path | None
    settings: RoleSettings
    #: Why not all of the file is used; "" if it is.
    problem: str

    def refresh(self) -> tuple[str, ...]:
        """Look at the file; return the names of the settings that differ now."""


class LiveSettings:
    """What a worker works by, as its settings file says now."""

    def __init__(self, file: SettingsSource) -> None:
        self._file = file
        self._problem = ""

    def refreshed(self, shared: WorkerContext) -> WorkerContext:
        """Return the context for the next attempts: the same one unless the settings changed."""
        changed = self._file.refresh()
        agent = shared.agent
        try:
            if changed and self._file.settings.agent_name != shared.settings.agent_name:
                agent = shared.queue.installation.agent(self._file.settings.agent_name)
        except AgentqError as error:  # there is no such agent
            self._file.settings, self._file.problem, changed = shared.settings, str(error), ()
        self._note_problem()
        if not changed:
            return shared
        note = f"The settings of {shared.role} have changed: {', '.join(changed)}"
        note += f" (digest {settings_digest(self._file.settings)})."
        log.warning("%s The next attempt works by them. They are in %s.", note, self._file.path)
        return replace(shared, settings=self._file.settings, agent=agent, changes=[note])

    def _note_problem(self) -> None:
        if self._file.problem and self._file.problem != self._problem:
            log.warning("the settings were changed, and not all of that is used: %s",
                        self._file.problem)  # fmt: skip
        self._problem = self._file.problem


def note_change(attempt: Attempt) -> None:
    """Leave a comment on the first task that is worked on by changed settings."""
    changes = attempt.shared.changes
    if not changes:
        return
    note = changes.pop(0)
    try:
        attempt.claim.comment(note)
    except Stale:
        raise
    except Unavailable as error:
        log.warning("%s: %s That was not recorded: %s", attempt.task.id, note, error)
