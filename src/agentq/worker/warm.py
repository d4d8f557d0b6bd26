"""A slot whose agent stays: one process serves task after task until it is replaced.

It is replaced after so many tasks, tokens or hours, and whenever an attempt did not end in order:
what a confused process remembers must never reach the next task.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from agentq.agents.warm import Rotation

if TYPE_CHECKING:
    from agentq.contracts.agent import Agent, Job
    from agentq.worker.attempt import Attempt
    from agentq.worker.processes import AgentProcess
    from agentq.worker.worker_context import WorkerContext


def warm_slot(shared: WorkerContext) -> WarmSlot | None:
    """A slot for an agent that stays; None if these settings name one that does not."""
    role = shared.settings
    if not shared.agent.warm:
        return None
    rotation = Rotation(role.rotate_tasks, role.rotate_tokens, role.rotate_hours)
    return WarmSlot(rotation, shared.queue.installation.agent(role.agent_name))


class WarmSlot:
    """The process of one slot."""

    def __init__(self, rotation: Rotation, agent: Agent) -> None:
        self._rotation = rotation
        #: An adapter of its own: it keeps count of what this one process has said.
        self.agent = agent
        self._child: AgentProcess | None = None
        self._started = 0.0
        self._tasks = 0
        self._tokens = 0

    def child_for(self, attempt: Attempt, job: Job) -> AgentProcess:
        """The process for the next task: the one that is there, or a fresh one."""
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self._child = attempt.start(self.agent.launch(job), job)
            self._started, self._tasks, self._tokens = time.monotonic(), 0, 0
        self._tasks += 1
        return self._child

    def ended(self, *, in_order: bool, tokens: int) -> str:
        """A task is over. Says why the process was replaced, if it was."""
        self._tokens += tokens
        if self._child is None:
            return ""
        age = time.monotonic() - self._started
        why = "the attempt did not end in order"
        if in_order:
            why = self._rotation.due(self._tasks, self._tokens, age)
        if self._child.poll() is not None:
            why = why or "it ended"
        if why:
            self.close()
        return why

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait_gone(10)
            child.close()
