"""`agentq prune`: what waiting tasks need stays, and files go however the pruner ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentq import Queue, TaskFields
from agentq.contracts.store import Changes, Tx
from agentq.core.errors import NotFound, Unavailable
from tests.contracts.artifacts.backends import ObjectBackend
from tests.interfaces.conftest import Submit, clean_environment, run_here
from tests.servers.seaweed import SeaweedServer

PRUNE = ("prune", "--older-than", "0s", "--yes")

#: Prunes, and is killed when it is about to remove the files of the second task.
KILLED = """
import os, signal
from agentq import Queue

def forget(task_id, seen=[]):
    seen.append(task_id)
    if len(seen) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    queue._client.artifacts.remove(task_id)

with Queue() as queue:
    queue._client.installation.ledger.prune(queue.admin.now() + 1, forget)
"""


def finish(queue: Queue, *ids: str) -> None:
    for task_id in ids:
        queue.submit(to="w", instructions="x", id=task_id, context=f"all about {task_id}")
        held = queue.claim_task(task_id)
        held.put("log.txt", b"said")
        held.complete(summary="done", result=b"# Done\n")


def files(home: Path) -> set[str]:
    """What is left of tasks."""
    kept = home / ".agentq"
    folders = [kept / name for name in ("tasks", "artifacts", "results", "live")]
    return {path.name for folder in folders for path in folder.rglob("*") if path.is_file()}


def test_the_result_that_a_waiting_task_will_read_stays(home: Path, submit: Submit) -> None:
    with Queue() as queue:
        finish(queue, "task-a")
    submit("--id", "task-d")
    submit("--id", "task-e", "--after", "task-a", "--after", "task-d")
    assert run_here(*PRUNE).ok().out == "0 tasks deleted\n"
    assert run_here("result", "task-a").ok().out == "# Done\n"
    run_here("cancel", "task-e").ok()
    assert run_here(*PRUNE).ok().out == "2 tasks deleted\n"
    run_here("result", "task-a").refused(3)


def test_a_next_task_does_not_run_after_a_failure_that_was_pruned(
    home: Path, submit: Submit
) -> None:
    submit("--id", "task-x")
    run_here("cancel", "task-x").ok()
    child = home / "child.md"
    child.write_text("---\nid: task-c\nto: worker\nafter: [task-x]\n---\n# Child\n\nGo on.\n")
    submit("--id", "task-p", "--next", str(child))
    run_here(*PRUNE).ok()
    with Queue() as queue:
        queue.claim_task("task-p").complete(summary="done")
        assert queue.task("task-c").state == "failed"


def test_a_file_that_cannot_be_removed_is_removed_later(home: Path) -> None:
    with Queue() as queue:
        finish(queue, "task-1", "task-2", "task-3")
    result = home / ".agentq/results/task-2.md"
    result.unlink()
    result.mkdir()
    run_here(*PRUNE).refused(7, "3 tasks were deleted", "task-2", "prune again")
    assert not (home / ".agentq/artifacts/task-3").exists()
    assert (home / ".agentq/artifacts/task-2").exists()
    result.rmdir()
    assert run_here(*PRUNE).ok().out == "0 tasks deleted\n"
    assert files(home) == set()


def test_a_pruner_that_is_killed_leaves_no_file_behind(home: Path) -> None:
    with Queue() as queue:
        finish(queue, "task-1", "task-2", "task-3")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], cwd=home, env=clean_environment(), check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    assert (home / ".agentq/artifacts/task-3").exists()
    assert run_here(*PRUNE).ok().out == "0 tasks deleted\n"
    assert files(home) == set()


class TestMoved:
    """Files stay where they are when a ledger moves: the old one must not touch them any more."""

    @pytest.fixture
    def old(self, home: Path) -> str:
        return f"sqlite:///{home}/.agentq/ledger.db"

    def move(self, home: Path) -> None:
        run_here("move", "--to", f"sqlite:///{home}/new.db").ok()

    def test_a_context_that_waits_in_the_new_one_is_not_swept_by_the_old_one(
        self, home: Path, old: str
    ) -> None:
        self.move(home)
        child: TaskFields = {
            "id": "child",
            "to": "w",
            "instructions": "y",
            "context": "Its own context.\n",
        }
        with Queue() as queue:
            queue.submit(to="w", instructions="x", id="first", next=[child])
            known = {path for path in (home / ".agentq").rglob("*") if path.is_file()}
            for path in known:  # days go by
                os.utime(path, (1_000_000_000, 1_000_000_000))
            run_here("--url", old, *PRUNE).refused(7, "was moved to")
            queue.claim_task("first").complete(summary="done")
            assert queue.context(queue.task("child")) == "Its own context.\n"

    def test_what_was_left_to_remove_is_left_to_the_new_one(self, home: Path, old: str) -> None:
        with Queue() as queue:
            finish(queue, "task-1")

            def away(task_id: str) -> None:
                raise Unavailable("It is away.", "Wait.")

            with pytest.raises(Unavailable, match="1 task was deleted"):
                queue._client.installation.ledger.prune(queue.admin.now() + 1, away)
        self.move(home)
        gone: list[str] = []
        with Queue(old) as forgotten, pytest.raises(Unavailable, match="was moved to"):
            forgotten._client.installation.ledger.prune(forgotten.admin.now() + 1, gone.append)
        assert gone == []
        run_here("--url", old, *PRUNE).refused(7, "was moved to")
        assert files(home) >= {"task-1.md", "log.txt"}
        run_here(*PRUNE).ok()
        assert files(home) == set()


def test_a_task_is_not_given_the_files_of_a_deleted_one(home: Path, submit: Submit) -> None:
    with Queue() as queue:
        finish(queue, "task-1")

        def outlive(tx: Tx) -> None:  # a month goes by
            tx.save(
                Changes(
                    dedup=[
                        row._replace(expires_at=1)
                        for row in tx.dedup_records(["id:task-1"]).values()
                    ]
                )
            )

        queue._client.installation.store.write(outlive)
    result = home / ".agentq/results/task-1.md"
    result.unlink()
    result.mkdir()
    run_here(*PRUNE).refused(7, "1 task was deleted")
    words = ("submit", "--to", "w", "--instructions", "other", "--id", "task-1")
    run_here(*words).refused(5, "task-1 is already used")
    result.rmdir()
    run_here(*PRUNE).ok()
    assert files(home) == set()


@pytest.fixture
def on_s3(home: Path, s3_server: SeaweedServer) -> Iterator[Queue]:
    where = {"root": s3_server.fresh_root(), **s3_server.options}
    told = "".join(f"{name} = {json.dumps(value)}\n" for name, value in where.items())
    (home / "agentq.toml").write_text(f"[artifacts]\n{told}")
    with Queue() as queue:
        yield queue


def test_an_object_store_that_is_away_is_waited_for(on_s3: Queue, s3_server: SeaweedServer) -> None:
    finish(on_s3, "task-1", "task-2")
    s3_server.kill()
    try:
        with pytest.raises(Unavailable):
            on_s3.admin.prune("0s")
        assert on_s3.task("task-1").state == "complete", "nothing goes while its files cannot"
    finally:
        s3_server.start()
    # It goes away when the rows are deleted already.
    before = on_s3.admin.now() + 1

    def forget(task_id: str) -> None:
        if s3_server.running:
            s3_server.kill()
        on_s3._client.artifacts.remove(task_id)

    try:
        with pytest.raises(Unavailable, match="2 tasks were deleted"):
            on_s3._client.installation.ledger.prune(before, forget)
    finally:
        s3_server.start()
    with pytest.raises(NotFound):
        on_s3.task("task-1")
    assert on_s3.admin.prune("0s") == 0
    assert (
        ObjectBackend(on_s3._client.installation.settings.artifacts_root, s3_server.options).names()
        == set()
    )
