"""The context of a task in a folder. What every store keeps: tests/contracts/artifacts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agentq.artifacts.files.store import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore
from agentq.core.errors import Unavailable
from tests.artifacts.trees import files_below, later_ms

TEXT = b"# Fix the parser\n\nOne scoped change.\n"


def test_a_reader_that_may_not_write_still_reads(
    store: ArtifactStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*names: str, **folders: int) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    sha = store.stage_context("task-1", TEXT).sha256
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", read_only)
        assert FileArtifacts(root).context("task-1", sha) == TEXT
        with pytest.raises(Unavailable, match="read-only"):
            store.publish_context("task-1", sha)
    store.publish_context("task-1", sha)
    assert files_below(root) == {"tasks/task-1.md"}


def test_unfinished_files_are_swept_with_the_contexts(store: ArtifactStore, root: Path) -> None:
    store.stage_context("task-dead", b"never committed")
    (root / "results").mkdir()
    (root / "results/.tmp-0").write_bytes(b"unfinished")
    (root / "results/task-2.md").write_bytes(b"finished")
    before_ms = later_ms(root)
    (root / "results/.tmp-1").write_bytes(b"not finished yet")
    assert FileArtifacts(root).sweep(before_ms, lambda _id, _sha: False) == 2
    assert files_below(root) == {"results/task-2.md", "results/.tmp-1"}
