"""The embedded service where files and ledger disagree: what stands, what goes, what is said."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.artifacts import LINKED_BYTES_MIN, Uploaded
from agentq.core import access
from agentq.core.access import SYSTEM
from agentq.core.errors import Damaged, NotFound, Refused, Stale, Unavailable
from agentq.core.states import State
from agentq.core.task import Spec, Task
from agentq.core.values import replace
from agentq.ledger import service as service_module
from agentq.ledger import service_queries
from agentq.settings import Settings
from agentq.wiring import WiredInstallation, open_installation

ANN = access.person("ann")
BOB = access.person("bob")
WORKER = access.worker("host:1", "builder")
LEASE_MS = 60_000


@dataclass
class Place:
    """A service with the parts behind it, and where its files lie."""

    parts: WiredInstallation
    files: Path

    @property
    def service(self) -> Any:
        return self.parts.service

    def claimed(self, task_id: str = "task-1", **fields: Any) -> Task:
        self.service.submit(ANN, [Spec(task_id, "builder", **fields)])
        task: Task = self.service.claim_task(ANN, task_id, "host:1", LEASE_MS)
        return task

    def stored(self, name: str) -> list[Path]:
        return [path for path in self.files.rglob(name) if path.is_file()]

    def problems(self) -> list[str]:
        return [each.what for _, found in self.service.verify(SYSTEM) for each in found]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    files = tmp_path / "files"
    settings = Settings(f"sqlite:///{tmp_path / 'ledger.db'}", str(files), "the test")
    parts = open_installation(settings, create=True)
    yield Place(parts, files)
    parts.close()


# -- contexts ----------------------------------------------------------------------------------


def test_a_context_is_kept_for_the_task_that_is_there_only(place: Place) -> None:
    service = place.service
    both = [Spec("task-1", "builder", idempotency_key="k"), Spec("plain", "builder")]
    service.submit(ANN, both, {"task-1": b"# Story"}, {"task-1"})
    assert service.context(ANN, "task-1") == "# Story"
    # The same words under another made-up id are the task that is there: nothing is kept for it.
    again = Spec("task-2", "builder", idempotency_key="k")
    (task,) = service.submit(ANN, [again], {"task-2": b"# Story"}, {"task-2"})
    assert task.id == "task-1"
    assert {path.name for path in place.files.rglob("*task-2*")} == set()


def test_contexts_that_nobody_names_are_swept_and_no_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, artifacts = place.service, place.service._artifacts
    following = Spec("child", "builder")
    contexts = {"task-1": b"# One", "child": b"# Two"}
    service.submit(ANN, [Spec("task-1", "builder", next=(following,))], contexts)
    service.submit(ANN, [Spec("over", "builder")], {"over": b"# Three"})
    service.claim_task(ANN, "over", "host:1", LEASE_MS)
    service.complete(WORKER, "over", 1, "done")
    artifacts.stage_context("orphan", b"# Nobody submitted this")
    monkeypatch.setattr(service_module, "_ORPHAN_MS", -1_000)
    assert service.prune(ANN, 0) == 0
    # What tasks refer to is there, that of tasks that are over as well; the orphan's is not.
    assert service.context(ANN, "task-1") == "# One"
    assert service.context(ANN, "over") == "# Three"
    service.claim_task(ANN, "task-1", "host:1", LEASE_MS)
    service.complete(WORKER, "task-1", 1, "done")
    assert service.context(ANN, "child") == "# Two"
    assert not list(place.files.rglob("*orphan*"))


# -- evidence ----------------------------------------------------------------------------------


def test_files_of_an_attempt_that_is_fenced_out_meanwhile_are_not_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an attempt that left a file before,
    task, service = place.claimed(), place.service
    service.put_artifacts(WORKER, task.id, 1, [("first.md", b"kept")])
    artifacts = service._artifacts
    put = artifacts.put

    def put_and_lose(*words: Any, **named: Any) -> Any:
        stored = put(*words, **named)
        service.cancel(BOB, task.id)
        service.stopped(WORKER, task.id, 1)
        return stored

    # when its task is cancelled and it has stopped while it stores another,
    monkeypatch.setattr(artifacts, "put", put_and_lose)
    with pytest.raises(Stale):
        service.put_artifacts(WORKER, task.id, 1, [("second.md", b"late")])
    # then the file that nobody recorded goes, and the other one stays.
    assert [row.name for row in service.artifacts(ANN, task.id)] == ["first.md"]
    assert place.stored("first.md") and not place.stored("second.md")
    assert place.problems() == []


def test_what_a_worker_keeps_is_taken_after_its_agent_has_reported(place: Place) -> None:
    task, service = place.claimed(), place.service
    service.complete(access.attempt(task.id, 1, "builder"), task.id, 1, "by itself")
    service.put_artifacts(WORKER, task.id, 1, [("output.log", b"what it printed")])
    assert [row.name for row in service.artifacts(ANN, task.id)] == ["output.log"]
    # No other file, and nothing of the agent itself.
    late = [("output-2.log", b"x"), ("notes.md", b"x")]
    for who, files in ((WORKER, late), (access.attempt(task.id, 1, "builder"), late[:1])):
        with pytest.raises(Refused):
            service.put_artifacts(who, task.id, 1, files)
    assert not place.stored("output-2.log") and not place.stored("notes.md")
    assert place.problems() == []


@pytest.mark.parametrize("kind", ["bytes", "path", "file"])
def test_a_report_said_again_is_known_by_its_result_whatever_that_comes_in(
    place: Place, tmp_path: Path, kind: str
) -> None:
    task, service = place.claimed(), place.service
    source = tmp_path / "answer.md"
    source.write_bytes(b"# Done")

    def result() -> Any:
        return {"bytes": b"# Done", "path": source, "file": io.BytesIO(b"# Done")}[kind]

    first = service.complete(WORKER, task.id, 1, "done", result())
    assert first.state is State.COMPLETE
    # The answer was lost: said again it is the same report, though the attempt holds nothing.
    assert service.complete(WORKER, task.id, 1, "done", result()).version == first.version
    # Another result is another report, and comes too late.
    with pytest.raises(Stale):
        service.complete(WORKER, task.id, 1, "done", b"# Something else")


def test_a_completion_stands_while_its_result_cannot_be_published(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task, service = place.claimed(next=(Spec("child", "builder"),)), place.service

    def away(*_: Any) -> None:
        raise Unavailable("The disk is away.", "Wait.")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(type(place.parts.artifacts), "publish_result", away)
        done = service.complete(WORKER, task.id, 1, "done", b"# Done")
    assert done.state is State.COMPLETE
    assert "results are published later" in caplog.text
    assert service.task(ANN, "child").state is State.READY
    # Whoever comes next publishes it.
    assert service.publish_results(SYSTEM).published == 1
    with service.open_result(ANN, task.id)[1] as file:
        assert file.read() == b"# Done"


def test_a_result_that_is_damaged_keeps_no_other_from_being_published(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = place.service
    artifacts = type(place.parts.artifacts)
    publish = artifacts.publish_result

    def damaged(self: Any, task_id: str, *words: Any) -> None:
        if task_id == "bad":
            raise Damaged("bad is not what was recorded.", "Look at it.")
        publish(self, task_id, *words)

    monkeypatch.setattr(type(service), "_try_to_publish", lambda self: None)
    for name in ("bad", "good"):
        place.claimed(name)
        service.complete(WORKER, name, 1, "done", b"# Done")
    monkeypatch.setattr(artifacts, "publish_result", damaged)
    found = service.publish_results(SYSTEM)
    assert (found.published, found.failed) == (1, 1)
    assert [task_id for task_id, _ in found.reasons] == ["bad"]
    # It is tried again later, and complained of once.
    service._store._writer.execute("UPDATE outbox SET due_at = 0")
    again = service.publish_results(SYSTEM)
    assert (again.published, again.failed, again.reasons) == (0, 1, ())


def test_files_that_are_not_what_they_were_are_found(place: Place) -> None:
    service = place.service
    service.submit(ANN, [Spec("task-1", "builder")], {"task-1": b"# Story"})
    service.claim_task(ANN, "task-1", "host:1", LEASE_MS)
    service.put_artifacts(WORKER, "task-1", 1, [("patch.diff", b"+1")])
    assert place.problems() == []
    (patch,) = place.stored("patch.diff")
    patch.unlink()
    stories = [path for path in place.files.rglob("*") if path.is_file()]
    for path in stories:
        if path.read_bytes() == b"# Story":
            path.chmod(0o644)
            path.write_bytes(b"# Another story")
    found = place.problems()
    assert len(found) == 2
    assert any("patch.diff" in each for each in found)
    # Whoever does not ask for files is not told of them.
    assert [each for _, some in service.verify(SYSTEM, files=False) for each in some] == []


# -- who asks ----------------------------------------------------------------------------------


def test_an_attempt_at_a_task_that_is_gone_is_related_to_nothing(place: Place) -> None:
    place.service.submit(ANN, [Spec("task-1", "builder")])
    ghost = access.attempt("never-there", 1, "builder")
    with pytest.raises(Refused):
        place.service.task(ghost, "task-1")


def test_keys_of_claimed_tasks_are_not_remembered_without_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_queries, "_KEYS_MAX", 10)
    for number in range(25):
        place.claimed(f"task-{number}")
    assert len(place.service._claimed_keys) <= 10
    # Whoever was forgotten is looked up.
    assert place.service.complete(WORKER, "task-0", 1, "done").state is State.COMPLETE
    assert place.service.complete(WORKER, "task-24", 1, "done").state is State.COMPLETE


# -- looking at all of it ----------------------------------------------------------------------


def test_every_task_comes_with_its_files_page_by_page(place: Place) -> None:
    service = place.service
    for number in range(3):
        place.claimed(f"task-{number}")
        service.put_artifacts(WORKER, f"task-{number}", 1, [("log.txt", b"x")])
    found, cursor = [], 0
    while True:
        page, cursor = service.task_files(ANN, cursor, 2)
        if not page:
            break
        found += [(task.id, [file.name for file in files]) for task, files in page]
    assert found == [(f"task-{number}", ["log.txt"]) for number in range(3)]
    assert cursor == 0


def test_files_that_could_not_be_removed_are_counted(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = place.service
    for name in ("task-1", "task-2"):
        place.claimed(name)
        service.complete(WORKER, name, 1, "done")
    assert service.files_to_remove(ANN) == 0

    def away(task_id: str) -> None:
        raise Unavailable("The disk is away.", "Wait.")

    with monkeypatch.context() as patch:
        patch.setattr(service._artifacts, "remove", away)
        with pytest.raises(Unavailable):
            service.prune(ANN, service.now() + 1_000)
    assert service.files_to_remove(ANN) == 2
    service.prune(ANN, service.now() + 1_000)
    assert service.files_to_remove(ANN) == 0


def test_what_tasks_took_beside_their_work(place: Place) -> None:
    place.claimed("task-1")
    place.service.complete(WORKER, "task-1", 1, "done")
    place.claimed("task-2")
    found = place.service.overhead(ANN, ["task-1"])
    assert (found.tasks, found.attempts, found.path) == (1, 1, ("task-1",))


def test_a_file_that_was_recorded_before_outlives_the_attempt(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, service = place.claimed(), place.service
    service.put_artifacts(WORKER, task.id, 1, [("log.txt", b"same")])
    put = service._artifacts.put

    def put_and_lose(*words: Any, **named: Any) -> Any:
        stored = put(*words, **named)
        if service.task(ANN, task.id).state is State.IN_PROGRESS:
            service.cancel(BOB, task.id)
            service.stopped(WORKER, task.id, 1)
        return stored

    # When an attempt that is over just then stores it again, with something new beside it,
    monkeypatch.setattr(service._artifacts, "put", put_and_lose)
    with pytest.raises(Stale):
        service.put_artifacts(WORKER, task.id, 1, [("log.txt", b"same"), ("new.txt", b"x")])
    # then what was recorded stays.
    assert place.stored("log.txt") and not place.stored("new.txt")
    assert place.problems() == []


class TestLinks:
    """Links to the artifact store (see tests/server/test_links.py for one that has them)."""

    @pytest.fixture
    def linked(self, place: Place) -> Place:
        place.parts.settings = replace(place.parts.settings, artifact_links=True)
        return place

    def test_a_folder_has_none(self, linked: Place) -> None:
        linked.claimed()
        with pytest.raises(Refused, match="by a link to a folder"):
            linked.service.upload_links(WORKER, "task-1", 1)
        with pytest.raises(Refused, match="by a link to a folder"):
            linked.service.put_artifacts(WORKER, "task-1", 1, [("a", Uploaded("", 1, "0" * 64))])
        files = [("small", b"x"), ("large", b"x" * LINKED_BYTES_MIN)]
        linked.service.put_artifacts(WORKER, "task-1", 1, files)
        assert linked.service.artifact_link(ANN, "task-1", "small") is None
        with pytest.raises(Refused, match="no links to files in a folder"):
            linked.service.artifact_link(ANN, "task-1", "large")
        with pytest.raises(NotFound):
            linked.service.artifact_link(ANN, "task-1", "other")

    def test_nobody_gets_one_unless_settings_say_so(self, place: Place) -> None:
        place.claimed()
        place.service.put_artifacts(WORKER, "task-1", 1, [("large", b"x" * LINKED_BYTES_MIN)])
        assert place.service.upload_links(WORKER, "task-1", 1) == []
        assert place.service.artifact_link(ANN, "task-1", "large") is None

    def test_an_agent_gets_none(self, linked: Place) -> None:
        linked.claimed()
        agent = access.attempt("task-1", 1, "builder")
        assert linked.service.upload_links(agent, "task-1", 1) == []
        assert linked.service.artifact_link(agent, "task-1", "large") is None
        with pytest.raises(Refused, match="may not"):
            linked.service.put_artifacts(agent, "task-1", 1, [("a", Uploaded("", 1, "0" * 64))])


def test_when_an_attempt_is_over(place: Place) -> None:
    task = place.claimed()
    assert [task.is_over(epoch) for epoch in (0, 1, 2)] == [True, False, False]
    ended = place.service.complete(WORKER, "task-1", 1, "done")
    assert [ended.is_over(epoch) for epoch in (0, 1, 2)] == [True, True, False]
