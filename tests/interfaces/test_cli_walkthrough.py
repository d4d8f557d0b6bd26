"""The story that started agentq, told by its own commands, word for word, as real programs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentq.settings import read_file
from tests.interfaces.conftest import Answer, run_in, run_program
from tests.ways import REMOTE, served

pytestmark = pytest.mark.both_ways

#: From the seed text; only /shared is a folder of the test.
INIT = "agentq init"
SUBMIT_FILE = """
agentq submit \\
  --to implementation-worker \\
  --type implementation \\
  --file /shared/tasks/task-123.md
"""
SUBMIT_WORDS = """
agentq submit \\
  --to review-worker \\
  --type reasoning \\
  --instructions "Review this architecture and identify risks."
"""
STATUS = "agentq status task-123"
RESULT = "agentq result task-123"
COMPLETE = """
agentq complete task-123 \\
  --from implementation-worker \\
  --result-file /shared/results/task-123.md \\
  --summary "Implemented and tested"
"""
FAIL = """
agentq fail task-123 \\
  --from implementation-worker \\
  --reason "Could not reproduce the issue"
"""
DEAD_LETTERS = "agentq dlq"


class Shell:
    """Runs commands of the text in one folder, in this process or as programs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared = folder / "shared"
        (self.shared / "tasks").mkdir(parents=True)
        (self.shared / "results").mkdir()
        self.remote: Callable[[], None] | None = None
        self.starts_programs = False

    def __call__(self, line: str, *more: str) -> Answer:
        words = shlex.split(line.replace("\\\n", " "))
        assert words.pop(0) == "agentq"
        words = [word.replace("/shared", str(self.shared)) for word in words]
        if self.starts_programs:
            return run_program(*words, *more, cwd=self.folder)
        return run_in(self.folder, *words, *more)

    def begin(self) -> str:
        """Make the installation; through a server all that follows asks that."""
        shown = self.ok(INIT)
        if self.remote is not None:
            self.remote()
        return shown

    def ok(self, line: str, *more: str) -> str:
        done = self(line, *more).ok()
        assert done.err == ""
        return done.out


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> Iterator[Shell]:
    made = Shell(tmp_path)
    with ExitStack() as stack:

        def serve() -> None:
            elsewhere = stack.enter_context(served(read_file(tmp_path / "agentq.toml")))
            for name, value in elsewhere.environment.items():
                monkeypatch.setenv(name, value)

        made.remote = serve if way == REMOTE else None
        yield made


def test_the_commands_of_the_text(shell: Shell) -> None:
    shell.starts_programs = True
    # Given an installation and a task file.
    assert "ledger" in shell.begin()
    (shell.shared / "tasks/task-123.md").write_text("# One scoped change\n\nand run tests.\n")
    # When the coordinator submits that file, its name gives the task its id.
    assert shell.ok(SUBMIT_FILE) == "task-123\n"
    assert shell.ok(SUBMIT_WORDS).startswith("task-")
    # Then the task can be asked about, and has no result yet.
    assert shell.ok(STATUS).startswith("task-123  ready\n")
    early = shell(RESULT)
    assert (early.status, early.out) == (4, "")
    # When the worker completes it from its own side, without having claimed it.
    (shell.shared / "results/task-123.md").write_text("# Report\n\nAll tests pass.\n")
    assert "task-123 is complete: Implemented and tested" in shell.ok(COMPLETE)
    # Then the result is printed as it is, and nothing else.
    assert shell.ok(RESULT) == "# Report\n\nAll tests pass.\n"
    told = json.loads(shell.ok(RESULT, "--json"))
    assert told["text"] == "# Report\n\nAll tests pass.\n"
    assert told["summary"] == "Implemented and tested"
    assert len(told["sha256"]) == 64
    place = "/tasks/task-123/result" if shell.remote else "/results/task-123.md"
    assert told["result_ref"].endswith(place)
    state = json.loads(shell.ok(STATUS, "--json"))
    assert (state["task_id"], state["state"], state["epoch"]) == ("task-123", "complete", 1)
    # And failing it afterwards is refused: it is over.
    late = shell(FAIL)
    assert late.status == 4
    assert "does not hold task-123" in late.err
    assert "no dead letters" in shell(DEAD_LETTERS).err
    assert "every state proved" in shell.ok("agentq verify")


@pytest.mark.long
def test_a_failed_task_becomes_a_dead_letter(shell: Shell) -> None:
    shell.begin()
    (shell.shared / "tasks/task-123.md").write_text("---\nmax_attempts: 1\n---\nFind the bug.\n")
    shell.ok(SUBMIT_FILE)
    assert "task-123 is failed" in shell.ok(FAIL)
    letters = shell.ok(DEAD_LETTERS).splitlines()
    assert letters[0].split() == ["ID", "STATE", "ROLE", "ATTEMPTS", "ENDED", "REASON"]
    assert letters[1].startswith("task-123  failed  implementation-worker")
    assert letters[1].endswith("Could not reproduce the issue")
    # Opened again, it can be done after all.
    assert "task-123 is ready" in shell.ok("agentq requeue task-123")


@pytest.mark.long
def test_shared_files_may_be_the_store_itself(shell: Shell) -> None:
    """In the text tasks, results and artifacts lie in one shared folder: that folder may be ours,
    and a worker may write its result straight to the place where it will be published."""
    (shell.folder / "agentq.toml").write_text('[artifacts]\nroot = "shared"\n')
    shell.begin()
    (shell.shared / "tasks/task-123.md").write_text("One scoped change.\n")
    assert shell.ok(SUBMIT_FILE) == "task-123\n"
    (shell.shared / "results/task-123.md").write_text("Done.\n")
    shell.ok(COMPLETE)
    assert shell.ok(RESULT) == "Done.\n"
    assert "every state proved" in shell.ok("agentq verify")


@pytest.mark.long
def test_a_worker_claims_and_reports_inside_an_attempt(shell: Shell) -> None:
    shell.begin()
    (shell.shared / "tasks/task-123.md").write_text("Read this.\n")
    shell.ok(SUBMIT_FILE)
    claimed = json.loads(shell.ok("agentq claim --as implementation-worker --json"))
    assert (claimed["task_id"], claimed["epoch"]) == ("task-123", 1)
    assert claimed["context"] == "Read this.\n"
    assert claimed["holder"] == "implementation-worker"
    # What a worker gives to the agent it starts.
    inside = {"AGENTQ_TASK_ID": "task-123", "AGENTQ_EPOCH": "1"}

    def agent(*words: str) -> str:
        return run_in(shell.folder, *words, env=inside).ok().out

    agent("heartbeat")
    agent("progress", "40", "reading")
    (shell.folder / "risks.md").write_text("none found\n")
    agent("artifacts", "put", "risks.md")
    agent("comment", "nearly there")
    child = agent("submit", "--to", "review-worker", "--instructions", "look at it").strip()
    assert json.loads(shell.ok(f"agentq status {child} --json"))["parent"] == "task-123"
    assert "complete" in agent("complete", "--summary", "done", "--leave-children")
    # An attempt that is over writes nothing any more, not even a child.
    refused = run_in(shell.folder, "submit", "--to", "x", "--instructions", "y", env=inside)
    refused.refused(4, "does not hold")
    run_in(shell.folder, "comment", "too late", env=inside).refused(4)


def test_the_command_is_also_a_module_and_knows_its_version() -> None:
    from agentq import __version__

    assert run_program("--version").ok().out == f"agentq {__version__}\n"
