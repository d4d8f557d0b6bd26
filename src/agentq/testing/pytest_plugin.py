"""The pytest plugin: installing agentq gives every test the fixture `agentq_queue`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from agentq.testing.memory import MemoryQueue


@pytest.fixture
def agentq_queue() -> Iterator[MemoryQueue]:
    """An empty queue in memory; `agentq_queue.advance("2h")` lets time pass."""
    # Imported by those who use it: every run of pytest loads this plugin.
    from agentq.testing.memory import MemoryQueue

    with MemoryQueue() as queue:
        yield queue
