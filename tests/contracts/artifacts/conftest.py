"""Every artifact store, under one suite. A test that takes `store` runs on all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.contracts.artifacts import ArtifactStore
from tests.contracts.artifacts.backends import Backend, FileBackend, ObjectBackend
from tests.servers.seaweed import SeaweedServer


@pytest.fixture(params=["files", "s3"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    """An empty place of every kind."""
    if request.param == "files":
        return FileBackend(tmp_path / "shared files #1 – ü")
    server: SeaweedServer = request.getfixturevalue("shared_s3")
    return ObjectBackend(server.fresh_root(), server.options)


@pytest.fixture
def store(backend: Backend) -> ArtifactStore:
    return backend.open()


@pytest.fixture
def objects(shared_s3: SeaweedServer) -> ObjectBackend:
    """An empty place in a bucket, for what only object stores must keep."""
    return ObjectBackend(shared_s3.fresh_root(), shared_s3.options)
