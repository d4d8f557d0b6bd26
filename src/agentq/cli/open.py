"""`agentq open`: a worktree with what a task left, to look at and to work in."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentq.cli.options import command, named_task_argument
from agentq.cli.screen import clean, emit_json, is_terminal, note, say
from agentq.cli.session import Session, pass_session
from agentq.core.errors import NotFound, Refused

if TYPE_CHECKING:
    from agentq.repository.scratch import Scratch

#: Below the folder of all workspaces.
_FOLDER = ".open"


@command("open")
@named_task_argument
@click.option("--print", "only_print", is_flag=True, help="Print its folder; start no shell.")
@click.option("--close", is_flag=True, help="Remove the worktree that was made to be opened.")
@pass_session
def open_task(session: Session, ref: str, only_print: bool, close: bool) -> None:
    """Enter, or print, a worktree with what a task left.

    It is the workspace of the task itself where there is one. Else a worktree is made from its
    snapshot, and stays until `agentq open --close ID`. On a terminal a shell is started there;
    piped, or with --print, the folder is printed.

    \b
    cd "$(agentq open ID)"
    """
    task = session.reader().task(ref)
    if close:
        _close(session, task.id)
        return
    path = _workspace(session, task.id)
    is_made = path is None
    if path is None:
        path = _made(session, task.id)
    if session.json:
        emit_json({"task_id": task.id, "path": str(path), "made": is_made})
    elif only_print or not is_terminal():
        say(str(path))
    else:
        _enter(path, task.id, is_made=is_made)


def _workspace(session: Session, task_id: str) -> Path | None:
    """The newest workspace of the task on this machine, if there is one."""
    from agentq.worker.workspaces import Workspaces

    known = Workspaces(Path(session.settings().workspaces_root))
    there = [
        kept
        for kept in known.all()
        if kept.task_id == task_id and "missing" not in kept.flags and kept.record is not None
    ]
    return max(there, key=lambda kept: kept.epoch).path if there else None


def _made(session: Session, task_id: str) -> Path:
    """A worktree at the task's snapshot; the one that is there, if it was made before."""
    from agentq.client.task_changes import change_of
    from agentq.repository.fetching import bring

    scratch = _scratch(session, task_id)
    if not scratch.is_there():
        change, checkout = change_of(session.reader(), task_id), scratch.checkout
        work = bring(checkout.git, checkout.common, task_id, change.snapshot, change.sources)
        scratch.make(work.commit)
    return scratch.path


def _scratch(session: Session, task_id: str) -> Scratch:
    from agentq.repository.checkout import find_checkout
    from agentq.repository.git import Git
    from agentq.repository.scratch import Scratch
    from agentq.settings import environment

    checkout = find_checkout(Git(environment()), Path.cwd())
    return Scratch(checkout, Path(session.settings().workspaces_root) / _FOLDER / task_id)


def _close(session: Session, task_id: str) -> None:
    scratch = _scratch(session, task_id)
    if not scratch.is_there():
        raise NotFound(f"No worktree was made to open {task_id}. Nothing was removed.")
    if scratch.checkout.git.do(scratch.place, "status", "--porcelain", "-z").out:
        raise Refused(
            f"{scratch.path} has changes that are not committed. Nothing was removed.",
            "Commit them to a branch there, or discard them (`git checkout .`, `git clean`).",
        )
    scratch.remove()
    if session.json:
        emit_json({"task_id": task_id, "closed": str(scratch.path)})
    else:
        say(f"{clean(str(scratch.path))}: removed")


def _enter(path: Path, task_id: str, *, is_made: bool) -> None:
    from agentq.settings import environment

    env = environment()
    stays = f"it stays until `agentq open --close {task_id}`" if is_made else "it is the task's own"
    note(f"a shell in {path} ({stays}); `exit` leaves it")
    subprocess.run((env.get("SHELL") or "/bin/sh",), cwd=path, check=False)
