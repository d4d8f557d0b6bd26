"""Workspaces: where an attempt works, one folder per task and epoch, never shared, never reused.

    <root>/<task>-<epoch>/       the folder or worktree itself
    <root>/<task>-<epoch>.json   its record, written first: whatever crashes, nothing is unknown

A workspace goes only when its task is over, no process uses it, and everything in it is elsewhere
too: collected (a plain folder), or clean and reachable from another branch or remote (a worktree).
Whatever may not go stays, and says why.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import msgspec

from agentq.core.errors import AgentqError, Conflict, Invalid, Refused
from agentq.core.states import TERMINAL, State
from agentq.private_files import make_folder
from agentq.protocol.spec_validation import check_id
from agentq.settings.roles import RoleSettings
from agentq.worker.changes import EvidenceFile
from agentq.worker.commits import CommitRequest, Committed
from agentq.worker.folder_removal import remove_tree, user_of
from agentq.worker.git import AGENT_ENVIRONMENT, Git
from agentq.worker.worktrees import Worktree, Worktrees

_NAME = re.compile(r"(?P<task>.+)-(?P<epoch>0|[1-9][0-9]{0,18})")
_RECORD_BYTES_MAX = 64 * 1024
_EPOCH_MAX = 2**63 - 1


@dataclass(frozen=True)
class Record:
    """What is written down about a workspace, beside it."""

    task_id: str
    epoch: int
    kind: Literal["folder", "git"]
    created_at: int
    repo: str = ""
    common: str = ""
    git_dir: str = ""
    branch: str = ""
    base: str = ""
    push: str = ""
    push_sha256: str = ""
    #: The commit that was pushed.
    pushed: str = ""
    #: Whether making it came to its end, and whether its evidence was taken.
    is_made: bool = False
    is_collected: bool = False


#: Made once, before threads share it: msgspec learns a class only while nobody else asks for it.
_decode_record = msgspec.json.Decoder(Record).decode


@dataclass(frozen=True)
class Kept:
    """A workspace on disk.

    Flags: `unfinished` (making it was interrupted), `missing` (the tree is gone), `collected`,
    `pushed`, `unreadable` (its record cannot be read), `unrecorded` (it has none).
    """

    task_id: str
    epoch: int
    kind: str
    path: Path
    branch: str = ""
    base: str = ""
    repo: str = ""
    created_at: int = 0
    flags: tuple[str, ...] = ()
    record: Record | None = None


def _clock() -> int:
    return time.time_ns() // 1_000_000


class Workspaces:
    """All workspaces below one folder. `environment` is what git gets to see of the outside."""

    def __init__(
        self,
        root: Path,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], int] = _clock,
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self.worktrees = Worktrees(Git(environment))
        self._clock = clock

    # -- opening ---------------------------------------------------------------------------------

    def open(self, task_id: str, epoch: int, role: RoleSettings) -> Workspace:
        """Make the workspace of one attempt; an attempt that is tried again has another epoch."""
        path = self.root / _name(task_id, epoch)
        make_folder(self.root)
        if role.workspace == "git":
            return self._open_git(path, task_id, epoch, role)
        record = Record(task_id, epoch, "folder", self._clock())
        self._claim(path, record)
        path.mkdir(mode=0o700)
        record = replace(record, is_made=True)
        self.write(record)
        return Workspace(self, path, record)

    def _open_git(self, tree: Path, task_id: str, epoch: int, role: RoleSettings) -> Workspace:
        if not role.repo:
            raise Invalid(
                "A git workspace needs a repository.", "Set `repo` in the role's settings."
            )
        repo = Path(role.repo)
        plan = self.worktrees.plan(tree, repo, role.base, role.push)
        record = Record(
            task_id, epoch, "git", self._clock(), str(repo), str(plan.common), base=plan.base,
            push=plan.push, push_sha256=plan.push_sha256,
        )  # fmt: skip
        self._claim(tree, record)

        def announce(branch: str) -> None:
            nonlocal record
            record = replace(record, branch=branch)
            self.write(record)

        try:
            made = self.worktrees.make(plan, task_id, epoch, announce)
        except AgentqError:
            self._undo(tree, record)
            raise
        record = replace(record, git_dir=str(made.git_dir), is_made=True)
        self.write(record)
        return Workspace(self, tree, record)

    def _undo(self, tree: Path, record: Record) -> None:
        """Take back what could not be made in full: nobody has worked there, nothing is lost."""
        if remove_tree(tree):
            return  # it stays, with its record, and is flagged
        if not record.branch or not self.worktrees.remove(_worktree(record, tree)):
            _record_path(tree).unlink(missing_ok=True)

    # -- looking ---------------------------------------------------------------------------------

    def all(self) -> list[Kept]:
        """Every workspace on disk, the oldest first."""
        try:
            names = [entry.name for entry in self.root.iterdir()]
        except FileNotFoundError:
            return []
        recorded = {name.removesuffix(".json") for name in names if name.endswith(".json")}
        folders = {name for name in names if (self.root / name).is_dir()}
        found = [kept for name in recorded | folders if (kept := self.kept(name)) is not None]
        return sorted(found, key=lambda kept: (kept.created_at, kept.task_id, kept.epoch))

    def kept(self, name: str) -> Kept | None:
        """The workspace of this name; None if no workspace can be called so."""
        match = _NAME.fullmatch(name)
        if match is None or name.startswith("."):
            return None
        path, task_id, epoch = self.root / name, match["task"], int(match["epoch"])
        record_path = _record_path(path)
        if not os.path.lexists(record_path):
            return Kept(task_id, epoch, "?", path, flags=("unrecorded",))
        record = _read(record_path)
        if record is None or (record.task_id, record.epoch) != (task_id, epoch):
            return Kept(task_id, epoch, "?", path, flags=("unreadable",))
        flags = {
            "unfinished": not record.is_made,
            "missing": not os.path.lexists(path),
            "collected": record.is_collected,
            "pushed": bool(record.pushed),
        }
        return Kept(
            task_id, epoch, record.kind, path, record.branch, record.base, record.repo,
            record.created_at, tuple(word for word, holds in flags.items() if holds), record,
        )  # fmt: skip

    # -- removing --------------------------------------------------------------------------------

    def why_not(self, kept: Kept, task_state: State | None, is_held: bool) -> str:
        """Why it must stay; "" if it may go. `task_state` is None for a task nobody knows."""
        record = kept.record
        if record is None:
            if "unrecorded" in kept.flags:
                return "it has no record: agentq does not know what it is"
            return "its record cannot be read"
        if task_state is None:
            return "the ledger does not know its task"
        if task_state not in TERMINAL:
            return f"its task is {task_state}"
        if is_held:
            return "its attempt has not stopped yet"
        if kept.path.is_symlink():
            return "there is a link in its place"
        user = user_of(kept.path)
        return f"{user} uses it" if user else self._why_not_lost(kept, record)

    def _why_not_lost(self, kept: Kept, record: Record) -> str:
        """Why something would be lost with it."""
        is_there = "missing" not in kept.flags
        if record.kind == "folder":
            empty = not is_there or (not record.is_made and not any(kept.path.iterdir()))
            return "" if record.is_collected or empty else "its evidence was not collected"
        if not Path(record.common).is_dir():
            return f"its repository {record.repo} is gone" if is_there else ""
        if not record.is_made:
            words = "making it was interrupted: look at it, then use `git worktree remove`"
            return words if is_there else ""
        return self.worktrees.why_not(_worktree(record, kept.path))

    def remove(self, kept: Kept, task_state: State | None, is_held: bool) -> None:
        """Remove a workspace that may go, with its record; `Refused` says why it may not."""
        reason = self.why_not(kept, task_state, is_held)
        record = kept.record
        if not reason and record is not None:
            if record.kind == "folder":
                reason = remove_tree(kept.path)
            elif record.branch and Path(record.common).is_dir():
                reason = self.worktrees.remove(_worktree(record, kept.path))
        if reason:
            raise Refused(
                f"The workspace {kept.path} stays: {reason}.",
                "Nothing is removed by force; `agentq workspaces` shows what is there.",
            )
        name = kept.path.name
        for entry in list(self.root.iterdir()):
            if entry.name.startswith(f".{name}.evidence-"):
                remove_tree(entry)
        _record_path(kept.path).unlink(missing_ok=True)

    # -- records ---------------------------------------------------------------------------------

    # No sync: a record lost with the power leaves a tree that is flagged, and is never removed.

    def _claim(self, path: Path, record: Record) -> None:
        """Write the first record of a workspace that must not be there yet."""
        temporary = self._temporary(record)
        try:
            if os.path.lexists(path):
                raise FileExistsError
            os.link(temporary, _record_path(path))
        except FileExistsError:
            raise Conflict(
                f"Attempt {record.epoch} of {record.task_id} has a workspace already: {path}.",
                "`agentq workspaces` shows it. Each attempt gets its own.",
            ) from None
        finally:
            temporary.unlink()

    def write(self, record: Record) -> None:
        """Replace the record of a workspace in one step."""
        path = self.root / _name(record.task_id, record.epoch)
        self._temporary(record).replace(_record_path(path))

    def _temporary(self, record: Record) -> Path:
        temporary = self.root / f".tmp-{secrets.token_hex(8)}"
        temporary.write_bytes(msgspec.json.encode(record))
        return temporary


class Workspace:
    """The workspace of a running attempt."""

    def __init__(self, workspaces: Workspaces, path: Path, record: Record) -> None:
        self.path = path
        self._workspaces = workspaces
        self.record = record
        self._is_collected = False

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for the agent's own calls of git: no hooks, no prompts."""
        return AGENT_ENVIRONMENT if self.record.kind == "git" else {}

    @property
    def writable(self) -> tuple[Path, ...]:
        """What a sandboxed agent must be able to write: to commit, the repository's git folder."""
        is_git = self.record.kind == "git"
        return (self.path, Path(self.record.common)) if is_git else (self.path,)

    def hide_task_folder(self) -> None:
        """Let a repository that has a path of that name not show it as changed."""
        if self.record.kind == "git":
            self._workspaces.worktrees.hide_task_folder(_worktree(self.record, self.path))

    def commit(self, request: CommitRequest) -> Committed:
        """Commit what the agent left uncommitted in a worktree."""
        if self.record.kind != "git":
            return Committed()
        made, root = _worktree(self.record, self.path), self._workspaces.root
        prefix = f".{self.path.name}.evidence-"
        with TemporaryDirectory(prefix=prefix, dir=root, ignore_cleanup_errors=True) as folder:
            return self._workspaces.worktrees.commit(made, Path(folder), request)

    def collect(self, patch_bytes: int = 0) -> list[EvidenceFile]:
        """The evidence that only the workspace has; a patch of at most so many bytes, 0: of any."""
        evidence: list[EvidenceFile] = []
        if self.record.kind == "git":
            made = _worktree(self.record, self.path)
            prefix, root = f".{self.path.name}.evidence-", self._workspaces.root
            with TemporaryDirectory(prefix=prefix, dir=root, ignore_cleanup_errors=True) as folder:
                evidence = self._workspaces.worktrees.collect(made, Path(folder), patch_bytes)
        self._is_collected = True
        return evidence

    def push(self) -> str:
        """Push the branch if the role wants it; what went wrong, or "". Never fails the task."""
        if self.record.kind != "git" or not self.record.push:
            return ""
        made = _worktree(self.record, self.path)
        commit, problem = self._workspaces.worktrees.push(made)
        if commit:
            self.record = replace(self.record, pushed=commit)
            self._workspaces.write(self.record)
        return problem

    def finish(self, task_state: State | None = None) -> str:
        """The attempt is over: remove the workspace if it may go. Why it is still there, or ""."""
        if self._is_collected and not self.record.is_collected:
            self.record = replace(self.record, is_collected=True)
            self._workspaces.write(self.record)
        kept = self._workspaces.kept(self.path.name)
        if kept is None:
            return ""
        try:
            self._workspaces.remove(kept, task_state, is_held=False)
        except AgentqError as refused:
            return refused.cause
        return ""


def _name(task_id: str, epoch: int) -> str:
    if type(epoch) is not int or not 0 <= epoch <= _EPOCH_MAX:
        raise Invalid(f"An epoch is a whole number from 0; got {epoch!r}.")
    return f"{check_id(task_id)}-{epoch}"


def _record_path(workspace: Path) -> Path:
    return workspace.with_name(f"{workspace.name}.json")


def _read(path: Path) -> Record | None:
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as stream:
            return _decode_record(stream.read(_RECORD_BYTES_MAX))
    return None


def _worktree(record: Record, tree: Path) -> Worktree:
    # Before its own git folder is known there is none to look at.
    git_dir = Path(record.git_dir) if record.git_dir else tree / ".no-git-folder"
    return Worktree(
        tree, Path(record.common), record.base, record.push, record.push_sha256, record.branch,
        git_dir, record.pushed,
    )  # fmt: skip
