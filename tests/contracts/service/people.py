"""Who speaks in the suite of the service, and the short ways to tasks they speak about."""

from __future__ import annotations

from typing import Any

from agentq.contracts.service import Service
from agentq.core import access
from agentq.core.access import Principal
from agentq.core.task import ExpectedOutput, Spec, Task

ANN, BOB = access.person("ann"), access.person("bob")
WORKER = access.worker("host:1", "builder")
COORDINATOR = access.coordinator()
LEASE_MS = 60_000


def spec(task_id: str, to: str = "builder", **fields: Any) -> Spec:
    if "expects" in fields:
        fields["expected_output"] = ExpectedOutput(artifacts=fields.pop("expects"))
    fields.setdefault("instructions", f"Do {task_id}.")
    return Spec(task_id, to, **fields)


def submit(service: Service, task_id: str = "task-1", to: str = "builder", **fields: Any) -> Task:
    return service.submit(COORDINATOR, [spec(task_id, to, **fields)])[0]


def claimed(service: Service, task_id: str = "task-1", to: str = "builder", **fields: Any) -> Task:
    """A task that the worker holds."""
    submit(service, task_id, to, **fields)
    return service.claim_task(ANN, task_id, "host:1", LEASE_MS)


def attempt_at(task: Task, *may: access.Action) -> Principal:
    """The agent that works on it."""
    return access.attempt(task.id, task.epoch, task.to, may)


def reported(service: Service, task_id: str = "task-1", **fields: Any) -> Task:
    task = claimed(service, task_id, **fields)
    return service.complete(WORKER, task.id, task.epoch, "done")


def blocked(service: Service, task_id: str = "task-1", **fields: Any) -> Task:
    task = claimed(service, task_id, **fields)
    return service.block(WORKER, task.id, task.epoch, "which branch?")


def failed(service: Service, task_id: str = "task-1", **fields: Any) -> Task:
    task = claimed(service, task_id, max_attempts=1, **fields)
    return service.fail(WORKER, task.id, task.epoch, "it cannot be done")
