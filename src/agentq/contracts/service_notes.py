"""The verbs of the service interface that leave something with a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.core.access import Principal
    from agentq.core.task import Task


class Notes(Protocol):
    """Notes, messages and marks."""

    def mark_applied(
        self, who: Principal, ref: str, commit: str, branch: str = "", *, if_version: int = 0
    ) -> Task:
        """Say that the work of a complete task is in a branch now, as this commit."""

    def comment(
        self,
        who: Principal,
        ref: str,
        text: str,
        epoch: int = 0,
        denied: int = 0,
        replaces: bool = False,
        cause: str = "",
    ) -> Task:
        """Leave a note. With an `epoch` the holder of that attempt speaks, and is fenced. With
        `denied` its worker says how many tool calls were not allowed, and the text which ones;
        `replaces`: the text tells also of those that the attempt's note before has told of. The
        same words of one author for one `cause` are noted once, while the task stands so."""

    def tell(self, who: Principal, ref: str, message: str) -> Task:
        """Send a message to the agent of a task: to the one that runs, if its holder takes messages
        (`core.agent_messages.is_told_live`), and into the prompt of every attempt that comes."""
