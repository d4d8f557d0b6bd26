"""What moves beside the ledger: files, logs, and the lines in agentq.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq import Queue
from agentq.artifacts.files.store import FileArtifacts
from agentq.client.moving_files import Files
from agentq.core.errors import Unavailable
from agentq.settings import load_settings
from tests.interfaces.conftest import run_here
from tests.servers.seaweed import SeaweedServer


def elsewhere(folder: Path) -> str:
    return f"sqlite:///{folder}/new.db"


@pytest.fixture
def worked(home: Path) -> Path:
    """A complete task with a result, one whose first attempt was killed, and one that waits."""
    (home / "context.md").write_text("# Context\n\nAll of it.\n")
    with Queue() as queue:
        queue.submit(to="builder", id="task-done", file=str(home / "context.md"), review=False)
        claim = queue.claim_task("task-done", holder="ada")
        claim.put("log.txt", b"line\n" * 100)
        claim.complete(summary="built", result=b"the result\n")
        queue.submit(to="builder", instructions="x", id="task-killed")
        killed = queue.claim_task("task-killed", holder="ada")
        queue._client.artifacts.live_append("task-killed", killed.epoch, b"its last words\n" * 9)
        queue._client.installation.ledger.release(
            queue._client.installation.ledger_queries.find("task-killed")[0], 1, "it was killed"
        )
        queue.submit(to="builder", instructions="x", id="task-waits")
    return home


def move_words(folder: Path, artifacts: str, *words: str) -> list[str]:
    return ["move", "--to", elsewhere(folder), "--artifacts", artifacts, *words]


class TestSettings:
    """A file that cannot be replaced, as one that is mounted: the move is over all the same."""

    @pytest.fixture
    def stuck(self, worked: Path) -> Path:
        stuck = worked / "agentq.toml.before-move"
        (stuck / "in the way").mkdir(parents=True)
        return stuck

    def test_says_what_is_left_to_do(self, worked: Path, stuck: Path) -> None:
        answer = run_here("move", "--to", elsewhere(worked)).ok()
        assert "agentq.toml still names the old ledger" in answer.out
        assert sorted(path.name for path in worked.glob(".agentq.toml*")) == []
        # The same again is not an error, and does what can be done by now.
        assert "by an earlier run" in run_here("move", "--to", elsewhere(worked)).ok().out
        (stuck / "in the way").rmdir()
        stuck.rmdir()
        told = run_here("move", "--to", elsewhere(worked), "--json").ok().json()
        assert (told["tasks"], told["settings"]) == (3, str(worked / "agentq.toml"))
        assert load_settings().url == elsewhere(worked)
        run_here("submit", "--to", "b", "--instructions", "x").ok()

    def test_also_when_work_went_on(self, worked: Path, stuck: Path) -> None:
        run_here("move", "--to", elsewhere(worked)).ok()
        run_here("--url", elsewhere(worked), "submit", "--to", "b", "--instructions", "x").ok()
        with Queue(elsewhere(worked)) as queue:
            queue.cancel("task-waits", "kim")
            queue.cancel("task-killed", "kim")
            assert queue.admin.prune("0s") == 3
        run_here("move", "--to", elsewhere(worked)).ok()
        assert roles(elsewhere(worked)) == ["b"]


def roles(url: str) -> list[str]:
    with Queue(url) as queue:
        return [task.to for task in queue.tasks()]


class TestPlaces:
    def test_a_folder_as_a_url(self, worked: Path) -> None:
        files = worked / "files"
        told = run_here(*move_words(worked, f"file://{files}", "--json")).ok().json()
        assert (told["artifacts_root"], told["files"]) == (str(files), 3)
        assert run_here("result", "task-done").ok().out == "the result\n"

    def test_the_same_bucket_on_another_server(
        self, worked: Path, shared_s3: SeaweedServer
    ) -> None:
        root, here = shared_s3.fresh_root(), shared_s3.endpoint
        region = ["--region", shared_s3.options["region"], "--json"]
        run_here(*move_words(worked, root, "--endpoint", here, *region)).ok()
        there = here.replace("127.0.0.1", "localhost")
        words = ["move", "--to", f"sqlite:///{worked}/third.db", "--endpoint", there, *region]
        assert run_here(*words).ok().json()["files"] == 3
        settings = load_settings()
        assert settings.artifacts_options["endpoint"] == there
        assert settings.url == f"sqlite:///{worked}/third.db"

    def test_where_attempts_worked_is_told(self, worked: Path) -> None:
        kept = worked / ".agentq" / "workspaces" / "task-killed-1"
        kept.mkdir(parents=True)
        answer = run_here(*move_words(worked, "files")).ok()
        assert f"{kept.parent} stays" in answer.out
        assert f"--url sqlite:///{worked}/.agentq/ledger.db workspaces" in answer.out

    def test_files_that_were_to_be_removed_are_told_of(
        self, worked: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(*_: object) -> None:
            raise Unavailable("The disk is away.")

        with Queue() as queue, monkeypatch.context() as patched:
            patched.setattr(FileArtifacts, "remove", away)
            with pytest.raises(Unavailable, match="1 tasks were deleted"):
                queue.admin.prune("0s")
        answer = run_here(*move_words(worked, "files")).ok()
        assert f"files of 1 pruned task may still be in {worked}/.agentq" in answer.out
        assert (worked / ".agentq" / "results" / "task-done.md").exists()
        # Where all files stay, nobody has to be told: the next prune removes them.
        back = ["move", "--to", f"sqlite:///{worked}/third.db", "--json"]
        assert run_here(*back).ok().json()["forgotten"] == 0


class TestWhichPlaceCounts:
    """Of two runs that want files in different places, only one decides."""

    def test_one_that_completes_another(self, worked: Path) -> None:
        """Killed before agentq.toml was changed, and run again with other words."""
        text = (worked / "agentq.toml").read_text()
        run_here(*move_words(worked, "files")).ok()
        (worked / "agentq.toml").write_text(text)
        for words in ((), ("--artifacts", "B")):
            answer = run_here("move", "--to", elsewhere(worked), *words)
            answer.refused(5, f"files are in {worked}/files", f"--artifacts {worked}/files")
            assert (worked / "agentq.toml").read_text() == text
        run_here("move", "--to", elsewhere(worked), "--artifacts", str(worked / "files")).ok()
        assert load_settings().artifacts_root == str(worked / "files")
        assert run_here("result", "task-done").ok().out == "the result\n"


class TestLogs:
    def test_of_a_killed_attempt(self, worked: Path) -> None:
        run_here(*move_words(worked, "files")).ok()
        assert run_here("logs", "task-killed").ok().out == "its last words\n" * 9

    def test_in_a_bucket(self, worked: Path, shared_s3: SeaweedServer) -> None:
        words = ["--endpoint", shared_s3.endpoint, "--region", shared_s3.options["region"]]
        run_here(*move_words(worked, shared_s3.fresh_root(), *words)).ok()
        assert run_here("logs", "task-killed").ok().out == "its last words\n" * 9

    def test_an_interrupted_move_does_not_double_it(self, worked: Path) -> None:
        with Queue() as queue:
            copied = FileArtifacts(str(worked / "files"))
            for _ in range(2):
                Files(queue._client.artifacts, copied).copy_all(queue._client.service)
        part = copied.live_read("task-killed", 1, 0, 1000)
        assert part.data == b"its last words\n" * 9
