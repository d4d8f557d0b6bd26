"""Handing in inside the workspace: `.agentq-task/`, and an agent that owns all that is in it."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.contracts.agent import AttemptOutcome
from agentq.core.errors import Unavailable
from agentq.core.states import State
from agentq.core.task import Task
from agentq.worker.task_folder import TaskFolder
from tests.worker.fleet import ROLE, Fleet, script

pytestmark = pytest.mark.both_ways(in_turn="tests")

DIALECTS = ("command", "claude", "codex", "gemini", "opencode", "warm", "acp")

#: As an agent says it that knows nothing but the prompt: no variables.
HAND_IN = (
    "open('.agentq-task/result.md', 'w').write('# By the file')",
    "open('.agentq-task/artifacts/notes.md', 'w').write('seen')",
)


def left_in_workspaces(fleet: Fleet) -> list[Path]:
    """What is left of workspaces, besides the records and locks of all."""
    return [each for each in (fleet.folder / "workspaces").iterdir() if each.name[0] != "."]


def work(fleet: Fleet, *lines: str, **fields: Any) -> Task:
    task = fleet.queue.submit(to=ROLE, instructions="hand in", max_attempts=1)
    fleet.work(command=script("TASK = '.agentq-task/'", *lines), **fields)
    return fleet.queue.task(task.id)


def files(fleet: Fleet, task: Task) -> dict[str, bytes]:
    return {each.name: each.read() for each in fleet.queue.artifacts(task.id)}


def rehearse(fleet: Fleet, dialect: str, steps: str, **fields: Any) -> Task:
    """Let the stand-in agent do these steps; the task as it is then."""
    file = fleet.folder / "script.yaml"
    file.write_text("steps:\n" + "".join(f"  - {line}\n" for line in steps.splitlines()))
    task = fleet.queue.submit(to=ROLE, instructions="hand in", max_attempts=1)
    command = (sys.executable, "-m", "agentq", "fake-agent", "--dialect", dialect,
               "--script", str(file))  # fmt: skip
    fleet.work(agent=dialect, command=command, **fields)
    return fleet.queue.task(task.id)


class TestHandingIn:
    def test_by_the_paths_of_the_prompt(self, fleet: Fleet) -> None:
        task = work(
            fleet, *HAND_IN,
            "folder = os.path.abspath('.agentq-task')",
            "assert os.environ['AGENTQ_RESULT'] == folder + '/result.md'",
            "assert os.environ['AGENTQ_ARTIFACTS'] == folder + '/artifacts'",
            "assert os.environ['AGENTQ_CONTEXT'] == folder + '/task.md'",
            "print(open('.agentq-task/task.md').read() == sys.stdin.read())",
        )  # fmt: skip
        assert task.state is State.COMPLETE, task.reason
        kept = files(fleet, task)
        assert kept["result.md"] == b"# By the file" and kept["notes.md"] == b"seen"
        assert kept["output.log"].strip() == b"True"

    @pytest.mark.long
    def test_the_prompt_names_literal_paths(self, fleet: Fleet) -> None:
        task = work(fleet, "print(sys.stdin.read())")
        prompt = fleet.queue.result(task.id).text()
        for path in ("`.agentq-task/result.md`", "`.agentq-task/artifacts/`",
                     "`.agentq-task/agentq progress 40 reading`"):  # fmt: skip
            assert path in prompt
        assert "$" not in prompt

    @pytest.mark.long
    def test_nothing_lies_beside_the_workspace_and_nothing_is_left(self, fleet: Fleet) -> None:
        work(fleet, "print([name for name in os.listdir('..') if name[0] != '.'])")
        (task,) = fleet.queue.tasks(role=ROLE)
        assert fleet.queue.result(task.id).text().strip() == f"['{task.id}']"
        assert left_in_workspaces(fleet) == []

    # The stand-in for a plain program leaves its last words in the file itself.
    @pytest.mark.long
    @pytest.mark.parametrize("dialect", DIALECTS[1:])
    def test_in_every_dialect_the_file_wins(self, fleet: Fleet, dialect: str) -> None:
        task = rehearse(
            fleet, dialect,
            "write: {path: .agentq-task/artifacts/notes.md, text: seen}\n"
            "write: {path: .agentq-task/result.md, text: '# By the file'}\n"
            "say: all is done",
        )  # fmt: skip
        assert task.state is State.COMPLETE, task.reason
        kept = files(fleet, task)
        assert kept["result.md"] == b"# By the file" and kept["notes.md"] == b"seen"

    @pytest.mark.long
    @pytest.mark.parametrize("dialect", DIALECTS)
    def test_in_every_dialect_the_last_answer_is_not_lost(self, fleet: Fleet, dialect: str) -> None:
        """As where a tool was denied every write."""
        task = rehearse(fleet, dialect, "say: looking\nsay: this is what I found")
        assert task.state is State.COMPLETE, task.reason
        assert "this is what I found" in fleet.queue.result(task.id).text()

    @pytest.mark.long
    @pytest.mark.usefixtures("bubblewrap")
    def test_in_a_sandbox(self, fleet: Fleet) -> None:
        task = work(fleet, *HAND_IN, sandbox="bwrap", network=False)
        assert files(fleet, task)["result.md"] == b"# By the file"


@pytest.mark.long
class TestWhatAnAgentMakesOfIt:
    """What is read back is never more than what the agent itself has put there."""

    @pytest.fixture
    def secret(self, tmp_path: Path) -> Path:
        folder = tmp_path / "elsewhere"
        (folder / "artifacts").mkdir(parents=True)
        (folder / "result.md").write_text("canary")
        (folder / "artifacts" / "canary.md").write_text("canary")
        return folder

    @pytest.mark.parametrize("link", [
        "os.rename('.agentq-task', 'moved'); os.symlink({0!r}, '.agentq-task')",
        "os.rmdir(TASK + 'artifacts'); os.symlink({0!r} + '/artifacts', TASK + 'artifacts')",
        "os.symlink({0!r} + '/result.md', '.agentq-task/result.md')",
        "os.symlink({0!r} + '/artifacts/canary.md', '.agentq-task/artifacts/link.md')",
        "os.symlink({0!r} + '/artifacts', '.agentq-task/artifacts/folder')",
    ])  # fmt: skip
    def test_links_are_not_followed(self, fleet: Fleet, secret: Path, link: str) -> None:
        task = work(fleet, link.format(str(secret)), "print('my answer')")
        assert task.state is State.COMPLETE, task.reason
        kept = files(fleet, task)
        assert not [name for name, content in kept.items() if b"canary" in content], kept
        assert kept["result.md"].strip() == b"my answer", "the last answer, where the file is none"
        assert "Not taken as evidence: " in task.summary
        assert (secret / "result.md").read_text() == "canary", "nor is anything removed through it"
        assert (secret / "artifacts" / "canary.md").exists()

    @pytest.mark.parametrize("odd", [
        "os.mkfifo('.agentq-task/result.md')",
        "os.mkdir('.agentq-task/result.md')",
        "import socket; socket.socket(socket.AF_UNIX).bind('.agentq-task/result.md')",
        "os.mkfifo('.agentq-task/artifacts/pipe')",
        "os.rmdir('.agentq-task/artifacts'); os.mkfifo('.agentq-task/artifacts')",
        "os.rmdir('.agentq-task/artifacts'); open('.agentq-task/artifacts', 'w').write('x')",
        "import shutil; shutil.rmtree('.agentq-task'); os.mkfifo('.agentq-task')",
        "import shutil; shutil.rmtree('.agentq-task'); open('.agentq-task', 'w').write('x')",
    ])  # fmt: skip
    def test_what_is_no_file_or_folder_is_named(self, fleet: Fleet, odd: str) -> None:
        task = work(fleet, odd, "print('my answer')")
        assert task.state is State.COMPLETE, task.reason
        assert "Not taken as evidence: " in task.summary
        assert fleet.queue.result(task.id).text().strip() == "my answer"
        assert left_in_workspaces(fleet) == [], "all of it went"

    def test_a_folder_that_the_agent_made_anew(self, fleet: Fleet) -> None:
        """`git clean -fdx` takes everything away that git ignores."""
        task = work(
            fleet, "import shutil; shutil.rmtree('.agentq-task')",
            "os.makedirs('.agentq-task/artifacts')", *HAND_IN,
        )  # fmt: skip
        assert files(fleet, task)["notes.md"] == b"seen"
        assert fleet.queue.result(task.id).text() == "# By the file"

    def test_a_folder_that_is_gone(self, fleet: Fleet) -> None:
        task = work(fleet, "import shutil; shutil.rmtree('.agentq-task')", "print('my answer')")
        assert fleet.queue.result(task.id).text().strip() == "my answer"

    def test_a_huge_result(self, fleet: Fleet) -> None:
        task = work(
            fleet, "open('.agentq-task/result.md', 'w').truncate(1 << 40)", result_bytes=1000
        )
        assert fleet.verdicts[-1].outcome is AttemptOutcome.BAD_OUTPUT
        assert "more than 1000 (result_bytes)" in task.reason

    def test_folders_that_it_closed_go_too(self, fleet: Fleet) -> None:
        work(
            fleet, "os.makedirs('.agentq-task/artifacts/a/b')", "os.chmod('.agentq-task', 0o500)",
            "os.chmod('.agentq-task/artifacts/a/b', 0)", "os.chmod('.agentq-task/artifacts/a', 0)",
        )  # fmt: skip
        assert left_in_workspaces(fleet) == []

    def test_its_own_launcher_is_no_word_of_the_worker(self, fleet: Fleet) -> None:
        """Nothing that the worker runs or believes comes from the folder."""
        task = work(
            fleet,
            "open('.agentq-task/agentq', 'w').write('#!/bin/sh\\ntouch ' + os.getcwd() + '/ran')",
            "open('.agentq-task/task.md', 'w').write('another task')",
            "open('.agentq-task/artifacts/verdict.json', 'w').write('{}')",
            verify="test ! -e ran",
        )
        assert task.state is State.COMPLETE, task.reason


class TestMaking:
    """A folder in whose place something lies already."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> TaskFolder:
        (tmp_path / "workspace").mkdir()
        return TaskFolder(tmp_path / "workspace")

    def made(self, folder: TaskFolder) -> None:
        folder.make()
        found = folder.path.lstat()
        assert stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
        names = sorted(each.name for each in folder.path.iterdir())
        assert names == [".gitignore", "artifacts", "inputs"]
        assert (folder.path / ".gitignore").read_text() == "*\n"

    def test_a_link_goes_and_what_it_leads_to_stays(
        self, folder: TaskFolder, tmp_path: Path
    ) -> None:
        precious = tmp_path / "precious"
        precious.mkdir()
        (precious / "file").touch()
        folder.path.symlink_to(precious)
        self.made(folder)
        assert [each.name for each in precious.iterdir()] == ["file"]
        folder.remove()
        folder.path.symlink_to(tmp_path / "nowhere")
        self.made(folder)

    def test_a_file_or_a_folder_with_something_in_it(self, folder: TaskFolder) -> None:
        folder.path.write_text("x")
        self.made(folder)
        (folder.path / "result.md").write_text("forged")
        (folder.path / "artifacts" / "deep").mkdir()
        (folder.path / "artifacts" / "deep").chmod(0)
        self.made(folder)
        os.mkfifo(folder.path / "result.md")
        self.made(folder)

    def test_what_is_read_back_lies_in_the_workspace(
        self, folder: TaskFolder, tmp_path: Path
    ) -> None:
        folder.make()
        with folder.opened() as place:
            assert place is not None
            folder.path.rename(tmp_path / "moved")
            folder.path.symlink_to(tmp_path)
            assert (place / "artifacts").is_dir(), "opened is opened"
        with folder.opened() as place:
            assert place is None
        folder.path.unlink()
        os.mkfifo(folder.path)
        with folder.opened() as place:
            assert place is None

    def test_where_it_cannot_be_made(self, folder: TaskFolder, tmp_path: Path) -> None:
        (tmp_path / "workspace").rmdir()
        with pytest.raises(Unavailable, match="cannot make"):
            folder.make()
