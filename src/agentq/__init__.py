"""agentq: a durable work queue and orchestrator for AI agents whose tasks take minutes to hours.

>>> from agentq import Queue
>>> q = Queue.create("sqlite://:memory:")
>>> q.submit(to="review-worker", instructions="Review this design.").state.value
'ready'
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

#: The error of the command and of `from agentq import Queue` on any other system.
NEEDS_LINUX = (
    f"agentq runs on Linux only, and this is {sys.platform}: its workers own their agents through"
    " means of the Linux kernel."
)
NEEDS_LINUX_REMEDY = "Use a Linux machine, a Linux container, or WSL 2 on Windows."

if TYPE_CHECKING:
    from agentq.client.admin import Admin
    from agentq.client.applying import AppliedTask
    from agentq.client.artifacts import Artifact, Result
    from agentq.client.async_claim import AsyncArtifact, AsyncClaim
    from agentq.client.async_queue import AsyncQueue
    from agentq.client.broker_results import TaskOutcome
    from agentq.client.cancellation import CancelToken
    from agentq.client.claim import Claim
    from agentq.client.client import Refusal
    from agentq.client.failures import Block, Fail, Leave, Retry
    from agentq.client.queue import Queue
    from agentq.client.task_fields import TaskFields, TaskOptions
    from agentq.contracts.overview_values import (
        DecisionKind,
        OpenDecision,
        Overview,
        RoleOverview,
        RunningTask,
        WorkerInfo,
    )
    from agentq.core.errors import (
        AgentqError,
        Conflict,
        Damaged,
        Invalid,
        NotFound,
        Refused,
        Stale,
        TimedOut,
        Unavailable,
    )
    from agentq.core.limits import KeyLimits, RoleLimits
    from agentq.core.rates import Rate
    from agentq.core.states import State
    from agentq.core.task import (
        ExpectedOutput,
        Note,
        OnDependencyFailure,
        Priority,
        Spec,
        Task,
        Usage,
    )
    from agentq.core.triggers import FailureKind, Resolution

#: Public names by the module that defines them.
_MODULES = {
    "agentq.client.admin": ("Admin",),
    "agentq.client.applying": ("AppliedTask",),
    "agentq.client.artifacts": ("Artifact", "Result"),
    "agentq.client.async_claim": ("AsyncArtifact", "AsyncClaim"),
    "agentq.client.async_queue": ("AsyncQueue",),
    "agentq.client.broker_results": ("TaskOutcome",),
    "agentq.client.cancellation": ("CancelToken",),
    "agentq.client.claim": ("Claim",),
    "agentq.client.client": ("Refusal",),
    "agentq.client.failures": ("Block", "Fail", "Leave", "Retry"),
    "agentq.client.queue": ("Queue",),
    "agentq.client.task_fields": ("TaskFields", "TaskOptions"),
    "agentq.contracts.overview_values": (
        "DecisionKind", "OpenDecision", "Overview", "RoleOverview", "RunningTask", "WorkerInfo",
    ),
    "agentq.core.errors": (
        "AgentqError", "Conflict", "Damaged", "Invalid", "NotFound", "Refused", "Stale", "TimedOut",
        "Unavailable",
    ),
    "agentq.core.limits": ("KeyLimits", "RoleLimits"),
    "agentq.core.rates": ("Rate",),
    "agentq.core.states": ("State",),
    "agentq.core.task": (
        "ExpectedOutput", "Note", "OnDependencyFailure", "Priority", "Spec", "Task", "Usage",
    ),
    "agentq.core.triggers": ("FailureKind", "Resolution"),
}  # fmt: skip

__all__ = [
    "Admin",
    "AgentqError",
    "AppliedTask",
    "Artifact",
    "AsyncArtifact",
    "AsyncClaim",
    "AsyncQueue",
    "Block",
    "CancelToken",
    "Claim",
    "Conflict",
    "Damaged",
    "DecisionKind",
    "ExpectedOutput",
    "Fail",
    "FailureKind",
    "Invalid",
    "KeyLimits",
    "Leave",
    "NotFound",
    "Note",
    "OnDependencyFailure",
    "OpenDecision",
    "Overview",
    "Priority",
    "Queue",
    "Rate",
    "Refusal",
    "Refused",
    "Resolution",
    "Result",
    "Retry",
    "RoleLimits",
    "RoleOverview",
    "RunningTask",
    "Spec",
    "Stale",
    "State",
    "Task",
    "TaskFields",
    "TaskOptions",
    "TaskOutcome",
    "TimedOut",
    "Unavailable",
    "Usage",
    "WorkerInfo",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Names are looked up when first used: start-up is a feature, agents call the command often.
    home = next((module for module, names in _MODULES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'agentq' has no attribute {name!r}")
    if sys.platform != "linux" and home.startswith("agentq.client"):
        raise ImportError(f"{NEEDS_LINUX} {NEEDS_LINUX_REMEDY}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
