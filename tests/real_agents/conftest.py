"""Real agent CLIs, installed and alone with the loopback: see `run.sh`."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from agentq.client.queue import Queue
from tests.real_agents.agent_clis import AGENT_CLIS, AgentCli
from tests.real_agents.site import AgentSite


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the installed CLIs; no test runs where one of them could reach a network."""
    found = os.environ.get("AGENT_PROGRAMS", "")
    if not found:
        pytest.skip("NO AGENT CLI: run these tests by `make test-agents`.")
    interfaces = [name for _, name in socket.if_nameindex()]
    assert interfaces == ["lo"], f"real agents must see the loopback only, not {interfaces}"
    return Path(found)


@pytest.fixture(params=AGENT_CLIS, ids=str)
def cli(request: pytest.FixtureRequest) -> AgentCli:
    found = request.param
    assert isinstance(found, AgentCli)
    return found


@pytest.fixture
def site(tmp_path: Path, queue: Queue, cli: AgentCli, programs: Path) -> Iterator[AgentSite]:
    with TemporaryDirectory(prefix="aq-") as temporary:
        yield AgentSite(tmp_path, queue, cli, programs, Path(temporary))
