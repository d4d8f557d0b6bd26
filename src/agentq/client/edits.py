"""Edits of waiting tasks and reruns of finished ones, for `Client` and all above it."""

from __future__ import annotations

from typing import Any

from agentq.client.reader import QueueReader
from agentq.core.task import Priority, Task


class QueueEditor(QueueReader):
    """Changes what tasks ask for, and asks for it again."""

    def edit(self, ref: str, by: str, *, if_version: int = 0, **fields: Any) -> Task:
        """Change what a waiting task asks for, by the names of its fields."""
        from agentq.client.task_input.changes import changes_of

        changes = changes_of(fields)
        return self.service.edit(self.who.called(by), ref, *changes, if_version=if_version)

    def priority(self, ref: str, by: str, priority: Priority | str) -> Task:
        """Change how urgent a waiting task is."""
        return self.edit(ref, by, priority=priority)

    def rerun(self, ref: str, **fields: Any) -> Task:
        """Submit once more what a finished task asked for, with these fields instead of its own."""
        from agentq.client.task_input.changes import changes_of
        from agentq.client.task_input.specs import new_task_id

        return self.service.rerun(self.who, ref, new_task_id(), *changes_of(fields))
