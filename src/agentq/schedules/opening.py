"""The schedules of an installation, by its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError
from agentq.schedules.sources import FileSchedules
from agentq.settings import FILE_NAME, read_file

if TYPE_CHECKING:
    from agentq.settings import Settings

#: How long what settings say of roles is believed.
_BELIEVED_SECONDS = 5.0


def schedules_folder(settings: Settings) -> Path:
    """Where schedule files are: beside agentq.toml, else below the folder at hand."""
    return settings.workflows_folder.parent / "schedules"


def file_schedules(settings: Settings) -> FileSchedules:
    """The schedules that are files of their own."""
    roles = RolesOfSettings(settings)
    return FileSchedules(schedules_folder(settings), settings.workflows_folder, roles)


class RolesOfSettings:
    """The roles that settings name, as they are now; None where they name none at all."""

    def __init__(self, settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> None:
        file = Path(settings.source)
        self._file = file if file.name == FILE_NAME else None
        self._roles = frozenset(settings.workers)
        self._monotonic = monotonic
        self._look_at = monotonic() + _BELIEVED_SECONDS

    def __call__(self) -> Collection[str] | None:
        if self._file is not None and self._monotonic() >= self._look_at:
            self._look_at = self._monotonic() + _BELIEVED_SECONDS
            try:
                self._roles = frozenset(read_file(self._file).workers)
            except AgentqError:
                return self._roles or None  # those who use the settings say what is wrong
        return self._roles or None
