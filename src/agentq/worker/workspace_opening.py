"""Opening a workspace: fresh, in the tree that earlier attempts left, or from their snapshot.

The order of the steps is what makes it safe to be killed between any two: the record says first
what is about to be made, a tree that is not marked as made holds nobody's work, and nothing of an
earlier attempt is touched before a snapshot has it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError
from agentq.core.values import replace
from agentq.repository import remotes
from agentq.repository.snapshot_refs import WorkSnapshot
from agentq.repository.work_starts import WorkStart, started
from agentq.worker import snapshots
from agentq.worker.base_work import begun
from agentq.worker.earlier_work import EarlierWork, LeftWork, told
from agentq.worker.folder_archives import set_hand_in_aside, unpack
from agentq.worker.folder_removal import remove_tree, user_of
from agentq.worker.workspace import Workspace
from agentq.worker.workspace_records import Record, attempt_name
from agentq.worker.worktrees import Worktree, shared_place

if TYPE_CHECKING:
    from agentq.settings.roles import RoleSettings
    from agentq.worker.workspace_locks import WorkspaceLock
    from agentq.worker.workspaces import Workspaces


class _Opening(ABC):
    """Opens the workspace of one attempt."""

    def __init__(
        self,
        workspaces: Workspaces,
        task_id: str,
        epoch: int,
        role: RoleSettings,
        earlier: EarlierWork,
    ) -> None:
        self._workspaces = workspaces
        self._task_id = task_id
        self._epoch = epoch
        self._role = role
        self._earlier = earlier
        #: The record of an earlier attempt at the path, if we go on from it.
        self._found: Record | None = None
        #: Why the work of some earlier attempt is not here.
        self._problems: list[str] = []

    @abstractmethod
    def prepare(self, name: str, lock: WorkspaceLock) -> str:
        """Bring what is at the path into a state to go on from; why it cannot be used, or ""."""

    @abstractmethod
    def open(self, name: str, lock: WorkspaceLock, reason: str = "") -> Workspace:
        """Make the workspace; `reason` says why it is not at the path of its task."""

    def _why_not(self, name: str) -> str:
        """Why what is at the path is not ours to go on from, or ""."""
        records, path = self._workspaces.records, self._workspaces.root / name
        if not records.is_there(name):
            return "there is something else at its path" if os.path.lexists(path) else ""
        record = records.read(name)
        if record is None:
            return "the record of its path cannot be read"
        if (
            (record.task_id, record.kind) != (self._task_id, self._role.workspace)
            or record.submitted_at != self._earlier.submitted_at
            or record.epoch >= self._epoch
        ):
            return "its path was used for something else before"
        if path.is_symlink():
            return "there is a link at its path"
        self._found = record
        # The lock says that nobody is there. After `kill -9` we do not take its word alone: an
        # agent that runs as the same user may have removed the file of the lock.
        user = "" if record.is_over else user_of(path)
        return f"{user} still uses its path" if user else ""

    def _fresh(self, name: str) -> Record:
        kind, now = self._role.workspace, self._workspaces.clock()
        return Record(
            self._task_id, self._epoch, kind, now, name=name, attempts=(self._epoch,),
            submitted_at=self._earlier.submitted_at, snapshot_bytes=self._role.snapshot_bytes,
        )  # fmt: skip

    def _opened(
        self, record: Record, lock: WorkspaceLock, worked_here: Collection[int]
    ) -> Workspace:
        known = {each.snapshot.epoch for each in self._earlier.left} | set(worked_here)
        words = told(
            self._epoch, record.holds, self._problems, is_git=record.kind == "git",
            known=sorted(known),
        )  # fmt: skip
        words = "\n\n".join(filter(None, (words, started(record.start))))
        return Workspace(self._workspaces, record, lock, worked_here, words)


class FolderOpening(_Opening):
    """Opens a plain folder."""

    def prepare(self, name: str, lock: WorkspaceLock) -> str:
        reason = self._why_not(name)
        found, path = self._found, self._workspaces.root / name
        if reason or found is None:
            return reason
        if not found.is_made or not path.is_dir():
            self._found = None
            return remove_tree(path)  # nobody has worked there, or somebody has removed it
        newer = [each for each in self._earlier.left if each.snapshot.epoch > found.epoch]
        if newer and newer[0].download is not None:
            # A later attempt worked elsewhere, and its files came here: these are set aside.
            other = attempt_name(self._task_id, found.epoch)
            if os.path.lexists(self._workspaces.root / other):
                return f"{other} is there already"
            self._workspaces.records.write(replace(found, name=other, is_over=True))
            path.rename(self._workspaces.root / other)
            self._found = None
        return ""

    def open(self, name: str, lock: WorkspaceLock, reason: str = "") -> Workspace:
        workspaces, path = self._workspaces, self._workspaces.root / name
        self._problems += [reason] if reason else []
        found = None if reason else self._found
        if found is not None:
            holds = {*found.holds, found.epoch}
            worked_here = {*found.attempts, found.epoch}
            record = replace(
                found, epoch=self._epoch, is_over=False, over_at=0, is_collected=False,
                holds=tuple(sorted(holds)), attempts=tuple(sorted({*worked_here, self._epoch})),
                snapshot_bytes=self._role.snapshot_bytes,
            )  # fmt: skip
            if not found.is_over and not found.is_collected:
                set_hand_in_aside(path, found.epoch)
            workspaces.records.write(record)
            return self._opened(record, lock, worked_here)
        record = self._fresh(name)
        workspaces.records.write(record)
        path.mkdir(mode=0o700)
        record = replace(record, is_made=True, holds=self._unpacked(name, path))
        workspaces.records.write(record)
        return self._opened(record, lock, ())

    def _unpacked(self, name: str, path: Path) -> tuple[int, ...]:
        """Put what the newest attempt left elsewhere into the folder; whose work it is."""
        for left in self._earlier.left:
            if left.snapshot.kind != "folder":
                continue
            if left.download is None:
                if left.snapshot.left_out:
                    self._problems.append(f"attempt {left.snapshot.epoch} left too much")
                continue
            with self._workspaces.aside(name) as folder:
                try:
                    left.download(folder / "archive")
                    problem = unpack(folder / "archive", path)
                except (AgentqError, OSError) as error:
                    problem = str(error)
            if not problem:
                return left.snapshot.holds
            self._problems.append(problem)
            remove_tree(path)
            path.mkdir(mode=0o700)
        return ()


class GitOpening(_Opening):
    """Opens a worktree."""

    #: The snapshot to start from, and whether the tree has it already.
    _start: WorkSnapshot | None = None
    _is_in_place = False
    _plan: Worktree | None = None

    def prepare(self, name: str, lock: WorkspaceLock) -> str:
        plan = self._planned(name)
        reason = self._why_not(name)
        found = self._found
        if found is not None and found.common != str(plan.common):
            return "its path was used for another repository before"
        if reason or found is None:
            self._start = self._newest(None)
            return reason
        is_there = os.path.lexists(plan.tree)
        if is_there and found.is_made and not found.is_over:
            try:
                taken = self._workspaces.take_snapshot(found, lock)
            except (AgentqError, OSError) as error:
                return f"what an earlier attempt left there could not be kept: {error}"
            found = replace(found, snapshot=taken, is_over=True)
            self._workspaces.records.write(found)
        self._found = found
        self._start = self._newest(found.snapshot)
        if not is_there:
            return self._workspaces.discard(found)  # git may still know of it
        made = replace(self._workspaces.worktree(found), lock=lock.file)
        if found.is_made and self._start is not None and self._start is found.snapshot:
            self._is_in_place = self._workspaces.worktrees.is_intact(made)
        if self._is_in_place:
            return ""
        if found.is_made and found.snapshot is not None and found.snapshot.left_out:
            return f"its tree holds {found.snapshot.left_out[0]}, which no snapshot has"
        return self._workspaces.discard(found)

    def _planned(self, name: str) -> Worktree:
        """Find repository and base; raises if the role's settings do not fit."""
        role, tree = self._role, self._workspaces.root / name
        plan = self._workspaces.worktrees.plan(tree, Path(role.repo), role.base, role.push)
        self._plan = plan
        return plan

    def _newest(self, here: WorkSnapshot | None) -> WorkSnapshot | None:
        """The newest snapshot that can be had."""
        self._problems.clear()
        found = [LeftWork(here)] if here is not None else []
        found += [
            each for each in self._earlier.left if here is None or each.snapshot.epoch != here.epoch
        ]
        for left in sorted(found, key=lambda each: -each.snapshot.epoch):
            if left.snapshot.kind != "git" or not left.snapshot.commit:
                continue
            problem = self._why_not_had(left)
            if not problem:
                return left.snapshot
            self._problems.append(f"that of attempt {left.snapshot.epoch}: {problem}")
        return None

    def _why_not_had(self, left: LeftWork) -> str:
        """Bring a snapshot into the repository; why it is not there, or ""."""
        assert self._plan is not None
        git, plan, snapshot = self._workspaces.worktrees.git, self._plan, left.snapshot
        shared = shared_place(plan.common)
        if git.tip(shared, snapshot.commit) and git.tip(shared, snapshot.head):
            return ""
        problem = "it is on the machine where that attempt ran"
        if snapshot.is_pushed and plan.push:
            problem = remotes.fetch_snapshot(git, shared, plan.push, plan.push_sha256, snapshot)
        elif left.download is not None and snapshot.artifact:
            with self._workspaces.aside(plan.tree.name) as folder:
                try:
                    left.download(folder / "bundle")
                    problem = remotes.fetch_bundle(git, shared, folder / "bundle", snapshot)
                except (AgentqError, OSError) as error:
                    problem = str(error)
        return problem

    def open(self, name: str, lock: WorkspaceLock, reason: str = "") -> Workspace:
        if reason:
            self._is_in_place, self._found = False, None
            self._planned(name)
            self._start = self._start or self._newest(None)
            self._problems.append(reason)
        elif self._is_in_place:
            return self._go_on(lock)
        assert self._plan is not None
        bases = self._earlier.bases() if self._start is None else ()
        with begun(self._workspaces, name, self._plan.common, bases, self._why_not_had) as start:
            return self._make(name, lock, start)

    def _go_on(self, lock: WorkspaceLock) -> Workspace:
        """Go on in the tree as it is."""
        found, plan, workspaces = self._found, self._plan, self._workspaces
        assert found is not None and plan is not None
        worked_here = {*found.attempts, found.epoch}
        record = replace(
            found, epoch=self._epoch, is_over=False, over_at=0, is_collected=False, pushed="",
            holds=tuple(sorted({*found.holds, found.epoch})),
            attempts=tuple(sorted({*worked_here, self._epoch})),
            push=plan.push, push_sha256=plan.push_sha256, snapshot_bytes=self._role.snapshot_bytes,
        )  # fmt: skip
        made = replace(workspaces.worktree(found), lock=lock.file)

        def announce(branch: str) -> None:
            nonlocal record
            record = replace(record, branch=branch)
            workspaces.records.write(record)

        workspaces.worktrees.renew(made, self._task_id, self._epoch, announce)
        return self._opened(record, lock, worked_here)

    def _make(self, name: str, lock: WorkspaceLock, first: WorkStart | None) -> Workspace:
        """Make the tree, at the base, at what other tasks left, or from a snapshot."""
        plan, start, workspaces = self._plan, self._start, self._workspaces
        assert plan is not None
        if start is not None:
            plan, first = replace(plan, base=start.base), start.start
        elif first is not None and first.commit:
            plan = replace(plan, base=first.commit)
        plan = replace(plan, lock=lock.file)
        worked_here = () if self._found is None else self._found.attempts
        record = replace(
            self._fresh(name), repo=self._role.repo, common=str(plan.common), base=plan.base,
            push=plan.push, push_sha256=plan.push_sha256, snapshot=start, start=first,
            holds=start.holds if start else (),
            attempts=tuple(sorted({*worked_here, self._epoch})),
        )  # fmt: skip
        workspaces.records.write(record)

        def announce(branch: str) -> None:
            nonlocal record
            record = replace(record, branch=branch)
            workspaces.records.write(record)

        try:
            begin = start.head if start else ""
            made = workspaces.worktrees.make(plan, self._task_id, self._epoch, announce, begin)
            record = replace(record, git_dir=str(made.git_dir))
            if start is not None:
                with workspaces.aside(name) as folder:
                    snapshots.put_back(workspaces.tree_files(record, lock, folder), start)
        except AgentqError:
            # Nobody has worked there, nothing is lost. What cannot be undone stays, and is flagged.
            if not workspaces.discard(record) and start is None:
                workspaces.records.remove(name)
            raise
        record = replace(record, is_made=True)
        workspaces.records.write(record)
        return self._opened(record, lock, worked_here)
