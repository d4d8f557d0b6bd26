"""The demonstration holds, and it would say so if it did not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from demo.patches import apply_patch, make_patch
from tests.architecture.files import ROOT


def run_demo(script: Path, home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(home), "AGENTQ_URL": "sqlite:///nowhere/else.db"}
    return subprocess.run(
        [sys.executable, str(script), *options], env=environment, text=True, timeout=120,
        capture_output=True, check=False,
    )  # fmt: skip


@pytest.mark.long
def test_the_story_holds(tmp_path: Path) -> None:
    # When the whole story is told, into a pipe, by somebody who has another queue set up
    told = run_demo(ROOT / "demo" / "run.py", tmp_path)

    # Then it ends well, having shown what it promises
    assert told.returncode == 0, told.stdout + told.stderr
    for sentence in ("kill -9", "kill -STOP", "attempt 3", "bob is refused", "all tests pass"):
        assert sentence in told.stdout
    # and it has left neither colours in the pipe, nor files, nor processes behind
    assert "\x1b[" not in told.stdout
    assert list(tmp_path.iterdir()) == []
    for pid in re.findall(r"\(pid (\d+)\)", told.stdout):
        assert not Path(f"/proc/{pid}/cwd").exists() or _is_not_ours(int(pid))


def _is_not_ours(pid: int) -> bool:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"worker.py" not in command


@pytest.mark.long
def test_the_stopwatch_counts_what_a_person_types(tmp_path: Path) -> None:
    told = run_demo(ROOT / "demo" / "stopwatch.py", tmp_path, "--installed")
    assert told.returncode == 0, told.stdout + told.stderr
    *lines, last = told.stdout.splitlines()
    typed = [line.split("   agentq ")[1].split()[0] for line in lines]
    assert typed == ["init", "submit", "worker", "diff", "apply"]
    assert re.fullmatch(
        r"5 commands, [\d.]+ s: from an installed agentq to a merged change\.", last
    )
    assert list(tmp_path.iterdir()) == []


def test_a_story_that_does_not_hold_is_a_failure(tmp_path: Path) -> None:
    # Given a demonstration whose repository has no bug to mend
    copy = Path(shutil.copytree(ROOT / "demo", tmp_path / "demo"))
    script = copy / "run.py"
    mended = script.read_text().replace("sum(price for", "sum(price * quantity for")
    script.write_text(mended)
    home = tmp_path / "home"
    home.mkdir()

    # When it is told, then it says what does not hold, and ends with status 1
    told = run_demo(script, home)
    assert told.returncode == 1
    assert "The story does not hold: the test fails before the work" in told.stdout
    assert list(home.iterdir()) == []


def test_patches_are_applied_exactly(tmp_path: Path) -> None:
    before = "".join(f"line {n}\n" for n in range(40))
    after = before.replace("line 3\n", "line three\nand more\n").replace("line 30\n", "")
    (tmp_path / "file.txt").write_text(before)
    assert apply_patch(tmp_path, make_patch("file.txt", before, after)) == ["file.txt"]
    assert (tmp_path / "file.txt").read_text() == after


def test_a_patch_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    patch = make_patch("file.txt", "one\n", "two\n")
    (tmp_path / "file.txt").write_text("three\n")
    with pytest.raises(ValueError, match="line 1 is 'three"):
        apply_patch(tmp_path, patch)
    assert (tmp_path / "file.txt").read_text() == "three\n"
    with pytest.raises(ValueError, match="leaves the folder"):
        apply_patch(tmp_path, patch.replace("b/file.txt", "b/../file.txt"))
