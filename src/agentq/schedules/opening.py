"""The schedules of an installation, by its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError
from agentq.schedules.sources import FileSchedules
from agentq.settings import FILE_NAME, read_file
from agentq.settings.profiles import all_roles

if TYPE_CHECKING:
    from agentq.settings import Settings

#: How long what settings say of roles is believed, of a role that is there and of one that is not.
_BELIEVED_SECONDS, _DOUBTED_SECONDS = 60.0, 5.0


def schedules_folder(settings: Settings) -> Path:
    """Where schedule files are: beside agentq.toml, else below the folder at hand."""
    return settings.workflows_folder.parent / "schedules"


def file_schedules(settings: Settings) -> FileSchedules:
    """The schedules that are files of their own."""
    roles = RolesOfSettings(settings)
    return FileSchedules(schedules_folder(settings), settings.workflows_folder, roles)


class RolesOfSettings:
    """The roles of the settings and of agents' profiles, as they are now; None if there are none.

    A role that was there is believed in for a minute: thousands of profiles are not read again for
    each schedule that is due.
    """

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._roles: frozenset[str] = frozenset()
        self._monotonic = monotonic
        self._read_at = -_BELIEVED_SECONDS

    def __call__(self, role: str) -> Collection[str] | None:
        believed = _BELIEVED_SECONDS if role in self._roles else _DOUBTED_SECONDS
        if self._monotonic() - self._read_at >= believed:
            self._read_at = self._monotonic()
            self._roles = frozenset(self._read())
        return self._roles or None

    def _read(self) -> Collection[str]:
        settings = self._settings
        try:
            file = Path(settings.source)
            if file.name == FILE_NAME:
                settings = read_file(file)
            return all_roles(settings)
        except AgentqError:
            return self._roles  # those who use the settings say what is wrong
