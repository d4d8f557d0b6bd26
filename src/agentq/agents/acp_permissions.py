"""What an agent that asks by the Agent Client Protocol is answered, by the word of its role.

Only what it asks can be answered: an agent that does things unasked is not held by this. A request
says what kind of tool call it is about, which files it touches, and for a command how it reads.
Where it does not say what it must for a yes, the answer is no.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentq.agents.acp_files import Outside, inside
from agentq.agents.permissions import LAUNCHER, Granted, launcher_commands, sentences
from agentq.contracts.agent import Job
from agentq.contracts.permissions import Permissions
from agentq.core.reserved_names import TASK_FOLDER

_LOOKING = ("read", "search", "think")
_EDITING = ("edit", "delete", "move")
#: What makes more of a command than it begins with.
_SHELL_SIGNS = frozenset(";|&<>$`\\\n()")


def granted(job: Job) -> Granted:
    """What the word of a role comes to, for people: the bridge holds the agent to it."""
    if job.permissions is None:
        return Granted(enforced_by="agentq's answers to what the agent asks")
    may, may_not = sentences(job)
    return Granted(may=may, may_not=may_not,
                   enforced_by="agentq's answers to what the agent asks")  # fmt: skip


class Answers:
    """Answers the questions of one attempt."""

    def __init__(self, word: Permissions, workspace: Path, commands: Sequence[str]) -> None:
        self._word = word
        self._workspace = workspace
        self._launcher = launcher_commands(word)
        self._commands = commands

    def may_call(self, kind: str, files: Sequence[str], command: str) -> bool:
        """Whether a tool call is allowed that is of this kind, touches these files, and runs this
        command."""
        if self._word is Permissions.FULL:
            return True
        if kind in _LOOKING:
            return all(self._is_inside(file) for file in files)
        if kind in _EDITING:
            return bool(files) and all(self.may_write(file) for file in files)
        return kind == "execute" and self._may_run(command.strip())

    def may_write(self, file: str) -> bool:
        """Whether this file may be written, by the agent or for it."""
        if self._word is Permissions.FULL:
            return True
        try:
            place = inside(self._workspace, file).relative_to(self._workspace.resolve())
        except (Outside, OSError):
            return False
        if str(place) in (LAUNCHER, TASK_FOLDER):
            return False  # whoever could replace the launcher could run anything
        return self._word is not Permissions.READ or place.parts[0] == TASK_FOLDER

    def _is_inside(self, file: str) -> bool:
        try:
            inside(self._workspace, file)
        except (Outside, OSError):
            return False
        return True

    def _may_run(self, command: str) -> bool:
        if self._word is Permissions.RUN and command in self._commands:
            return True
        if not command or _SHELL_SIGNS & set(command):
            return False
        begins = list(self._launcher)
        if self._word is Permissions.RUN:
            begins += [each.removesuffix(" *") for each in self._commands if each.endswith(" *")]
        return any(command == start or command.startswith(f"{start} ") for start in begins)
