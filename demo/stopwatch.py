"""How long it takes from nothing to a merged change, and in how many commands: `make story`.

Every command that a person types is run and timed, from a fresh clone of this repository to the
commit in the branch of a project. The stand-in plays the agent, so that what is measured is agentq.
A project with a commit is what everybody has who comes here; making one is not counted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from stage import AGENTQ, HERE, Broken, Show, expect

TASK = "task-lines"
CHANGED = f"fake-agent/{TASK}.md"
#: Far more than any of it takes: `make setup` downloads what it needs.
PATIENCE_SECONDS = 600


@dataclass
class Stopwatch:
    """Types commands in a shell of its own, and notes how long each of them took."""

    show: Show
    folder: Path
    environment: dict[str, str]
    seconds: list[float] = field(default_factory=list)

    def type(self, command: str, cwd: Path | None = None) -> str:
        """Run one command as a person would; what it printed."""
        started = time.monotonic()
        done = subprocess.run(
            ["bash", "-c", command], cwd=cwd or self.folder, env=self.environment, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        self.seconds.append(time.monotonic() - started)
        self.show.line(f"{len(self.seconds):4}  {self.seconds[-1]:6.1f} s   {command}")
        expect(done.returncode == 0, f"{command} failed:\n{done.stderr}{done.stdout}")
        return done.stdout


def install(watch: Stopwatch) -> None:
    """Clone agentq and set it up, as CONTRIBUTING.md says."""
    watch.environment["ROOT"] = str(HERE.parent)
    watch.type('git clone --quiet "$ROOT" agentq')
    watch.type("make -C agentq --silent setup")
    # In a shell it would last; here every command has a shell of its own.
    watch.type(". agentq/.venv/bin/activate")
    programs = watch.folder / "agentq" / ".venv" / "bin"
    watch.environment["PATH"] = f"{programs}:{watch.environment['PATH']}"


def make_project(folder: Path, environment: dict[str, str]) -> Path:
    """A repository with one commit."""
    project = folder / "project"
    project.mkdir()
    for words in (("init", "--quiet", "-b", "main"),
                  ("commit", "--quiet", "--allow-empty", "-m", "A project")):  # fmt: skip
        subprocess.run(["git", *words], cwd=project, env=environment, check=True)
    return project


def change(watch: Stopwatch, project: Path) -> None:
    """From the project as it is to a commit with the change in its branch."""
    watch.type("agentq init --agent fake --yes", project)
    watch.type(f'agentq submit --id {TASK} "Make the import skip empty lines"', project)
    watch.type("agentq worker implementation-worker --tasks 1", project)
    watch.type(f"agentq diff {TASK}", project)
    watch.type(f"agentq apply {TASK}", project)
    shown = subprocess.run(
        ["git", "show", "--name-only", "--format=%s", "main"], cwd=project, text=True,
        capture_output=True, check=True, env=watch.environment,
    ).stdout  # fmt: skip
    expect(CHANGED in shown.split(), f"main does not have {CHANGED}:\n{shown}")


def environment(folder: Path) -> dict[str, str]:
    """The caller's, with a home of its own for git, and no other queue."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTQ_")}
    kept["PATH"] = f"{AGENTQ.parent}:{kept['PATH']}"
    for who in ("AUTHOR", "COMMITTER"):
        kept |= {f"GIT_{who}_NAME": "Kim", f"GIT_{who}_EMAIL": "kim@example.org"}
    return {**kept, "GIT_CONFIG_GLOBAL": str(folder / "gitconfig")}


def main() -> int:
    parser = argparse.ArgumentParser(description="Time the way from nothing to a merged change.")
    parser.add_argument(
        "--installed", action="store_true", help="begin after the installation, with this agentq"
    )
    options = parser.parse_args()
    show = Show(sys.stdout)
    with tempfile.TemporaryDirectory(prefix="agentq-story-") as name:
        folder = Path(name)
        watch = Stopwatch(show, folder, environment(folder))
        try:
            project = make_project(folder, watch.environment)
            if not options.installed:
                install(watch)
            before = len(watch.seconds)
            change(watch, project)
        except (Broken, subprocess.SubprocessError) as broken:
            show.line(f"The story does not hold: {broken}")
            return 1
    total, ours = sum(watch.seconds), sum(watch.seconds[before:])
    count, number = len(watch.seconds), len(watch.seconds) - before
    begin = "an installed agentq" if options.installed else "a fresh clone"
    show.title(f"{count} commands, {total:.1f} s: from {begin} to a merged change.")
    if before:
        show.line(f"{number} of them, {ours:.1f} s, once agentq is installed.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
