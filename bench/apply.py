"""From an attempt's work to the branch, on a repository of 10,000 files, beside git itself.

`agentq apply` as one command, start-up and ledger included, beside `git merge --squash` and
`git commit` by hand; `agentq diff` beside `git diff` of the same two commits, with every
file changed. In turn within a round, on the same repository; what was applied is taken back after.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bench.options import Options
from bench.report import Report, Target, progress
from bench.workers import ROLE, Place
from bench.workspaces import CHANGES, FILES, git, new_repository

APPLY = f"apply {CHANGES} changes among 10,000 files"
DIFF = "diff of 10,000 changed files"
AGENTQ, GIT = "agentq", "git"
_REPEATS = 3

TARGETS = [
    Target(APPLY, AGENTQ, "<=", 3.0, against=GIT),
    Target(DIFF, AGENTQ, "<=", 1.3, against=GIT),
]

#: What the task says: how many files to change.
_AGENT = (
    "n=$(cat | grep -o 'change [0-9]*' | head -1 | cut -d' ' -f2);"
    " ls part*/file* | head -$n | xargs -n 500 sed -i -e '1i a line more' -e s/text/words/"
)


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    folder = Path(tempfile.mkdtemp(prefix="aqb-"))
    try:
        progress("apply")
        place = Place(folder)
        repo = new_repository(folder / "repo")
        git(repo, "config", "user.name", "bench")
        git(repo, "config", "user.email", "bench@localhost")
        (folder / "agentq.toml").write_text(
            f'[roles.{ROLE}]\ncommand = ["/bin/sh", "-c", "{_AGENT}"]\nworkspace = "git"\n'
            f'repo = "{repo}"\n'
        )
        large = _work(place, FILES)
        for number in range(options.rounds):
            _measure_apply(report, place, repo, number)
            _measure_diff(report, place, repo, large, number)
        place.queue.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work(place: Place, files: int) -> str:
    task = place.queue.submit(to=ROLE, instructions=f"change {files}", title="Change them")
    with place.worker("--tasks", "1"):
        place.queue.wait(task.id, 300)
    return task.id


def _measure_apply(report: Report, place: Place, repo: Path, number: int) -> None:
    ours, theirs = [], []
    for _ in range(_REPEATS):
        task_id = _work(place, CHANGES)
        ref = f"refs/agentq/{task_id}/1"
        theirs.append(
            _timed(repo, ["git", "merge", "--quiet", "--squash", ref])
            + _timed(repo, ["git", "commit", "--quiet", "--message", "all of it"])
        )
        git(repo, "reset", "--quiet", "--hard", "HEAD^")
        ours.append(_timed(repo, [place.agentq, *_url(place), "apply", task_id, "--no-verify"]))
        git(repo, "reset", "--quiet", "--hard", "HEAD^")
    report.add(APPLY, AGENTQ, number, median(ours), "ms")
    report.add(APPLY, GIT, number, median(theirs), "ms")


def _measure_diff(report: Report, place: Place, repo: Path, task_id: str, number: int) -> None:
    ours, theirs = [], []
    for _ in range(_REPEATS):
        ours.append(_timed(repo, [place.agentq, *_url(place), "diff", task_id]))
        theirs.append(_timed(repo, ["git", "diff", "HEAD", f"refs/agentq/{task_id}/1"]))
    report.add(DIFF, AGENTQ, number, median(ours), "ms")
    report.add(DIFF, GIT, number, median(theirs), "ms")


def _url(place: Place) -> tuple[str, str]:
    return "--url", f"sqlite:///{place.folder}/.agentq/ledger.db"


def _timed(folder: Path, command: Sequence[str]) -> float:
    """Milliseconds from the start of a command to its end; what it writes goes through a pipe."""
    started = time.perf_counter()
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        while child.stdout.read(1 << 16):
            pass
    took = (time.perf_counter() - started) * 1e3
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {child.returncode}")
    return took
