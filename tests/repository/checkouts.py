"""A user's checkout with all that must stay as it is, and an agent that changed something."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentq.repository.applying import Applying, ApplyRequest, Landed
from agentq.repository.checks import BranchCheck
from agentq.repository.picking import TaskWork
from tests.worker.repositories import Repo, environment


@dataclass(frozen=True)
class Picture:
    """Everything of a checkout that an `apply` which is refused must leave as it was."""

    files: dict[str, tuple[int, bytes]]
    index: bytes
    head: str
    refs: str


def picture(repo: Repo) -> Picture:
    index = repo.path / ".git" / "index"
    return Picture(
        files_of(repo.path),
        index.read_bytes() if index.exists() else b"",
        (repo.path / ".git" / "HEAD").read_text(),
        repo.git("for-each-ref"),
    )


def files_of(tree: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its mode and bytes, every link with where it leads."""
    found = {}
    for top, folders, files in os.walk(tree):
        if ".git" in folders:
            folders.remove(".git")
        for name in (*files, *(each for each in folders if (Path(top) / each).is_symlink())):
            path = Path(top) / name
            content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
            found[os.path.relpath(path, tree)] = (path.lstat().st_mode, content)
    return found


def agent_work(
    repo: Repo, change: Callable[[Repo], object], task_id: str = "task-1", *,
    committed: bool = True, base: str = "HEAD",
) -> TaskWork:  # fmt: skip
    """What an attempt left that made this change in a worktree of its own."""
    start = repo.git("rev-parse", base)
    tree = repo.path.parent / f"agent-{task_id}"
    repo.git("worktree", "add", "--quiet", "--detach", str(tree), start)
    agent = repo.at(tree)
    change(agent)
    head = agent.git("rev-parse", "HEAD")
    agent.git("add", "--all", "--force", ".")
    agent.git("commit", "--quiet", "--allow-empty", "--message", f"work on {task_id}")
    commit = agent.git("rev-parse", "HEAD")
    repo.git("update-ref", f"refs/agentq/{task_id}/1", commit)
    repo.git("worktree", "remove", "--force", str(tree))
    return TaskWork(task_id, 1, start, commit if committed else head, commit)


def applying(repo: Repo) -> Applying:
    return Applying(repo.path, environment(repo.home))


def request(
    repo: Repo, mode: str = "squash", *, verify: str = "", message: str = "Do it\n"
) -> ApplyRequest:
    scratch = repo.path.parent / "scratch" / "task"
    return ApplyRequest(mode, message, scratch, BranchCheck(verify, 60) if verify else None)


def apply(repo: Repo, work: TaskWork, mode: str = "squash", verify: str = "") -> Landed:
    landed = (one := applying(repo)).apply(work, request(repo, mode, verify=verify))
    one.settle()
    return landed
