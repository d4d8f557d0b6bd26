"""A folder with a ledger and one role, whose worker runs a real agent CLI against a stand-in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from agentq.client.queue import Queue
from agentq.client.task_fields import TaskOptions
from agentq.core.states import State
from agentq.core.task import Task
from agentq.core.triggers import FailAttempt, Release
from tests.eventually import eventually
from tests.real_agents.agent_clis import AgentCli
from tests.real_agents.stand_in import StandIn

ROLE = "coder"
#: A run of the slowest CLI on a busy machine, with what it tries again by itself.
ATTEMPT_SECONDS = 180.0


@dataclass
class AgentSite:
    """One installation of agentq with the home of one agent CLI."""

    folder: Path
    queue: Queue
    cli: AgentCli
    programs: Path
    #: For temporary files: short, as it holds sockets, and apart from the home, as codex makes no
    #: helpers for its sandbox in a home below the folder for temporary files.
    temporary: Path
    _settled: bool = field(default=False, init=False)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def settle(self, model: StandIn, options: Sequence[str], **role: object) -> None:
        """Write the settings of the CLI, once, and those of its role."""
        if not self._settled:
            self.home.mkdir()
            self.cli.settle(self.home, model.url)
            self._settled = True
        fields = {
            "agent": self.cli.name,
            "command": [self.cli.name, *options],
            "provider": self.cli.provider,
            "lease": "5s",
            "grace": "3s",
            "environment": sorted(self.cli.environment(model.url)),
            **role,
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        text = "\n".join((f"[roles.{ROLE}]", *lines, ""))
        (self.folder / "agentq.toml").write_text(text)

    def environment(self, model: StandIn) -> dict[str, str]:
        return {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "LANG": "C.UTF-8",
            **self.cli.environment(model.url),
        }

    @contextmanager
    def worker(self, model: StandIn) -> Iterator[subprocess.Popen[bytes]]:
        """A worker of the role; asked to end on the way out, if it still runs."""
        log = self.folder / "worker.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "agentq", "worker", ROLE, "--grace", "1s"],
                cwd=self.folder, env=self.environment(model), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output,
            )  # fmt: skip
        try:
            yield process
        except BaseException:
            sys.stderr.write(f"--- {log}\n{log.read_text(errors='replace')}")
            raise
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(60)

    def submit(self, instructions: str, **options: Unpack[TaskOptions]) -> Task:
        return self.queue.submit(to=ROLE, instructions=instructions, **options)

    def artifact(self, task: Task, name: str) -> str:
        """The text of one artifact of the task."""
        found = {each.name: each for each in self.queue.artifacts(task)}
        assert name in found, f"{name} is not among {sorted(found)}"
        return found[name].text()

    def endings(self, task: Task) -> list[str]:
        """How its attempts ended so far: the reasons of those that did not complete."""
        triggers = [entry.event.trigger for entry in self.queue.history(task)]
        return [each.reason for each in triggers if isinstance(each, (FailAttempt, Release))]

    def await_ending(self, task: Task, number: int = 1) -> str:
        """Wait until so many attempts ended without completing; the reason of the last."""
        what = f"the end of attempt {number}"
        eventually(lambda: len(self.endings(task)) >= number, ATTEMPT_SECONDS, what)
        return self.endings(task)[number - 1]

    def await_state(self, task: Task, *states: State) -> Task:
        """Wait until the task is in one of these states."""

        eventually(
            lambda: self.queue.task(task.id).state in states,
            ATTEMPT_SECONDS,
            f"one of {[each.value for each in states]}",
        )
        return self.queue.task(task.id)
