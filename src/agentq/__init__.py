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

#: What is said, by the command and by `from agentq import Queue`, on any other system.
NEEDS_LINUX = (
    f"agentq runs on Linux only, and this is {sys.platform}: its workers own their agents through"
    " means of the Linux kernel."
)
NEEDS_LINUX_REMEDY = "Use a Linux machine, a Linux container, or WSL 2 on Windows."

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
    if sys.platform != "linux" and home.startswith("agentq.client"):
        raise ImportError(f"{NEEDS_LINUX} {NEEDS_LINUX_REMEDY}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
