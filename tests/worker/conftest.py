from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.worker import sandbox
from tests.servers.missing import go_without
from tests.worker.fleet import Fleet, open_fleet


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """What a sandbox is made with."""
    if not sandbox.available():
        go_without("bubblewrap", "Install the package, and allow user namespaces.")


@pytest.fixture
def fleet(tmp_path: Path, way: str) -> Iterator[Fleet]:
    with open_fleet(tmp_path, way=way) as made:
        yield made
