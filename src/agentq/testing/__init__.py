"""Public test support: a queue in memory whose time a test moves, a pytest plugin, a fake agent.

>>> from agentq.testing import MemoryQueue
>>> with MemoryQueue() as queue:
...     task = queue.submit("builder", "Build it.", delay="2h")
...     before = task.state.value
...     _ = queue.advance("2h")
...     (before, queue.task(task).state.value)
('pending', 'ready')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentq.testing.memory import MemoryQueue, VirtualClock

__all__ = ["MemoryQueue", "VirtualClock"]


def __getattr__(name: str) -> Any:
    # Looked up when first used: the fake agent lives below this package, and starts often.
    if name not in __all__:
        raise AttributeError(f"module 'agentq.testing' has no attribute {name!r}")
    from agentq.testing import memory

    return getattr(memory, name)
