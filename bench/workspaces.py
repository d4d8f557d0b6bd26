"""What a workspace costs on a repository of 10,000 files, beside `git worktree add` itself.

An attempt starts when its agent does: from the claim, by the log, to the first thing that the agent
prints. Before it the worker makes a worktree, or goes on in the one of the attempt before; after it
a snapshot keeps what the agent left. Both sides are measured in turn within a round, on the same
repository.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

from agentq.core.states import State
from agentq.settings.roles import RoleSettings
from agentq.worker.workspaces import Workspaces
from bench.options import Options
from bench.report import Report, Target, progress
from bench.workers import ROLE, Place

START = "attempt start with a workspace of 10,000 files"
GO_ON = "attempt start where the last one stopped"
SNAPSHOT = "snapshot of 100 changes among 10,000 files"
WORKER, GIT, AGENTQ = "agentq worker", "git worktree add", "agentq"
FILES, CHANGES = 10_000, 100
_REPEATS = 3

TARGETS = [Target(START, WORKER, "<=", 1.5, against=GIT)]

_IDENTITY = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
#: Prints when it started; the first attempt fails, so that there is a second.
_AGENT = "date +%s%3N; cat > /dev/null; [ $AGENTQ_EPOCH != 1 ] || exit 75"


def run(options: Options, report: Report) -> None:
    report.targets += TARGETS
    folder = Path(tempfile.mkdtemp(prefix="aqb-"))
    try:
        progress("workspaces")
        place = Place(folder)
        repo = new_repository(folder / "repo")
        (folder / "agentq.toml").write_text(
            f'[roles.{ROLE}]\ncommand = ["/bin/sh", "-c", "{_AGENT}"]\nworkspace = "git"\n'
            f'repo = "{repo}"\n'
        )
        for number in range(options.rounds):
            _measure_starts(report, place, repo, number)
            _measure_snapshot(report, folder / f"spaces-{number}", repo, number)
        place.queue.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_repository(path: Path) -> Path:
    """A repository of so many files, and one commit."""
    for number in range(FILES):
        file = path / f"part{number // 100:03d}" / f"file{number:05d}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"file {number}\n" + "a line of text\n" * (number % 60))
    git(path, "init", "--quiet", "--initial-branch=main")
    git(path, "add", "--all")
    git(path, "commit", "--quiet", "--message", "all of it")
    return path


def _measure_starts(report: Report, place: Place, repo: Path, number: int) -> None:
    bare, first, second = [], [], []
    with place.worker():
        for repeat in range(_REPEATS):
            bare.append(_add_worktree(repo, place.folder / f"bare-{number}-{repeat}"))
            task = place.queue.submit(to=ROLE, instructions="start")
            place.queue.wait(task.id, 120)
            starts = _starts(place, task.id)
            first.append(starts[1])
            second.append(starts[2])
    report.add(START, WORKER, number, median(first), "ms")
    report.add(START, GIT, number, median(bare), "ms")
    report.add(GO_ON, WORKER, number, median(second), "ms")


def _starts(place: Place, task_id: str) -> dict[int, float]:
    """Milliseconds from the claim of each attempt to its agent's first line."""
    claimed = [
        entry.event.at for entry in place.queue.history(task_id) if entry.event.kind == "claimed"
    ]
    found = {}
    for epoch, at in enumerate(claimed, 1):
        _, file = place.queue._client.open_artifact(task_id, "output.log", epoch)  # noqa: SLF001
        with file:
            found[epoch] = float(file.read().split()[0]) - at
    return found


def _add_worktree(repo: Path, tree: Path) -> float:
    started = time.perf_counter()
    git(repo, "worktree", "add", "--quiet", "-b", tree.name, str(tree))
    took = (time.perf_counter() - started) * 1e3
    git(repo, "worktree", "remove", "--force", str(tree))
    git(repo, "branch", "--quiet", "-D", tree.name)
    return took


def _measure_snapshot(report: Report, root: Path, repo: Path, number: int) -> None:
    known = Workspaces(root)
    role = RoleSettings(workspace="git", repo=str(repo))
    space = known.open(f"task-{number}", 1, role)
    for change in range(CHANGES):
        folder = space.path / f"part{change:03d}"
        (folder / f"new{change}.txt").write_text("a line of text\n" * 50)
    took = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        space.keep()
        took.append((time.perf_counter() - started) * 1e3)
    report.add(SNAPSHOT, AGENTQ, number, median(took), "ms")
    space.finish(State.COMPLETE)


def git(folder: Path, *words: str) -> None:
    """Call git there; anything but success is an error."""
    subprocess.run(["git", *_IDENTITY, *words], cwd=folder, check=True, capture_output=True)
