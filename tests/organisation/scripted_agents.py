"""The agents of the template at work: real workers and real processes, which `fake-agent` plays.

The profiles are those of `agentq init --template organisation --agent fake`, but for the script
that agents play. It is written anew for each attempt, and what stands in it follows from the seed,
the task and the number of the attempt. One attempt runs at a time: a seed tells the same twice.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from agentq.cli.init_template import EVERYBODY, profile_texts
from agentq.client.ancestry import mark_of
from agentq.client.client import Client
from agentq.core import access
from agentq.core.states import State
from agentq.core.task import Task, Usage
from agentq.organisation.dashboard import FILE_NAME
from agentq.organisation.waking import WAKE_TYPE
from agentq.settings.profiles import Profile, profiles
from agentq.settings.roles import FAKE
from agentq.testing import MemoryQueue
from agentq.worker.attempt import Attempt
from agentq.worker.places import WorkerPlace
from agentq.worker.processes import Supervisor
from agentq.worker.project import Project
from agentq.worker.proposed_roles import proposed_roles
from agentq.worker.readiness import Readiness
from agentq.worker.worker import Worker
from agentq.worker.worker_context import WorkerContext
from agentq.worker.workspaces import Workspaces

COST = Usage(usd=0.05, tokens=2_000)
GAVE_UP = "The tool gave up."


class ScriptedAgents:
    """All agents of one folder, and the attempts that they were started for."""

    def __init__(self, folder: Path, queue: MemoryQueue, seed: int) -> None:
        self._folder, self._queue, self._seed = folder, queue, seed
        self._script = folder / "script.yaml"
        write_profiles(folder / "agents", self._script)
        self.profiles = profiles(folder / "agents")
        self._known: dict[str, Readiness] = {}
        self._client = Client(queue._client.installation, access.worker(queue._client.holder))
        self._supervisor: Supervisor | None = None

    @contextmanager
    def at_hand(self) -> Iterator[ScriptedAgents]:
        """While agents may be started; none is left behind."""
        settings = self._client.installation.settings
        mark = mark_of(settings, self._client.queries.ledger_id(self._client.who))
        with Supervisor(mark) as self._supervisor:
            yield self
        self._client.heartbeats.close()

    def work(self, role: str, tasks: int) -> None:
        """Let the worker of a role do so many tasks that are ready, one after the other."""
        profile, installation = self.profiles[role], self._client.installation
        assert self._supervisor is not None
        home = {"PATH": os.environ["PATH"], "HOME": str(self._folder)}
        shared = WorkerContext(
            self._client, self._supervisor, Workspaces(self._folder / "workspaces"), role,
            profile.settings, installation.agent(profile.settings.agent_name), home,
            lambda *_: None,
        )  # fmt: skip
        # As where one process works for all agents: what was found out of a role stays known.
        known = self._known.get(role)
        worker = Worker(
            shared, lambda *_: None, grace=5, limit=tasks, started=self._write_script,
            place=WorkerPlace(readiness=known),
        )  # fmt: skip
        if known is None:
            any(map(worker.readiness.trust, self._known.values()))
        self._known[role] = worker.readiness
        worker.run()

    # -- what they do ------------------------------------------------------------------------------

    def _write_script(self, attempt: Attempt) -> None:
        task, role = attempt.task, attempt.shared.role
        steps = self.steps_of(self.profiles[role], task, attempt.claim.epoch)
        self._script.write_text(json.dumps({"steps": steps}))

    def steps_of(self, profile: Profile, task: Task, epoch: int) -> list[dict[str, Any]]:
        """What the agent does in one attempt, as steps of `fake-agent`."""
        chance = Random(f"{self._seed} {task.id} {epoch}")
        steps: list[dict[str, Any]] = [{"spend": {"usd": COST.usd, "tokens": COST.tokens}}]
        if task.spec.type == WAKE_TYPE:
            steps += self._answers(task, chance)
        drawn = chance.random()
        if task.spec.type != WAKE_TYPE and drawn < 0.15:
            question = f"Which way, asks {profile.name}?"
            return [*steps, {"agentq": ["block", "--reason", question]}, {"result": "I wait."}]
        if task.spec.type != WAKE_TYPE and drawn < 0.23:
            return [*steps, {"fail": GAVE_UP}]
        if drawn > 0.7:
            steps += self._handed_on(profile, task, chance)
        elif drawn > 0.55:
            colleague = chance.choice(sorted(self.profiles.keys() - {profile.name}))
            steps.append({"agentq": ["comment", f"@{colleague}, you should know of {task.id}."]})
        text = "Written by {task} in attempt {attempt}."  # which the check of its role looks for
        if profile.settings.verify:
            steps.append({"write": {"path": "fake-agent/{task}.md", "text": text}})
        return [*steps, {"result": "Done."}]

    def _answers(self, wake: Task, chance: Random) -> Iterator[dict[str, Any]]:
        """A manager answers half of the questions that the wake names and nobody has answered."""
        for kind, task_id, _ in wake.spec.inputs["items"]:
            if kind == "blocked" and chance.random() < 0.5:
                asked = self._queue.task(task_id)
                if asked.state is State.BLOCKED:
                    yield {"agentq": ["answer", task_id, "The usual way."]}

    def _handed_on(self, profile: Profile, task: Task, chance: Random) -> Iterator[dict[str, Any]]:
        """Part of a task goes to somebody below, once; the attempt waits for it."""
        below = sorted(each.name for each in self.profiles.values() if each.manager == profile.name)
        if below and not (task.details.children or task.details.ended_children):
            to = chance.choice(below)
            name = f"{task.id}-{to}"[:100]
            yield {"agentq": ["submit", "--to", to, "--id", name, "A part of it."]}


def write_profiles(folder: Path, script: Path) -> None:
    """The 33 agents as `agentq init --agent fake` has them, but that they play this script."""
    project, agentq = Project(folder, None, {}, None), (sys.executable, "-m", "agentq")
    proposed = proposed_roles(project, FAKE, agentq, with_coordinator=True)
    folder.mkdir()
    (folder.parent / FILE_NAME).write_text("# Dashboard\n")
    for name, text in profile_texts(EVERYBODY, {each.name: each for each in proposed}):
        played, count = re.subn('"--example", "[a-z]+"', f'"--script", "{script}"', text)
        assert count == 1, text
        (folder / f"{name}.md").write_text(played)
