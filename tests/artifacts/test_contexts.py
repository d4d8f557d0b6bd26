"""The context of a task: safe before the commit, visible after it, whole or not at all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from agentq.artifacts.files import FileArtifacts
from agentq.contracts.artifacts import ArtifactStore, Stored
from agentq.core.errors import Conflict, Damaged, Unavailable
from tests.artifacts.trees import alter, files_below, sha256

TEXT = b"# Fix the parser\n\nOne scoped change.\n"


def test_staged_then_published_then_read(store: ArtifactStore, root: Path) -> None:
    staged = store.stage_context("task-1", TEXT)
    assert staged == Stored("task-1.md", len(TEXT), sha256(TEXT), "text/markdown")
    assert not (root / "tasks/task-1.md").exists()

    store.publish_context("task-1", staged.sha256)
    assert files_below(root) == {"tasks/task-1.md"}
    assert (root / "tasks/task-1.md").stat().st_mode & 0o222 == 0
    assert store.context("task-1", staged.sha256) == TEXT

    store.publish_context("task-1", staged.sha256)
    assert store.context("task-1", staged.sha256) == TEXT


def test_a_crash_between_commit_and_publish_heals(store: ArtifactStore, root: Path) -> None:
    staged = store.stage_context("task-1", TEXT)
    another_process = FileArtifacts(root)
    assert another_process.context("task-1", staged.sha256) == TEXT
    assert files_below(root) == {"tasks/task-1.md"}
    # The first one was only slow, not dead: its own publish finds the work done.
    store.publish_context("task-1", staged.sha256)
    assert files_below(root) == {"tasks/task-1.md"}


def test_another_process_can_publish(store: ArtifactStore, root: Path) -> None:
    staged = store.stage_context("task-1", TEXT)
    FileArtifacts(root).publish_context("task-1", staged.sha256)
    assert (root / "tasks/task-1.md").read_bytes() == TEXT


def test_a_half_staged_file_is_never_published(store: ArtifactStore, root: Path) -> None:
    folder = root / "tasks/.staged"
    folder.mkdir(parents=True)
    (folder / f"task-1.{sha256(TEXT)}.{'0' * 16}").write_bytes(TEXT[:7])
    with pytest.raises(Damaged, match=r"Task task-1: the file .*/tasks/task-1\.md is missing"):
        store.context("task-1", sha256(TEXT))
    with pytest.raises(Damaged, match="task-1"):
        store.publish_context("task-1", sha256(TEXT))
    assert not (root / "tasks/task-1.md").exists()

    store.stage_context("task-1", TEXT)
    assert FileArtifacts(root).context("task-1", sha256(TEXT)) == TEXT


def test_racers_with_other_content_do_not_meet(store: ArtifactStore, root: Path) -> None:
    loser = FileArtifacts(root)
    mine, theirs = store.stage_context("task-1", TEXT), loser.stage_context("task-1", b"other")
    loser.discard_context("task-1", theirs.sha256)
    store.publish_context("task-1", mine.sha256)
    assert store.context("task-1", mine.sha256) == TEXT
    assert files_below(root) == {"tasks/task-1.md"}


def test_a_refused_racer_cannot_discard_the_same_content_of_the_winner(
    store: ArtifactStore, root: Path
) -> None:
    loser = FileArtifacts(root)
    sha = store.stage_context("task-1", TEXT).sha256
    loser.stage_context("task-1", TEXT)
    loser.discard_context("task-1", sha)
    loser.discard_context("task-1", sha)  # even twice: it owns nothing any more
    # The winner committed and died before publishing.
    assert FileArtifacts(root).context("task-1", sha) == TEXT


def test_threads_of_one_process_discard_only_one_each(store: ArtifactStore, root: Path) -> None:
    sha = store.stage_context("task-1", TEXT).sha256
    store.stage_context("task-1", TEXT)
    store.discard_context("task-1", sha)
    assert FileArtifacts(root).context("task-1", sha) == TEXT
    store.discard_context("task-1", sha)
    assert files_below(root) == {"tasks/task-1.md"}


def test_discarding_what_was_never_staged_is_fine(store: ArtifactStore, root: Path) -> None:
    store.discard_context("task-1", sha256(TEXT))
    assert not root.exists()


def test_ids_with_dots_are_told_apart(store: ArtifactStore, root: Path) -> None:
    tricky = f"task-1.{sha256(TEXT)}"
    store.stage_context(tricky, TEXT)
    with pytest.raises(Damaged):
        FileArtifacts(root).context("task-1", sha256(TEXT))
    FileArtifacts(root).remove("task-1")
    assert FileArtifacts(root).context(tricky, sha256(TEXT)) == TEXT


def test_an_altered_context_is_damage(store: ArtifactStore, root: Path) -> None:
    sha = store.stage_context("task-1", TEXT).sha256
    store.publish_context("task-1", sha)
    alter(root / "tasks/task-1.md", TEXT.replace(b"parser", b"PARSER"))
    with pytest.raises(Damaged, match=r"Task task-1: the file .*/tasks/task-1\.md was altered"):
        store.context("task-1", sha)


def test_a_missing_context_is_damage(store: ArtifactStore, root: Path) -> None:
    with pytest.raises(Damaged, match=r"Task task-1: the file .*/tasks/task-1\.md is missing"):
        store.context("task-1", sha256(TEXT))
    assert not root.exists()


def test_a_foreign_file_is_not_overwritten(store: ArtifactStore, root: Path) -> None:
    place = root / "tasks/task-1.md"
    sha = store.stage_context("task-1", TEXT).sha256
    place.write_bytes(b"mine")
    with pytest.raises(Conflict, match=r"another file is at .*/tasks/task-1\.md"):
        store.publish_context("task-1", sha)
    assert place.read_bytes() == b"mine"
    # The task's own context is served all the same, from where it was staged.
    assert store.context("task-1", sha) == TEXT
    assert place.read_bytes() == b"mine"
    place.unlink()
    assert store.context("task-1", sha) == TEXT
    assert files_below(root) == {"tasks/task-1.md"}


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


def test_many_publishers_and_readers_at_once(store: ArtifactStore, root: Path) -> None:
    sha = store.stage_context("task-1", TEXT).sha256
    start, seen = threading.Barrier(8), []

    def run(number: int) -> None:
        mine = FileArtifacts(root)
        start.wait(timeout=30)
        if number % 2:
            mine.publish_context("task-1", sha)
        seen.append(mine.context("task-1", sha))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert seen == [TEXT] * 8
    assert files_below(root) == {"tasks/task-1.md"}


def test_leftovers_of_dead_submitters_are_swept(store: ArtifactStore, root: Path) -> None:
    wanted = store.stage_context("task-wanted", TEXT).sha256
    store.stage_context("task-dead", b"never committed")
    (root / "results").mkdir()
    (root / "results/.tmp-0").write_bytes(b"unfinished")
    (root / "results/task-2.md").write_bytes(b"finished")
    before_ms = (root / "results/task-2.md").stat().st_ctime_ns // 1_000_000 + 1
    clock = root / "clock"
    while clock.write_bytes(b"") or clock.stat().st_ctime_ns < before_ms * 1_000_000:
        continue  # the disk's clock moves every few milliseconds
    store.stage_context("task-young", b"about to commit")
    asked: list[tuple[str, str]] = []

    def is_wanted(task_id: str, digest: str) -> bool:
        asked.append((task_id, digest))
        return task_id == "task-wanted"

    assert FileArtifacts(root).sweep(before_ms, is_wanted) == 2
    assert sorted(asked) == [("task-dead", sha256(b"never committed")), ("task-wanted", wanted)]
    assert FileArtifacts(root).context("task-wanted", wanted) == TEXT
    assert FileArtifacts(root).context("task-young", sha256(b"about to commit"))
    assert files_below(root / "results") == {"task-2.md"}


def test_sweeping_nothing(store: ArtifactStore, root: Path) -> None:
    assert store.sweep(2**62, lambda _id, _sha: False) == 0
    assert not root.exists()
