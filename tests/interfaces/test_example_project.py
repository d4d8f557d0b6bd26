"""The example project is typed, uses public names only, and its own tests pass."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import agentq
import agentq.testing
from tests.architecture.files import ROOT

PROJECT = ROOT / "examples" / "newsroom"


def run(*words: str, folder: Path = PROJECT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, text=True, timeout=240, check=False,
        capture_output=True, env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip


@pytest.mark.long
def test_it_passes_mypy_strict(tmp_path: Path) -> None:
    done = run(
        "-m", "mypy", "--strict", "--config-file", str(PROJECT / "pyproject.toml"),
        "--cache-dir", str(tmp_path), "newsroom", "tests",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_a_wrong_field_is_found_by_the_type_checker(tmp_path: Path) -> None:
    """Or the test above would prove nothing."""
    (tmp_path / "wrong.py").write_text(
        "from agentq import Queue\n"
        "q = Queue()\n"
        "q.submit(to='w', instructions='x', prioritty='high')\n"
        "q.submit(to='w', instructions='x', priority='hihg')\n"
        "q.submit(to='w', instructions='x', ttl=b'1h')\n"
        "q.submit_many([{'to': 'w', 'instructions': 'x', 'review': True}])\n"
    )
    done = run("-m", "mypy", "--strict", "wrong.py", folder=tmp_path)
    wrong = [line.split(":")[1] for line in done.stdout.splitlines() if ": error:" in line]
    assert wrong == ["3", "4", "5"], done.stdout


def test_it_uses_public_names_only() -> None:
    public = {"agentq": agentq.__all__, "agentq.testing": agentq.testing.__all__}
    found = 0
    for file in PROJECT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("agentq"):
                found += 1
                assert {each.name for each in node.names} <= set(public[str(node.module)]), file
    assert found >= 4


def test_its_tests_pass() -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(PROJECT), "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
