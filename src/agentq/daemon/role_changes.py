"""Roles that come and go in agentq.toml while `agentq up` runs, and agents that have profiles.

Only the file that this process was started with is looked at, never one of a workspace. An agent
that runs without a sandbox can write that file, and must not give itself a worker of its own
making: once a role without one has run here, new roles wait for the next start. All agents with
profiles have one worker, which follows their files by the same rule (`settings.profile_changes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from agentq.core.errors import AgentqError
from agentq.daemon.loop import log
from agentq.daemon.workers import ALL_AGENTS
from agentq.settings import read_file
from agentq.settings.profiles import profiles
from agentq.settings.reloading import file_signature
from agentq.settings.roles import RoleSettings


class RoleChange(NamedTuple):
    """Roles that get a worker from now on, and roles that get none any more."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


NO_CHANGE = RoleChange()


def started_roles(workers: Mapping[str, RoleSettings]) -> list[str]:
    """The roles that say who works for them: each gets a worker."""
    return [role for role, each in workers.items() if each.agent or each.command]


def has_agents(folder: Path) -> bool:
    """Whether an agent has a profile there by which it can work."""
    found = profiles(folder).values() if folder.is_dir() else ()
    return any(each.settings.agent or each.settings.command for each in found)


class RoleChanges:
    """Compares the roles that have workers with those in the file; one `stat` if it is the same."""

    def __init__(
        self, source: str, workers: Mapping[str, RoleSettings], agents: Path | None = None
    ) -> None:
        """`source` is where the settings are from, `workers` the roles in them, and `agents` the
        folder of profiles as long as no worker was started for it."""
        self._agents = agents
        self._path = Path(source) if source.startswith("/") else None
        self._running = started_roles(workers)
        self._seen = file_signature(self._path)
        #: Roles whose agents could have written the file.
        self._unconfined = _unconfined(workers)
        #: Roles that were gone when the file was last read: a file that is being written may be
        #: read half, so that they must be gone at the next look too.
        self._missing: tuple[str, ...] = ()

    def look(self) -> RoleChange:
        """Return what has changed since the last look. An unreadable file changes nothing."""
        found = self._look_at_roles()
        if self._agents is None or not has_agents(self._agents):
            return found
        self._agents = None
        return RoleChange((*found.added, *self._allowed([ALL_AGENTS])), found.removed)

    def _look_at_roles(self) -> RoleChange:
        seen = file_signature(self._path)
        if self._path is None:
            return NO_CHANGE
        if seen == self._seen:
            removed, self._missing = self._missing, ()
            self._running = [role for role in self._running if role not in removed]
            return RoleChange(removed=removed)
        self._seen, self._missing = seen, ()
        try:
            workers = read_file(self._path).workers
        except AgentqError as error:
            log.warning("up: the settings were changed, and not used: %s", error)
            return NO_CHANGE
        found = started_roles(workers)
        self._missing = tuple(role for role in self._running if role not in found)
        added = self._allowed([role for role in found if role not in self._running])
        self._running += added
        self._unconfined += [role for role in _unconfined(workers) if role in self._running]
        return RoleChange(added)

    def _allowed(self, added: list[str]) -> tuple[str, ...]:
        if added and self._unconfined:
            log.warning(
                "up: %s in %s: no worker is started before the next start of `agentq up`, as agents"
                " of %s run without a sandbox, and could have written that themselves",
                ", ".join(added), self._path, self._unconfined[0],
            )  # fmt: skip
            return ()
        return tuple(added)


def _unconfined(workers: Mapping[str, RoleSettings]) -> list[str]:
    return [role for role in started_roles(workers) if workers[role].sandbox == "none"]
