"""The slots of a worker, and where a worker stands that is one of many in its process."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentq.worker.warm import WarmSlot, warm_slot

if TYPE_CHECKING:
    from agentq.contracts.delivery import Inbox
    from agentq.worker.attempt import Attempt
    from agentq.worker.readiness import Readiness
    from agentq.worker.worker import Worker
    from agentq.worker.worker_context import WorkerContext


@dataclass
class Slot:
    """A place for one agent, and what is on it now."""

    number: int
    attempt: Attempt | None = None
    thread: threading.Thread | None = None
    warm: WarmSlot | None = None
    #: By which settings its warm agent was started.
    shared: WorkerContext | None = None

    def renew(self, shared: WorkerContext) -> None:
        """Replace an agent that stays and was started by other settings."""
        if self.shared is not shared:
            if self.warm is not None:
                self.warm.close()
            self.warm, self.shared = warm_slot(shared), shared


class AgentTogether:
    """The workers of one agent that does the tasks of several roles: its slots are for all."""

    def __init__(self) -> None:
        #: Held while one of them claims.
        self.lock = threading.Lock()
        self.workers: list[Worker] = []

    def running(self) -> int:
        return sum(len(each.running) for each in self.workers)

    def wake_others(self, worker: Worker) -> None:
        """A slot is free again: it may be another's turn."""
        for each in [*self.workers]:
            if each is not worker:
                each.look_now()


@dataclass
class WorkerPlace:
    """Where a worker stands that is one of many in its process."""

    #: What wakes it; None where it hears for itself.
    inbox: Inbox | None = None
    #: What the worker of the role before it has found out.
    readiness: Readiness | None = None
    together: AgentTogether | None = None
