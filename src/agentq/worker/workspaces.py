"""Workspaces: where attempts work, one path per task on this machine, one attempt at a time.

Attempts at a task follow each other in the same folder or worktree, guarded by a lock that lasts as
long as any process of an attempt (`agentq.worker.workspace_locks`). Who cannot have it works at
another path. What an attempt left is in a snapshot when it ends, and after `kill -9` the next one,
or whoever cleans up, takes it.

A workspace goes only when its task is over, no process uses it, and everything in it is elsewhere
too: in a snapshot (a worktree), or kept for long enough (a folder). Whatever may not go stays, and
says why.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError, Invalid, Refused
from agentq.core.states import TERMINAL, State
from agentq.core.values import replace
from agentq.private_files import make_folder
from agentq.repository import remotes
from agentq.repository.git import Git
from agentq.repository.snapshot_refs import WorkSnapshot, ref_name
from agentq.worker.earlier_work import NOTHING_EARLIER, EarlierWork
from agentq.worker.folder_removal import remove_tree, user_of
from agentq.worker.workspace_locks import WorkspaceLock
from agentq.worker.workspace_records import Kept, Record, Records, attempt_name
from agentq.worker.worktrees import Worktree, Worktrees, branch_ref, shared_place

# What only a worker needs is imported when it is used: `agentq apply` cleans up here as well.
if TYPE_CHECKING:
    from agentq.settings.roles import RoleSettings
    from agentq.worker.snapshots import TreeFiles
    from agentq.worker.workspace import Workspace
    from agentq.worker.workspace_opening import FolderOpening, GitOpening

#: How long an attempt waits for the path of its task: a killed worker's tree needs some seconds.
LOCK_SECONDS = 4.0
_LOOK_SECONDS = 0.05
#: How long work stays here after the end of its task, unless `[retention] keep` says so.
KEEP_SECONDS = 14 * 24 * 3600
_ASIDE = ".aside"
#: The moment of a task's end whose work nobody needs here: so long ago that it is kept no longer.
_APPLIED = 1
_OLD_SCRATCH = re.compile(r"(?P<name>.+-[0-9]+)\.scratch")


def _clock() -> int:
    return time.time_ns() // 1_000_000


class Workspaces:
    """All workspaces below one folder. `environment` is what git gets to see of the outside."""

    def __init__(
        self,
        root: Path,
        environment: Mapping[str, str] | None = None,
        clock: Callable[[], int] = _clock,
        *,
        keep_seconds: int = 0,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self.worktrees = Worktrees(Git(environment))
        self.records = Records(self.root)
        self.clock = clock
        self._keep_ms = (keep_seconds or KEEP_SECONDS) * 1000
        self._lock_seconds = lock_seconds

    # -- opening ---------------------------------------------------------------------------------

    def open(
        self,
        task_id: str,
        epoch: int,
        role: RoleSettings,
        earlier: EarlierWork = NOTHING_EARLIER,
    ) -> Workspace:
        """Make the workspace of an attempt, or go on in the one that earlier attempts left."""
        from agentq.worker.workspace_opening import FolderOpening, GitOpening

        other = attempt_name(task_id, epoch)
        if role.workspace == "git" and not role.repo:
            raise Invalid(
                "A git workspace needs a repository.", "Set `repo` in the role's settings."
            )
        make_folder(self.root)
        opening = (GitOpening if role.workspace == "git" else FolderOpening)(
            self, task_id, epoch, role, earlier
        )
        lock = self._wait_for(task_id)
        if lock is None:
            return self._elsewhere(opening, other, "another process still works at its path")
        try:
            reason = opening.prepare(task_id, lock)
            if not reason:
                return opening.open(task_id, lock)
        except BaseException:
            lock.close()
            raise
        lock.close()
        return self._elsewhere(opening, other, reason)

    def _elsewhere(self, opening: GitOpening | FolderOpening, name: str, reason: str) -> Workspace:
        """Open the workspace at a path of its own, for the reason given."""
        lock = WorkspaceLock.acquire(self.root, name)
        if lock is None or self.records.is_there(name) or os.path.lexists(self.root / name):
            if lock is not None:
                lock.close()
            raise Refused(
                f"There is no path for this attempt: {reason}, and {self.root / name} is taken.",
                "`agentq workspaces` shows what is there.",
            )
        try:
            return opening.open(name, lock, reason)
        except BaseException:
            lock.close()
            raise

    def _wait_for(self, name: str) -> WorkspaceLock | None:
        deadline = time.monotonic() + self._lock_seconds
        while (lock := WorkspaceLock.acquire(self.root, name)) is None:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_SECONDS)  # a lock that is let go sends no signal
        return lock

    @contextmanager
    def aside(self, name: str) -> Iterator[Path]:
        """A folder of our own for a while, of the workspace of this name."""
        from tempfile import TemporaryDirectory

        make_folder(self.root / _ASIDE)
        with TemporaryDirectory(
            prefix=f"{name}.", dir=self.root / _ASIDE, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)

    # -- looking ---------------------------------------------------------------------------------

    def all(self) -> list[Kept]:
        """Every workspace on disk, the oldest first."""
        found = [kept for name in self.records.names() if (kept := self.kept(name)) is not None]
        return sorted(found, key=lambda kept: (kept.created_at, kept.task_id, kept.epoch))

    def kept(self, name: str) -> Kept | None:
        """The workspace of this name; None if no workspace can be called so."""
        return self.records.kept(name)

    # -- snapshots -------------------------------------------------------------------------------

    def take_snapshot(self, record: Record, lock: WorkspaceLock) -> WorkSnapshot:
        """Keep what is in a worktree now. The caller has its lock.

        Of an attempt that was killed, what it was about to hand in is kept with it.
        """
        from agentq.worker import snapshots

        name = record.name or f"{record.task_id}-{record.epoch}"
        with self.aside(name) as folder:
            taken = snapshots.take(
                self.tree_files(record, lock, folder), record.task_id, record.epoch, record.base,
                record.branch, record.snapshot_bytes,
                replaces=_commit_of(record),
                with_hand_in=not record.is_over and not record.is_collected,
                keeps_base=record.start is not None and record.start.is_merged,
            )  # fmt: skip
        return snapshots.at_epoch(taken, record.holds, record.submitted_at, record.start)

    def tree_files(self, record: Record, lock: WorkspaceLock, folder: Path) -> TreeFiles:
        from agentq.worker.snapshots import TreeFiles

        made = self.worktree(record)
        return TreeFiles(
            self.worktrees.git, made.tree, made.common, made.git_dir, folder, lock.file
        )

    def worktree(self, record: Record) -> Worktree:
        tree = self.root / (record.name or f"{record.task_id}-{record.epoch}")
        # Before its own git folder is known there is none to look at.
        git_dir = Path(record.git_dir) if record.git_dir else tree / ".no-git-folder"
        return Worktree(
            tree, Path(record.common), record.base, record.push, record.push_sha256,
            record.branch, git_dir, record.pushed,
        )  # fmt: skip

    # -- removing --------------------------------------------------------------------------------

    def why_not(self, kept: Kept, task_state: State | None, is_held: bool) -> str:
        """Why it must stay; "" if it may go. `task_state` is None for a task nobody knows."""
        record = kept.record
        if record is None:
            if "unrecorded" in kept.flags:
                return "it has no record: agentq does not know what it is"
            return "its record cannot be read"
        is_pruned = task_state is None and record.over_at > 0
        if task_state is None and not is_pruned:
            return "the ledger does not know its task"
        if task_state is not None and task_state not in TERMINAL:
            return f"its task is {task_state}"
        if is_held:
            return "its attempt has not stopped yet"
        if kept.path.is_symlink():
            return "there is a link in its place"
        reason = self._why_not_lost(kept, record)
        if reason or "missing" in kept.flags:
            return reason
        user = user_of(kept.path)
        return f"{user} uses it" if user else ""

    def _why_not_lost(self, kept: Kept, record: Record) -> str:
        """Why something would be lost with it."""
        is_there = "missing" not in kept.flags
        if record.kind == "folder":
            from agentq.worker.folder_archives import is_empty

            kept_too_briefly = is_there and not is_empty(kept.path) and not self._is_old(record)
            return self._until(record, "what the agent left there") if kept_too_briefly else ""
        if not Path(record.common).is_dir():
            return f"its repository {record.repo} is gone" if is_there else ""
        reason = self.worktrees.why_not(self.worktree(record)) if record.is_made else ""
        return reason if reason or is_there else self._why_not_ref(record)

    def _why_not_ref(self, record: Record) -> str:
        """Why a snapshot must stay whose tree is gone. Each attempt has its own: a later one may
        have deleted what an earlier one wrote."""
        if self._is_old(record):
            return ""
        made = self.worktree(record)
        for ref, commit in self._refs(record).items():
            if not self.worktrees.is_elsewhere(made, commit):
                return self._until(record, ref)
        return ""

    def _refs(self, record: Record) -> dict[str, str]:
        """The refs of the attempts that worked here, or whose work came here, and their commits."""
        found = self.worktrees.refs(Path(record.common), _task_refs(record))
        return {ref: found[ref].commit for ref in _own_refs(record) if ref in found}

    def _is_old(self, record: Record) -> bool:
        return 0 < record.over_at <= self.clock() - self._keep_ms

    def _until(self, record: Record, what: str) -> str:
        until = (record.over_at or self.clock()) + self._keep_ms
        moment = datetime.fromtimestamp(until / 1000, UTC)
        return f"{what} is kept until {moment:%Y-%m-%d %H:%M} UTC"

    def note_end(self, kept: Kept, task_state: State | None) -> None:
        """Write down that its task is over, from which on its work is kept for so long."""
        if kept.record is None or kept.record.over_at or task_state not in TERMINAL:
            return
        lock = WorkspaceLock.acquire(self.root, kept.path.name)
        if lock is not None:
            with lock:
                self._noted(self.kept(kept.path.name) or kept, task_state)

    def note_applied(self, kept: Kept) -> None:
        """Write down that its work is in a branch: from now on it is kept no longer."""
        lock = WorkspaceLock.acquire(self.root, kept.path.name)
        if lock is None:
            return
        with lock:
            record = (self.kept(kept.path.name) or kept).record
            if record is not None:
                self.records.write(replace(record, over_at=_APPLIED))

    def _noted(self, kept: Kept, task_state: State | None) -> Kept:
        record = kept.record
        if record is None or record.over_at or task_state not in TERMINAL:
            return kept
        record = replace(record, over_at=self.clock())
        self.records.write(record)
        return replace(kept, record=record)

    def remove(self, kept: Kept, task_state: State | None, is_held: bool) -> str:
        """Remove a workspace that may go; `Refused` says why it may not.

        Of a worktree a last snapshot is taken. Its ref stays for a while, and so does the record:
        then this returns why.
        """
        lock = WorkspaceLock.acquire(self.root, kept.path.name)
        if lock is None:
            raise _stays(kept, "a process of an attempt still works there")
        with lock:
            return self.remove_locked(kept, task_state, lock, is_held=is_held)

    def remove_locked(
        self,
        kept: Kept,
        task_state: State | None,
        lock: WorkspaceLock,
        *,
        is_held: bool,
        is_kept: bool = False,
    ) -> str:
        """The same for who has the lock, and perhaps has just taken the snapshot."""
        kept = self._noted(self.kept(kept.path.name) or kept, task_state)
        record = kept.record
        reason = self.why_not(kept, task_state, is_held)
        if not reason and record is not None and "missing" not in kept.flags:
            if record.kind == "folder":
                reason = remove_tree(kept.path)
            elif not Path(record.common).is_dir():
                reason = f"its repository {record.repo} is gone"
            else:
                record, reason = self._remove_tree(record, lock, is_kept=is_kept)
        if reason or record is None:
            raise _stays(kept, reason)
        reason = self._why_not_ref(record) if record.kind == "git" else ""
        if not reason:
            self._forget(record)
            lock.remove(self.root, kept.path.name)
        return reason

    def _remove_tree(
        self, record: Record, lock: WorkspaceLock, *, is_kept: bool
    ) -> tuple[Record, str]:
        """Remove a worktree, with a last snapshot of what is in it now; why not, or ""."""
        if not record.is_made:  # making it was interrupted: nobody has worked there
            return record, self.discard(record)
        snapshot = record.snapshot
        if not is_kept or snapshot is None:
            try:
                snapshot = self.take_snapshot(record, lock)
            except (AgentqError, OSError) as error:
                return record, f"it cannot be kept in a snapshot: {error}"
            record = replace(record, snapshot=snapshot, is_over=True)
            self.records.write(record)
        if snapshot.left_out:
            return record, f"its snapshot is without {', '.join(snapshot.left_out[:3])}"
        return record, self.worktrees.remove(self.worktree(record))

    def discard(self, record: Record) -> str:
        """Remove a tree in which nobody has worked, or that a snapshot has in full. Why not, or
        ""."""
        made = self.worktree(record)
        reason = remove_tree(made.tree)
        if not reason and record.common and Path(record.common).is_dir():
            if not record.is_made:  # a git that was killed while it made the tree leaves it locked
                self.worktrees.unlock(made)
            reason = self.worktrees.remove(made)
        return reason

    def _forget(self, record: Record) -> None:
        """Remove refs, branch and record of a workspace whose tree is gone."""
        if record.kind == "git" and Path(record.common).is_dir():
            made, git = self.worktree(record), self.worktrees.git
            branch = branch_ref(made)
            found = self.worktrees.refs(made.common, _task_refs(record), branch)
            own = [ref for ref in _own_refs(record) if ref in found]
            doomed = {ref: found[ref].commit for ref in own}
            is_applied = record.over_at == _APPLIED
            if self.worktrees.is_branch_free(made, found.get(branch), is_applied=is_applied):
                doomed[branch] = found[branch].commit
            self.worktrees.delete_refs(made.common, doomed)
            for ref in own if record.push else ():
                # If that does not work it stays there: nothing depends on it.
                shared = shared_place(made.common)
                remotes.delete_ref(git, shared, record.push, record.push_sha256, ref)
        self.records.remove(record.name or f"{record.task_id}-{record.epoch}")

    def remove_leftovers(self) -> None:
        """Remove what killed workers left beside workspaces: folders that were for a while."""
        for entry in _entries(self.root / _ASIDE):
            owner = entry.name.rpartition(".")[0]
            lock = WorkspaceLock.acquire(self.root, owner)
            if lock is not None:
                remove_tree(entry)
                lock.close() if self._is_known(owner) else lock.remove(self.root, owner)
        for entry in _entries(self.root):  # of an earlier version
            old = _OLD_SCRATCH.fullmatch(entry.name)
            if old and not self._is_known(old["name"]):
                remove_tree(entry)

    def _is_known(self, name: str) -> bool:
        return self.records.is_there(name) or os.path.lexists(self.root / name)


def _commit_of(record: Record) -> str:
    """The commit that the ref of the record's attempt has by now; "" if it has none."""
    snapshot = record.snapshot
    return snapshot.commit if snapshot is not None and snapshot.epoch == record.epoch else ""


def _task_refs(record: Record) -> str:
    """What the names of all refs of its task begin with."""
    return ref_name(record.task_id, 0).removesuffix("/0")


def _own_refs(record: Record) -> list[str]:
    epochs = sorted({*record.attempts, *record.holds, record.epoch}, reverse=True)
    return [ref_name(record.task_id, epoch) for epoch in epochs]


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _stays(kept: Kept, reason: str) -> Refused:
    return Refused(
        f"The workspace {kept.path} stays: {reason}.",
        "Nothing is removed by force; `agentq workspaces` shows what is there.",
    )
