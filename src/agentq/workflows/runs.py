"""`Runs`: starts runs of workflows, shows how they stand, cancels and retries them.

A run is a task, so whatever is said of tasks holds for it: `agentq status`, `explain`, `events`,
budgets. What is more is here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentq.contracts.service_values import Wanted
from agentq.core.errors import AgentqError, Invalid, NotFound, Refused
from agentq.core.states import State
from agentq.core.task import NO_USAGE, RUN_ROLE, Task, Usage
from agentq.settings.addresses import is_server
from agentq.workflows.planning import StepStanding, plan
from agentq.workflows.reading import parse_inputs, read_workflow
from agentq.workflows.runner import RUN_TYPE, sound_workflow

if TYPE_CHECKING:
    from agentq.client.client import Client

_LETTERS = b"0123456789abcdefghjkmnpqrstvwxyz" * 8
_ID_LETTERS = 8
#: How deep below a step its children are shown.
_DEPTH_MAX = 8


@dataclass(frozen=True, slots=True)
class RunStep:
    """A step of a run: how it stands, its tasks, and what those submitted themselves."""

    id: str
    role: str
    state: str
    why: str
    tasks: tuple[Task, ...]
    below: Mapping[str, tuple[Task, ...]]


@dataclass(frozen=True, slots=True)
class RunView:
    """A run as it stands. `problem` says why its workflow's file cannot be read as it is now."""

    run: Task
    steps: tuple[RunStep, ...]
    cost: Usage
    problem: str = ""


class Runs:
    """The runs of one installation; `folder` has the workflow files."""

    def __init__(self, client: Client, folder: Path | None = None) -> None:
        self._client = client
        self._folder = folder or client.installation.settings.workflows_folder

    def start(
        self, name: str, inputs: Mapping[str, str] | None = None, *, run_id: str = "",
        title: str = "", priority: str = "", labels: Mapping[str, str] | None = None,
        budget_usd: float = 0.0,
    ) -> Task:  # fmt: skip
        """Start a run; `Invalid` if its workflow or its inputs are not as they should be."""
        fields: dict[str, Any] = {
            "id": run_id or new_run_id(name),
            "to": RUN_ROLE,
            "type": RUN_TYPE,
            "title": title or f"run {name}",
            "workflow": name,
            "instructions": f"Run the workflow {name}.",
            "inputs": self._inputs(name, inputs or {}),
            "labels": {**(labels or {}), "workflow": name},
            "priority": priority or None,
            "tree_budget": self._budget(name, budget_usd),
        }
        return self._client.submit(
            **{name: value for name, value in fields.items() if value is not None}
        )

    def _budget(self, name: str, usd: float) -> Usage | None:
        """What all steps may spend together: as asked for, else as the workflow says."""
        if usd:
            return Usage(usd=usd)
        try:
            budget = read_workflow(self._folder, name).budget
        except NotFound:
            return None  # the server has the file
        return None if budget == NO_USAGE else budget

    def _inputs(self, name: str, given: Mapping[str, str]) -> dict[str, Any]:
        try:
            workflow = sound_workflow(self._folder, name)
        except NotFound:
            if not is_server(self._client.installation.settings.url):
                raise
            return dict(given)  # the server has the file, and says so if it has not
        return parse_inputs(workflow, given)

    def every(self, states: tuple[State, ...] = ()) -> Iterator[Task]:
        """Iterate over runs, the newest first."""
        return self._client.every_task(Wanted(states, type=RUN_TYPE))

    def run(self, ref: str) -> Task:
        """Return a run by its id, or the beginning of one."""
        task = self._client.task(ref)
        if task.spec.type != RUN_TYPE:
            raise Invalid(
                f"{task.id} is no run, but a task of {task.to}.", "`agentq runs` lists runs."
            )
        return task

    def view(self, ref: str) -> RunView:
        """Return how a run stands, step by step."""
        run = self.run(ref)
        ids = [*run.details.children, *(child for child, _ in run.details.ended_children)]
        tasks = list(self._tasks(ids).values())
        problem, steps = "", list[RunStep]()
        try:
            workflow = read_workflow(self._folder, run.spec.workflow)
            standings = plan(workflow, run, tasks).standings
            steps = [self._step(each) for each in standings]
        except AgentqError as error:
            problem = error.cause
        known = {task.id for step in steps for task in step.tasks}
        others = sorted((task for task in tasks if task.id not in known), key=lambda task: task.id)
        steps += [
            RunStep(task.id, task.to, str(task.state), "", (task,), self._below(task))
            for task in others
        ]
        return RunView(run, tuple(steps), self._cost(run, steps), problem)

    def _step(self, standing: StepStanding) -> RunStep:
        below: dict[str, tuple[Task, ...]] = {}
        for task in standing.tasks:
            below |= self._below(task)
        step = standing.step
        return RunStep(step.id, step.role, standing.state, standing.why, standing.tasks, below)

    def _below(self, task: Task, depth: int = 0) -> dict[str, tuple[Task, ...]]:
        """What a task has submitted, and what that has, by parent."""
        details = task.details
        ids = [*details.children, *(child for child, _ in details.ended_children)]
        if not ids or depth >= _DEPTH_MAX:
            return {}
        found = tuple(self._tasks(ids).values())
        below = {task.id: found}
        for each in found:
            below |= self._below(each, depth + 1)
        return below

    def _tasks(self, ids: list[str]) -> dict[str, Task]:
        return self._client.service.tasks_by_id(self._client.who, ids) if ids else {}

    @staticmethod
    def _cost(run: Task, steps: list[RunStep]) -> Usage:
        total = run.details.spent
        for step in steps:
            for task in (*step.tasks, *(each for below in step.below.values() for each in below)):
                total = total.plus(task.details.spent)
        return total

    def cancel(self, ref: str, by: str, reason: str = "") -> Task:
        """Cancel a run and every step of it that is not over, in one transaction."""
        return self._client.cancel(self.run(ref).id, by, reason, tree=True)

    def retry(self, ref: str, by: str, reason: str = "") -> Task:
        """Open a failed run again: steps that failed get new tasks, no other step runs again."""
        run = self.run(ref)
        if run.state not in (State.FAILED, State.EXPIRED):
            raise Refused(
                f"{run.id} is {run.state}; a run that has failed can be retried. Nothing was"
                " changed.",
                "A step that failed is opened again by itself: `agentq requeue`."
                if not run.is_terminal
                else f"`agentq run {run.spec.workflow}` starts another.",
                code="wrong_state",
            )
        return self._client.requeue(run.id, by, reason or "retried")


def new_run_id(name: str) -> str:
    """`run-`, the workflow's name and 40 random bits."""
    return f"run-{name[:40]}-{secrets.token_bytes(_ID_LETTERS).translate(_LETTERS).decode()}"
