"""Brings the files that a role names (`copy`, `link`) into a tree, and takes care that they stay
out of the work: git must ignore them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agentq.repository.git import Git, GitLocation, GitOutput
from agentq.settings.roles import RoleSettings
from agentq.worker.environment import secrets_in

_FILE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder to make ready, and how git is asked about it."""

    path: Path
    git: Git
    #: None for a plain folder.
    place: GitLocation | None = None

    def ask(self, *words: str) -> GitOutput | None:
        """What git says of it; None where there is no repository."""
        return self.git.ask(self.place, *words) if self.place is not None else None


def bring_files(role: RoleSettings, tree: Tree, remember: Callable[[tuple[str, ...]], None]) -> str:
    """Copy and link the files that the role names; why that did not work, or "". `remember` is
    given the secrets in them."""
    for name in (*role.copy, *role.link):
        source, target = Path(role.files_from) / name, tree.path / name
        if not source.exists():
            return f"{source} is not there, and the role's settings say to bring it in"
        if not _is_inside(tree.path, name):
            return f"{name} would be written outside of the workspace, through a link"
        if _is_tracked(tree, name):
            return f"{name} is in the repository, and would be changed by bringing in another"
        try:
            remember(_secrets_of(source))
            _bring_in(source, target, link=name in role.link)
            if not _is_ignored(tree, name):
                _take_out(target)
                return (
                    f"git does not ignore {name}, so that it would be in the patch and on the"
                    " branch; add it to .gitignore"
                )
        except (OSError, shutil.Error) as error:
            return f"{name} could not be brought in: {error}"
    return ""


def _is_inside(workspace: Path, name: str) -> bool:
    """Whether this path leads through no link that the repository, or an agent, has put there."""
    parent = os.path.realpath((workspace / name).parent)
    return Path(parent) == Path(os.path.realpath(workspace)) / Path(name).parent


def _bring_in(source: Path, target: Path, *, link: bool) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or target.is_file():
        target.unlink()  # of an earlier attempt; what a link leads to is not ours to write
    if target.is_dir():
        return
    if link:
        target.symlink_to(source)
    elif source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _take_out(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def _is_tracked(tree: Tree, name: str) -> bool:
    asked = tree.ask("ls-files", "-z", "--", name)
    return asked is not None and bool(asked.out)


def _is_ignored(tree: Tree, name: str) -> bool:
    """Whether git leaves a file alone. What it does not, it takes for the agent's work: it would
    stand in the patch, on the branch and at the remote."""
    words = ("status", "--porcelain", "-z", "--ignored", "--untracked-files=all", "--", name)
    asked = tree.ask(*words)
    if asked is None:
        return True  # a plain folder, of which only what is handed in is kept
    return asked.ok and bool(asked.out) and all(each[:3] == "!! " for each in asked.names())


def _secrets_of(source: Path) -> tuple[str, ...]:
    """What a file like `.env` holds, which is hidden in all that is kept of an attempt."""
    if not source.is_file() or source.stat().st_size > _FILE_BYTES_MAX:
        return ()
    lines = source.read_text("utf-8", errors="replace").splitlines()
    pairs = (line.removeprefix("export ").partition("=") for line in lines if "=" in line)
    return secrets_in({name.strip(): value.strip().strip("'\"") for name, _, value in pairs})
