"""Evidence and results in a folder. What every store keeps: tests/contracts/artifacts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentq.artifacts.files.store import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore
from agentq.core.errors import Conflict, Damaged, Unavailable
from tests.artifacts.damage import assert_damage_is_found
from tests.artifacts.trees import alter, files_below, sha256

BIG = bytes(range(256)) * 20_000  # several chunks


def test_making_a_store_touches_nothing(root: Path) -> None:
    store = FileArtifacts(root)
    store.context_ref("task-1"), store.result_ref("task-1"), store.attempt_dir("task-1", 1)
    assert not root.exists()


# ---- putting and reading ------------------------------------------------------------------------


def test_stored_files_are_read_only(store: ArtifactStore, root: Path) -> None:
    store.put("task-1", 1, "a.md", b"a")
    store.stage_context("task-1", b"c")
    store.publish_context("task-1", sha256(b"c"))
    for name in ("artifacts/task-1/1/a.md", "tasks/task-1.md"):
        assert (root / name).stat().st_mode & 0o222 == 0


def test_the_same_again_leaves_the_first_file(store: ArtifactStore, root: Path) -> None:
    store.put("task-1", 1, "a.md", b"one")
    inode = (root / "artifacts/task-1/1/a.md").stat().st_ino
    store.put("task-1", 1, "a.md", b"one")
    assert (root / "artifacts/task-1/1/a.md").stat().st_ino == inode


def test_a_file_does_not_become_a_folder(store: ArtifactStore, root: Path) -> None:
    store.put("task-1", 1, "a", b"file")
    with pytest.raises(Conflict, match="in the way"):
        store.put("task-1", 1, "a/b", b"x")
    assert files_below(root) == {"artifacts/task-1/1/a"}


def test_a_file_written_straight_to_its_place_is_adopted(store: ArtifactStore) -> None:
    folder = Path(store.attempt_dir("task-1", 1))
    folder.mkdir(parents=True)
    (folder / "a.md").write_bytes(b"by the agent")
    stored = store.put("task-1", 1, "a.md", folder / "a.md")
    assert stored.sha256 == sha256(b"by the agent")
    assert (folder / "a.md").stat().st_mode & 0o222 == 0


# ---- replaced and altered -----------------------------------------------------------------------


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_damage_to_every_reader(
    store: ArtifactStore, root: Path, make: Callable[[Path], None]
) -> None:
    stored = store.put("task-1", 1, "a.md", b"evidence")
    store.publish_result("task-1", 1, "a.md", stored.sha256)
    for path in (root / "artifacts/task-1/1/a.md", root / "results/task-1.md"):
        path.unlink()
        make(path)
    assert_damage_is_found(store, stored, "was replaced")


def test_files_altered_in_place_are_damage(store: ArtifactStore, root: Path) -> None:
    """They keep their inode, size and mode; and a result is the same file as its evidence."""
    stored = store.put("task-1", 1, "a.md", b"evidence")
    alter(root / "artifacts/task-1/1/a.md", b"EVIDENCE")
    with pytest.raises(Damaged, match=r"artifacts/task-1/1/a\.md was altered"):
        store.publish_result("task-1", 1, "a.md", stored.sha256)
    alter(root / "artifacts/task-1/1/a.md", b"evidence")
    store.publish_result("task-1", 1, "a.md", stored.sha256)
    alter(root / "artifacts/task-1/1/a.md", b"EVIDENCE")
    assert_damage_is_found(store, stored, "was altered")
    store.stage_context("task-1", b"context")
    store.publish_context("task-1", sha256(b"context"))
    alter(root / "tasks/task-1.md", b"CONTEXT")
    with pytest.raises(Damaged, match=r"tasks/task-1\.md was altered"):
        store.context("task-1", sha256(b"context"))


# ---- results ------------------------------------------------------------------------------------


def test_evidence_swapped_after_the_check_does_not_become_the_result(
    store: ArtifactStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = store.put("task-1", 1, "result.md", b"# Done")
    evidence = root / "artifacts/task-1/1/result.md"
    real_link = os.link

    def swap_then_link(*names: str, **options: Any) -> None:
        monkeypatch.undo()
        evidence.unlink()
        evidence.write_bytes(b"# Gone")
        real_link(*names, **options)

    monkeypatch.setattr(os, "link", swap_then_link)
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == b"# Done"
    assert files_below(root / "results") == {"task-1.md"}


def test_everything_works_without_hard_links(
    store: ArtifactStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*names: str, **options: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    stored = store.put("task-1", 1, "result.md", BIG)
    assert store.put("task-1", 1, "result.md", BIG) == stored
    with pytest.raises(Conflict):
        store.put("task-1", 1, "result.md", b"other")
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    store.publish_result("task-1", 1, "result.md", stored.sha256)
    assert store.result("task-1", stored.sha256) == BIG
    assert files_below(root) == {"artifacts/task-1/1/result.md", "results/task-1.md"}


# ---- removing -----------------------------------------------------------------------------------


def test_remove_takes_trees_deeper_than_the_stack(store: ArtifactStore, root: Path) -> None:
    attempt = Path(store.attempt_dir("task-1", 1))
    attempt.mkdir(parents=True)
    folder = os.open(attempt, os.O_RDONLY)
    for _ in range(1_100):  # a path of this length cannot even be named
        os.mkdir("d", dir_fd=folder)
        deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)
    store.remove("task-1")
    assert not (root / "artifacts/task-1").exists()


# ---- addresses and health -----------------------------------------------------------------------


def test_a_relative_root_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = FileArtifacts("shared")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("task-1", 1, "a.md", b"x")
    assert files_below(tmp_path) == {"shared/artifacts/task-1/1/a.md"}


def test_probe_makes_the_folder_and_leaves_it_empty(store: ArtifactStore, root: Path) -> None:
    store.probe()
    assert root.is_dir() and files_below(root) == set()


def test_probe_says_what_does_not_work(store: ArtifactStore, root: Path) -> None:
    root.write_bytes(b"not a folder")
    with pytest.raises(Unavailable, match="not a folder"):
        store.probe()
    with pytest.raises(Unavailable, match="not a folder"):
        store.put("task-1", 1, "a.md", b"x")
