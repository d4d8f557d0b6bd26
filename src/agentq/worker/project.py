"""What `agentq init` finds around it: the repository, the agent tools, how the project is tested.

Nothing of the project is run, and no agent tool is started: git is asked where the repository is,
with the care of `git.py`, tools are looked for on PATH, and files are read.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentq.core.errors import AgentqError
from agentq.repository.git import Git, GitLocation
from agentq.settings.gitignore import repository_of
from agentq.worker.project_checks import CheckCommand, ProjectFiles, check_commands

#: Tools with an adapter of their own, the one that is proposed first.
TOOLS = ("claude", "codex", "gemini", "opencode")
#: Programs that speak the Agent Client Protocol, and how each is started for it.
ACP_PROGRAMS = {
    "goose": ("goose", "acp"),
    "copilot": ("copilot", "--acp"),
    "kimi": ("kimi", "acp"),
    "auggie": ("auggie", "--acp"),
}


@dataclass(frozen=True, slots=True)
class FoundRepository:
    """The git repository that a folder is in."""

    #: Its top, as seen from the folder: `.` or `../..`.
    top: str
    #: The branch that is checked out, or HEAD where none is.
    base: str
    #: Whether it has no commit yet: then there is nothing that a worktree could start from.
    is_empty: bool


@dataclass(frozen=True, slots=True)
class Project:
    """A folder as agents would find it."""

    folder: Path
    repository: FoundRepository | None
    #: Agent tools that are installed, the preferred first, and where.
    agents: Mapping[str, str]
    #: How it is tested; None if nothing says so, or if what says so would not work.
    tests: CheckCommand | None
    #: What was looked at and left out, and why.
    notes: tuple[str, ...] = ()
    #: Why the repository that is here cannot be used; "" if it can be, or if there is none.
    problem: str = ""


def look_around(folder: Path, environment: Mapping[str, str]) -> Project:
    """Find what is around this folder."""
    notes: list[str] = []
    path = environment.get("PATH", os.defpath)
    repository, problem = _repository(folder, environment)
    tests = _tests(folder, repository, environment, notes)
    return Project(folder, repository, _agents(path), tests, tuple(notes), problem)


def _agents(path: str) -> dict[str, str]:
    found = {name: shutil.which(name, path=path) for name in (*TOOLS, *ACP_PROGRAMS)}
    return {name: program for name, program in found.items() if program}


def own_program(environment: Mapping[str, str]) -> tuple[str, ...]:
    """How agentq itself is started by a worker here."""
    if shutil.which("agentq", path=environment.get("PATH", os.defpath)):
        return ("agentq",)
    return (sys.executable, "-m", "agentq")


def _repository(folder: Path, environment: Mapping[str, str]) -> tuple[FoundRepository | None, str]:
    """The repository that this folder is in, or why the one that is there cannot be used."""
    git, place = Git(environment), GitLocation(folder)
    try:
        answer = git.ask(place, "rev-parse", "--is-inside-work-tree", "--show-cdup")
        inside, _, top = answer.text.partition("\n")
        if not answer.ok or inside != "true":
            if answer.ok:
                return None, "this folder is no work tree of its git repository: use a checkout"
            if "not a git repository" in answer.err:
                return None, ""
            return None, f"git does not take the repository here: {answer.err[:300]}"
        branch = git.ask(place, "symbolic-ref", "--quiet", "--short", "HEAD")
        base = branch.text if branch.ok and branch.text else "HEAD"
        is_empty = not git.tip(place, "HEAD")
        if not is_empty and not git.tip(place, base):  # a name that is no text, or two things
            base = "HEAD"
    except AgentqError as error:
        return None, error.cause if repository_of(folder) is not None else ""
    return FoundRepository(top.rstrip("/") or ".", base, is_empty), ""


def _tests(
    folder: Path,
    repository: FoundRepository | None,
    environment: Mapping[str, str],
    notes: list[str],
) -> CheckCommand | None:
    """The likeliest command that would work in a workspace: of the folder, else of the top."""
    top = (folder / repository.top).resolve() if repository is not None else folder
    for place in dict.fromkeys((folder.resolve(), top)):
        files = ProjectFiles(place)
        commands = check_commands(files)
        notes += files.notes
        for command in commands:
            if why := _unusable(command, place, repository, environment):
                notes.append(f"`{command.command}` ({command.file}) is not proposed: {why}")
                continue
            return command if place == top else _below(command, place.relative_to(top))
    return None


def _unusable(
    command: CheckCommand,
    place: Path,
    repository: FoundRepository | None,
    environment: Mapping[str, str],
) -> str:
    """Why a command would not work in a workspace; "" if it may."""
    if not shutil.which(command.program, path=environment.get("PATH", os.defpath)):
        return f"the program {command.program} is not installed"
    if repository is None:
        return "agents work in a folder of their own, without the files of this one"
    if repository.is_empty:
        return ""
    known = Git(environment).ask(
        GitLocation(place), "cat-file", "-e", f"{repository.base}:./{command.file}"
    )
    return "" if known.ok else f"{repository.base} has no {command.file}, and agents start there"


def _below(command: CheckCommand, below: Path) -> CheckCommand:
    """The command for a workspace whose top is further up."""
    go = f"cd {shlex.quote(str(below))} && "
    setup = f"{go}{command.setup}" if command.setup else ""
    return CheckCommand(f"{go}{command.command}", str(below / command.file), setup)
