"""A store in an empty folder, with something precious beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq.artifacts.files.store import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore
from tests.servers import machine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the store keeps its files; not there yet."""
    return tmp_path / "shared"


@pytest.fixture
def store(root: Path) -> ArtifactStore:
    return FileArtifacts(root)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that no verb of the store may ever write to or read from."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "precious.md").write_bytes(b"precious")
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of one megabyte."""
    with machine.small_disk(tmp_path / "disk", "1m") as disk:
        yield disk
