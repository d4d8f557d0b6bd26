"""A worker in a test: an installation in a folder, a role, and something that works for it."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentq.client.ancestry import mark_of
from agentq.client.client import Client
from agentq.client.queue import Queue
from agentq.contracts.agent import AttemptResult
from agentq.core import access
from agentq.core.values import replace
from agentq.remote.installation import RemoteInstallation
from agentq.settings import Settings
from agentq.settings.reloading import RoleSettingsFile
from agentq.settings.roles import RoleSettings, checked
from agentq.wiring import WiredInstallation, open_installation
from agentq.worker.attempt import Attempt
from agentq.worker.environment import secrets_in
from agentq.worker.live_settings import LiveSettings
from agentq.worker.processes import Supervisor
from agentq.worker.terminal_view import Lines
from agentq.worker.worker import Worker
from agentq.worker.worker_context import WorkerContext
from agentq.worker.workspaces import Workspaces
from tests.ways import BESIDE, REMOTE, served

ROLE = "worker"
PYTHON = sys.executable


def script(*lines: str) -> tuple[str, ...]:
    """A program of a few lines of Python."""
    return (PYTHON, "-c", "\n".join(("import json, os, signal, sys, time", *lines)))


@dataclass
class Fleet:
    """One folder with a ledger, and workers of one role on it."""

    folder: Path
    queue: Queue
    environment: Mapping[str, str]
    output: io.StringIO
    verdicts: list[AttemptResult]
    #: The installation as its workers reach it, if not as the queue does.
    reached: WiredInstallation | None = None

    @property
    def installation(self) -> WiredInstallation:
        return self.reached or self.queue._client.installation

    def settings(self, **fields: Any) -> RoleSettings:
        return checked(replace(RoleSettings(lease=30, grace=1), **fields), "the test")

    @contextmanager
    def worker(
        self,
        settings: RoleSettings,
        *,
        tasks: int = 0,
        grace: float = 5,
        file: RoleSettingsFile | None = None,
        role: str = ROLE,
    ) -> Iterator[Worker]:
        """A worker in a thread of its own; ended on the way out."""
        lines = Lines(self.output, steps=True)

        def ended(attempt: Attempt, verdict: AttemptResult) -> None:
            self.verdicts.append(verdict)
            lines.ended(attempt, verdict)

        who = access.worker(self.queue._client.holder, role)
        client = Client(self.installation, who)
        mark = mark_of(self.installation.settings, client.queries.ledger_id(who))
        with Supervisor(mark) as supervisor:
            shared = WorkerContext(
                client, supervisor, Workspaces(self.folder / "workspaces"), role, settings,
                client.installation.agent(settings.agent_name), self.environment, lines.show_step,
                secrets_in(self.environment),
            )  # fmt: skip
            live = LiveSettings(file) if file is not None else None
            worker = Worker(
                shared, ended, grace=grace, limit=tasks, live=live, started=lines.started
            )
            thread = threading.Thread(target=worker.run, name="the worker")
            thread.start()
            try:
                yield worker
                if tasks:
                    thread.join(60)
                    assert not thread.is_alive(), "the worker has not done its tasks"
            finally:
                worker.hurry()
                thread.join(30)
                client.heartbeats.close()

    def work(self, tasks: int = 1, role: str = ROLE, **fields: Any) -> AttemptResult:
        """Let a worker do so many tasks; the last verdict."""
        with self.worker(self.settings(**fields), tasks=tasks, role=role):
            pass
        return self.verdicts[-1]


@contextmanager
def open_fleet(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    broker: str = "",
    url: str = "",
    way: str = BESIDE,
) -> Iterator[Fleet]:
    url = url or f"sqlite:///{folder}/ledger.db"
    settings = Settings(url, str(folder / "files"), "the test", broker=broker)
    surroundings = {"PATH": os.environ["PATH"], "HOME": str(folder)} | dict(environment or {})

    def made_of(reached: WiredInstallation, workers: WiredInstallation | None = None) -> Fleet:
        queue = stack.enter_context(Queue(installation=reached))
        return Fleet(folder, queue, surroundings, io.StringIO(), [], workers)

    with ExitStack() as stack:
        installation = open_installation(settings, create=True)
        if way != REMOTE:
            yield made_of(installation)
            return
        stack.callback(installation.close)
        elsewhere = stack.enter_context(served(settings))
        # The queue is that of a person; workers have a token of their own and nothing else.
        home = str(folder / "elsewhere")
        workers = RemoteInstallation(elsewhere.settings(home, work=True))
        stack.callback(workers.close)
        yield made_of(RemoteInstallation(elsewhere.settings(home)), workers)
