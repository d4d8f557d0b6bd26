"""What a card shows beside the ledger: its agent, and whether its change waits to be applied.

The ledger knows tasks; that one changed files of a repository stands in a record of its worker
among its files. That record never changes, so it is read once for each attempt.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.client.task_changes import change_of
from agentq.core.errors import AgentqError, NotFound, Refused
from agentq.core.states import State
from agentq.core.task import Task
from agentq.settings.roles import RoleSettings, known_role

if TYPE_CHECKING:
    from agentq.client.reader import QueueReader

#: There is a checkout of the role's repository on the server's machine, or there is none.
HERE, ELSEWHERE = "here", "elsewhere"
_KNOWN_MAX = 20_000
_TRUST_SECONDS = 10.0


class ChangeMarks:
    """Marks for cards, by the settings and files of one installation. Its calls may block."""

    def __init__(self, reader: QueueReader) -> None:
        self._reader = reader
        self._known: dict[tuple[str, int, int], str] = {}
        self._roles: dict[str, tuple[float, RoleSettings | None]] = {}

    def agent_of(self, name: str) -> str:
        """What does the work of a role, such as claude; "" if the settings do not say, or if the
        role is called so anyway."""
        role = self._role(name)
        agent = role.shown_agent if role is not None else ""
        return agent if agent not in (name, "command") else ""

    def of(self, task: Task) -> str:
        """`here` or `elsewhere` for a complete task whose change nobody has applied; else ""."""
        if task.state is not State.COMPLETE or task.details.applied_at:
            return ""
        role = self._role(task.to)
        if role is None or role.workspace != "git":
            return ""
        key = task.id, task.submitted_at, task.epoch
        found = self._known.get(key)
        if found is None:
            try:
                found = self._look(task, role)
            except AgentqError:
                return ""  # its files cannot be read now: it is asked again with the next event
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[key] = found
        return found

    def _look(self, task: Task, role: RoleSettings) -> str:
        try:
            change_of(self._reader, task.id)
        except (NotFound, Refused):
            return ""
        return HERE if has_checkout(Path(role.repo)) else ELSEWHERE

    def _role(self, name: str) -> RoleSettings | None:
        """How a role works; a profile is a file, and not read for each of a thousand cards."""
        read_at, role = self._roles.get(name, (0.0, None))
        if not read_at or time.monotonic() - read_at > _TRUST_SECONDS:
            try:
                role = known_role(self._reader.installation.settings, name)
            except AgentqError:
                role = None  # its profile is being written
            self._roles[name] = time.monotonic(), role
        return role


def has_checkout(folder: Path) -> bool:
    """Whether a folder looks like one that git has checked something out in; git is not asked."""
    return any((each / ".git").exists() for each in (folder, *folder.parents))
