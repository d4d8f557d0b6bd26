"""What all attempts of one worker share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentq.protocol.secret_detection import redact
from agentq.worker.internal_errors import unfailing

if TYPE_CHECKING:
    from agentq.client.client import Client
    from agentq.contracts.agent import Agent
    from agentq.contracts.service import Service
    from agentq.core.access import Principal
    from agentq.settings.roles import RoleSettings
    from agentq.worker.processes import Supervisor
    from agentq.worker.readiness import Readiness
    from agentq.worker.workspaces import Workspaces

log = logging.getLogger("agentq.worker")


@dataclass
class WorkerContext:
    """One worker: its queue, its role and what it runs agents with."""

    queue: Client
    supervisor: Supervisor
    workspaces: Workspaces
    role: str
    settings: RoleSettings
    agent: Agent
    environment: Mapping[str, str]
    show_step: Callable[[str, str, str], None]  # task id, step, what happened
    #: Values that must never be stored.
    secrets: tuple[str, ...] = ()
    #: What changed in the settings and no task's log has yet (see `live_settings`).
    changes: list[str] = field(default_factory=list)
    #: Whether the role can work here; None where nobody asks before claiming.
    readiness: Readiness | None = None

    def __post_init__(self) -> None:
        self.show_step = unfailing(self.show_step)

    def warn(self, task_id: str, step: str, note: str) -> None:
        """Say that something of an attempt went wrong without ending it."""
        # A name of a file may have bytes that no text has: handlers need not know of that.
        words = redact(note).encode("utf-8", "backslashreplace").decode()
        log.warning("%s: %s: %s", task_id, step, words)

    @property
    def service(self) -> Service:
        return self.queue.service

    @property
    def who(self) -> Principal:
        return self.queue.who

    @property
    def tool_version(self) -> str:
        """The release of the role's tool, as the last check found it; "" if it is not known."""
        return self.readiness.tool_version if self.readiness is not None else ""

    @property
    def provider(self) -> str:
        return self.settings.provider or self.agent.provider
