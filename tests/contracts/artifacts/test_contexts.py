"""The context of a task: safe before the commit, visible after it, whole or not at all."""

from __future__ import annotations

import pytest

from agentq.contracts.artifacts import ArtifactStore, Stored
from agentq.core.errors import Conflict, Damaged
from tests.artifacts.trees import sha256
from tests.contracts.artifacts.backends import Backend, race

TEXT = b"# Fix the parser\n\nOne scoped change.\n"


def test_staged_then_published_then_read(store: ArtifactStore, backend: Backend) -> None:
    staged = store.stage_context("task-1", TEXT)
    assert staged == Stored("task-1.md", len(TEXT), sha256(TEXT), "text/markdown")
    assert "tasks/task-1.md" not in backend.names()

    store.publish_context("task-1", staged.sha256)
    assert backend.names() == {"tasks/task-1.md"}
    assert backend.content("tasks/task-1.md") == TEXT
    assert store.context("task-1", staged.sha256) == TEXT

    store.publish_context("task-1", staged.sha256)
    assert store.context("task-1", staged.sha256) == TEXT


def test_a_crash_between_commit_and_publish_heals(store: ArtifactStore, backend: Backend) -> None:
    staged = store.stage_context("task-1", TEXT)
    another_process = backend.open()
    assert another_process.context("task-1", staged.sha256) == TEXT
    assert backend.names() == {"tasks/task-1.md"}
    # The first one was only slow, not dead: its own publish finds the work done.
    store.publish_context("task-1", staged.sha256)
    assert backend.names() == {"tasks/task-1.md"}


def test_another_process_can_publish(store: ArtifactStore, backend: Backend) -> None:
    staged = store.stage_context("task-1", TEXT)
    backend.open().publish_context("task-1", staged.sha256)
    assert backend.content("tasks/task-1.md") == TEXT


def test_a_large_context(store: ArtifactStore, backend: Backend) -> None:
    large = TEXT * 300_000
    sha = store.stage_context("task-1", large).sha256
    assert backend.open().context("task-1", sha) == large
    assert backend.names() == {"tasks/task-1.md"}


def test_a_half_staged_file_is_never_published(store: ArtifactStore, backend: Backend) -> None:
    backend.plant(backend.staged_name("task-1", sha256(TEXT)), TEXT[:7])
    with pytest.raises(Damaged, match=r"Task task-1: the file .*/tasks/task-1\.md is missing"):
        store.context("task-1", sha256(TEXT))
    with pytest.raises(Damaged, match="task-1"):
        store.publish_context("task-1", sha256(TEXT))
    assert "tasks/task-1.md" not in backend.names()

    store.stage_context("task-1", TEXT)
    assert backend.open().context("task-1", sha256(TEXT)) == TEXT


def test_racers_with_other_content_do_not_meet(store: ArtifactStore, backend: Backend) -> None:
    loser = backend.open()
    mine, theirs = store.stage_context("task-1", TEXT), loser.stage_context("task-1", b"other")
    loser.discard_context("task-1", theirs.sha256)
    store.publish_context("task-1", mine.sha256)
    assert store.context("task-1", mine.sha256) == TEXT
    assert backend.names() == {"tasks/task-1.md"}


def test_a_refused_racer_cannot_discard_the_same_content_of_the_winner(
    store: ArtifactStore, backend: Backend
) -> None:
    loser = backend.open()
    sha = store.stage_context("task-1", TEXT).sha256
    loser.stage_context("task-1", TEXT)
    loser.discard_context("task-1", sha)
    loser.discard_context("task-1", sha)  # even twice: it owns nothing any more
    # The winner committed and died before publishing.
    assert backend.open().context("task-1", sha) == TEXT


def test_threads_of_one_process_discard_only_one_each(
    store: ArtifactStore, backend: Backend
) -> None:
    sha = store.stage_context("task-1", TEXT).sha256
    store.stage_context("task-1", TEXT)
    store.discard_context("task-1", sha)
    assert backend.open().context("task-1", sha) == TEXT
    store.discard_context("task-1", sha)
    assert backend.names() == {"tasks/task-1.md"}


def test_discarding_what_was_never_staged_is_fine(store: ArtifactStore, backend: Backend) -> None:
    store.discard_context("task-1", sha256(TEXT))
    assert not backend.touched()


def test_ids_with_dots_are_told_apart(store: ArtifactStore, backend: Backend) -> None:
    tricky = f"task-1.{sha256(TEXT)}"
    store.stage_context(tricky, TEXT)
    with pytest.raises(Damaged):
        backend.open().context("task-1", sha256(TEXT))
    backend.open().remove("task-1")
    assert backend.open().context(tricky, sha256(TEXT)) == TEXT


def test_an_altered_context_is_damage(store: ArtifactStore, backend: Backend) -> None:
    sha = store.stage_context("task-1", TEXT).sha256
    store.publish_context("task-1", sha)
    backend.plant("tasks/task-1.md", TEXT.replace(b"parser", b"PARSER"))
    with pytest.raises(Damaged, match=r"Task task-1: the file .*/tasks/task-1\.md was altered"):
        store.context("task-1", sha)


def test_a_missing_context_is_damage(store: ArtifactStore, backend: Backend) -> None:
    with pytest.raises(Damaged, match=r"Task task-1: the file .*/tasks/task-1\.md is missing"):
        store.context("task-1", sha256(TEXT))
    assert not backend.touched()


def test_a_foreign_file_is_not_overwritten(store: ArtifactStore, backend: Backend) -> None:
    sha = store.stage_context("task-1", TEXT).sha256
    backend.plant("tasks/task-1.md", b"mine")
    with pytest.raises(Conflict, match=r"another file is at .*/tasks/task-1\.md"):
        store.publish_context("task-1", sha)
    assert backend.content("tasks/task-1.md") == b"mine"
    # The task's own context is served all the same, from where it was staged.
    assert store.context("task-1", sha) == TEXT
    assert backend.content("tasks/task-1.md") == b"mine"
    backend.drop("tasks/task-1.md")
    assert store.context("task-1", sha) == TEXT
    assert backend.names() == {"tasks/task-1.md"}


def test_many_publishers_and_readers_at_once(store: ArtifactStore, backend: Backend) -> None:
    sha = store.stage_context("task-1", TEXT).sha256
    seen = []

    def run(number: int, mine: ArtifactStore) -> None:
        if number % 2:
            mine.publish_context("task-1", sha)
        seen.append(mine.context("task-1", sha))

    race(backend, 8, run)
    assert seen == [TEXT] * 8
    assert backend.names() == {"tasks/task-1.md"}


def test_leftovers_of_dead_submitters_are_swept(store: ArtifactStore, backend: Backend) -> None:
    wanted = store.stage_context("task-wanted", TEXT).sha256
    store.stage_context("task-dead", b"never committed")
    evidence = store.put("task-wanted", 1, "result.md", b"finished")
    store.publish_result("task-wanted", 1, "result.md", evidence.sha256)
    before_ms = backend.later_ms()
    store.stage_context("task-young", b"about to commit")
    asked: list[tuple[str, str]] = []

    def is_wanted(task_id: str, digest: str) -> bool:
        asked.append((task_id, digest))
        return task_id == "task-wanted"

    assert backend.open().sweep(before_ms, is_wanted) == 1
    assert sorted(asked) == [("task-dead", sha256(b"never committed")), ("task-wanted", wanted)]
    assert backend.open().context("task-wanted", wanted) == TEXT
    assert backend.open().context("task-young", sha256(b"about to commit"))
    assert store.result("task-wanted", evidence.sha256) == b"finished"


def test_sweeping_nothing(store: ArtifactStore, backend: Backend) -> None:
    assert store.sweep(2**62, lambda _id, _sha: False) == 0
    assert not backend.touched()


def test_a_context_that_an_edit_brings_replaces_no_other(
    store: ArtifactStore, backend: Backend
) -> None:
    first, second = store.stage_context("task-1", TEXT), store.stage_context("task-1", b"other")
    store.publish_context("task-1", first.sha256)
    store.publish_context("task-1", second.sha256, edited=True)
    place = f"tasks/.edited/task-1/{second.sha256}.md"
    assert backend.names() == {"tasks/task-1.md", place}
    assert store.context("task-1", first.sha256) == TEXT
    assert store.context("task-1", second.sha256, edited=True) == b"other"
    assert store.context_ref("task-1").endswith("/tasks/task-1.md")
    assert store.context_ref("task-1", second.sha256).endswith(f"/{place}")
    # A crash between commit and publish heals here, too, and never takes the first one's place.
    third = store.stage_context("task-2", b"third")
    assert backend.open().context("task-2", third.sha256, edited=True) == b"third"
    assert f"tasks/.edited/task-2/{third.sha256}.md" in backend.names()
    assert "tasks/task-2.md" not in backend.names()
    # All of them go with their task, and with no other whose id begins alike.
    store.remove("task-1")
    assert backend.names() == {f"tasks/.edited/task-2/{third.sha256}.md"}
    with pytest.raises(Damaged):
        store.context("task-1", second.sha256, edited=True)
