"""Every artifact store, under one suite. A test that takes `store` runs on all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.contracts.artifacts import ArtifactStore
from tests.contracts.artifacts.shelves import FileShelf, ObjectShelf, Shelf
from tests.servers.seaweed import SeaweedServer


@pytest.fixture(params=["files", "s3"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    """An empty place of every kind."""
    if request.param == "files":
        return FileShelf(tmp_path / "shared files #1 – ü")
    server: SeaweedServer = request.getfixturevalue("s3_server")
    return ObjectShelf(server.fresh_root(), server.options)


@pytest.fixture
def store(shelf: Shelf) -> ArtifactStore:
    return shelf.open()


@pytest.fixture
def objects(s3_server: SeaweedServer) -> ObjectShelf:
    """An empty place in a bucket, for what only object stores must keep."""
    return ObjectShelf(s3_server.fresh_root(), s3_server.options)
