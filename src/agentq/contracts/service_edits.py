"""The part of the service interface that changes what is asked for, or asks for it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentq.core.access import Principal
    from agentq.core.task import Priority, Task


class Edits(Protocol):
    """Edits of tasks that wait, and reruns of tasks that are over."""

    def edit(
        self,
        who: Principal,
        ref: str,
        to: str = "",
        title: str = "",
        priority: Priority | None = None,
        instructions: str = "",
        context: bytes = b"",
        *,
        if_version: int = 0,
    ) -> Task:
        """Change what a task asks for that nobody has begun; what is left out stays as it is.

        `context` is the long text that the instructions are the first line of; without one the
        instructions are all. An approval is taken back: it was for what the task said before. The
        idempotency key goes on to stand for what was submitted."""

    def rerun(
        self,
        who: Principal,
        ref: str,
        new_id: str,
        to: str = "",
        title: str = "",
        priority: Priority | None = None,
        instructions: str = "",
        context: bytes = b"",
    ) -> Task:
        """Submit what a finished task asked for once more, as a new task of this id, with what is
        given in place of what it said. It has no idempotency key, needs its own approval, and
        its label `rerun_of` names the old one."""
