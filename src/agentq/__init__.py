"""agentq: a durable work queue and orchestrator for AI agents whose tasks take minutes to hours.

>>> from agentq import Queue
>>> q = Queue.create("sqlite://:memory:")
>>> q.submit(to="review-worker", instructions="Review this design.").state.value
'ready'
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from agentq.client.claim import Claim
    from agentq.client.queue import Queue, Refusal
    from agentq.contracts.service_values import Wanted
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
    from agentq.core.states import State
    from agentq.core.task import Spec, Task, Usage

_HOMES = {
    "Queue": "agentq.client.queue",
    "Refusal": "agentq.client.queue",
    "Claim": "agentq.client.claim",
    "Task": "agentq.core.task",
    "Spec": "agentq.core.task",
    "Usage": "agentq.core.task",
    "State": "agentq.core.states",
    "Wanted": "agentq.contracts.service_values",
    **dict.fromkeys(
        ("AgentqError", "Conflict", "Damaged", "Invalid", "NotFound", "Refused", "Stale",
         "TimedOut", "Unavailable"),
        "agentq.core.errors",
    ),
}  # fmt: skip

__all__ = [
    "AgentqError",
    "Claim",
    "Conflict",
    "Damaged",
    "Invalid",
    "NotFound",
    "Queue",
    "Refusal",
    "Refused",
    "Spec",
    "Stale",
    "State",
    "Task",
    "TimedOut",
    "Unavailable",
    "Usage",
    "Wanted",
    "__version__",
]


def __getattr__(name: str) -> Any:
    # Names are looked up when first used: start-up is a feature, agents call the command often.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'agentq' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
