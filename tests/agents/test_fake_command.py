"""`agentq fake-agent`: its own words and those of the tool it plays, told apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentq.testing.fake_agent.program import run


def fake_agent(folder: Path, *words: str, prompt: str = "", **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "agentq", "fake-agent", *words], cwd=folder, input=prompt,
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_it_reads_what_a_worker_tells_it(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("tasks: [{attempt: 2, steps: [{result: 'Two.'}]}]")
    code, said = fake_agent(
        tmp_path, "--script", "script.yaml", prompt="Mend it.",
        AGENTQ_EPOCH="2", AGENTQ_RESULT=str(tmp_path / "result.md"),
    )  # fmt: skip
    assert (code, said) == (0, "")
    assert (tmp_path / "result.md").read_text() == "Two."


def test_the_words_of_the_tool_pass_through(tmp_path: Path) -> None:
    words = ("exec", "--json", "-C", "/tmp", "-sh", "resume", "abc", "--", "--help")
    code, said = fake_agent(tmp_path, "--dialect", "codex", *words)
    events = [json.loads(line) for line in said.splitlines()]
    assert code == 0
    assert events[0] == {"type": "thread.started", "thread_id": "abc"}
    assert events[2]["item"]["text"] == "--help"


def test_it_ends_as_its_script_says(tmp_path: Path) -> None:
    (tmp_path / "script.yaml").write_text("steps: [{exit: 3}]")
    assert fake_agent(tmp_path, "--script", "script.yaml")[0] == 3


def test_mistakes_are_told_in_words(tmp_path: Path) -> None:
    code, said = fake_agent(tmp_path, "--dialect", "klingon")
    assert code == 2 and "klingon" in said
    code, said = fake_agent(tmp_path, "--script", "missing.yaml")
    assert code == 3 and "There is no script missing.yaml" in said
    (tmp_path / "script.yaml").write_text("steps: [{wrk: 3}]")
    code, said = fake_agent(tmp_path, "--script", "script.yaml")
    assert code == 2 and "Did you mean work?" in said


def test_it_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    (tmp_path / "script.yaml").write_text("steps: [ignore-sigterm, {spend: 1}, {result: a}]")
    environment = {"AGENTQ_RESULT": str(tmp_path / "result.md")}
    for dialect in ("command", "claude"):
        assert run(tmp_path / "script.yaml", dialect, ["Mend it."], environment) == 0
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_it_needs_no_standard_input(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "agentq", "fake-agent"],
        cwd=tmp_path, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")


def test_it_starts_without_what_it_does_not_need() -> None:
    looking = "import sys, agentq.cli.fake_agent; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", looking], capture_output=True, text=True,
                          timeout=30, check=True)  # fmt: skip
    modules = set(done.stdout.split())
    assert not {"rich", "yaml", "asyncio", "apsw", "agentq.ledger"} & modules


def test_an_example_changes_a_file_for_each_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for task, attempt in (("task-a", "1"), ("task-b", "2"), ("../../etc", "1")):
        told = {"AGENTQ_TASK_ID": task, "AGENTQ_EPOCH": attempt}
        assert run(None, "claude", ["-p", "Mend {task}."], told, example="change") == 0
    names = sorted(each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*.md"))
    assert names == [f"fake-agent/{name}.md" for name in ("..-..-etc", "task-a", "task-b")]
    said = (tmp_path / "fake-agent" / "task-b.md").read_text()
    assert said == "# Mend {task}.\n\nWritten by the stand-in in attempt 2.\n"


def test_a_prompt_names_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task asks for is not trusted with a path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.yaml").write_text("steps: [{write: {path: 'a/{prompt}', text: x}}]")
    assert run(tmp_path / "script.yaml", "claude", ["-p", "../../gone"], {}) == 0
    assert (tmp_path / "a" / "{prompt}").is_file()


def test_an_example_and_a_script_are_too_much(tmp_path: Path) -> None:
    code, said = fake_agent(tmp_path, "--example", "change", "--script", "x.yaml")
    assert code == 2 and "give one of them" in said
