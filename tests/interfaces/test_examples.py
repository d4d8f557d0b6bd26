"""Every program in examples/ runs, and does what its first lines say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentq import Queue, State
from tests.architecture.files import ROOT

EXAMPLES = ROOT / "examples"
BIN = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty installation to be in, made as the examples say: by `agentq init`."""
    monkeypatch.chdir(tmp_path)
    subprocess.run([BIN / "agentq", "init"], check=True, capture_output=True)


def run_example(name: str, *words: str) -> str:
    program = [sys.executable] if name.endswith(".py") else ["bash"]
    done = subprocess.run(
        [*program, str(EXAMPLES / name), *words], text=True, timeout=60,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_sdk_worker() -> None:
    # Given two tasks for its role, one of them urgent
    with Queue() as queue:
        queue.submit(to="counter", instructions="one two three", id="task-later")
        queue.submit(to="counter", instructions="one", id="task-first", priority="urgent")

        # When the worker runs until it is idle
        said = run_example("sdk_worker.py", "counter", "--idle", "0.2")

        # Then both are done, the urgent one first, with evidence
        assert said.splitlines()[-1] == "2 done"
        assert said.index("task-first") < said.index("task-later")
        assert queue.result("task-later").text() == "3 words, the longest is 'three'"
        assert [row.name for row in queue.artifacts("task-later")] == ["words.txt"]


def test_submit_graph() -> None:
    said = run_example("submit_graph.py")
    # Chapters 1 and 2 need the same manuscript, so they are never claimed together
    assert "claimed together: task-chapter-1, task-chapter-3\n" in said
    assert "task-bind: failed, its dependency task-chapter-3 is failed" in said
    assert "task-errata: ready" in said


def test_approval() -> None:
    said = run_example("approval.py")
    assert "coordinator submitted task-invoices and cannot approve it" in said
    assert "now it is blocked: The attempt was interrupted." in said
    assert said.splitlines()[-1] == "bob has looked: complete, all were sent"


def test_shell_agent() -> None:
    # Given a task that a shell script can do
    with Queue() as queue:
        task = queue.submit(to="shell", instructions="List the files.", expect="listing")

        # When the script runs
        said = run_example("shell_agent.sh", "shell")

        # Then its report was accepted, evidence and all
        assert task.id in said
        assert queue.task(task.id).state is State.COMPLETE
        assert "agentq.toml" in queue.result(task.id).text()
        assert "listing.txt" in [row.name for row in queue.artifacts(task.id)]


def test_shell_agent_says_when_there_is_nothing() -> None:
    assert "nothing to do" in run_example("shell_agent.sh", "shell")


def test_every_example_is_run_here() -> None:
    tested = Path(__file__).read_text("utf-8")
    for example in sorted(EXAMPLES.iterdir()):
        if example.suffix in {".py", ".sh"}:
            assert f'"{example.name}"' in tested, f"{example.name} has no test"
