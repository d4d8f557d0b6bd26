"""The workspace of a running attempt: what it collects, what it keeps, and its end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError
from agentq.core.states import State
from agentq.core.values import replace
from agentq.repository import remotes
from agentq.repository.git import AGENT_ENVIRONMENT
from agentq.repository.snapshot_refs import ARCHIVE, BUNDLE, WorkSnapshot
from agentq.repository.work_starts import in_short
from agentq.worker import snapshots
from agentq.worker.changes import EvidenceFile
from agentq.worker.commits import CommitRequest, Committed
from agentq.worker.folder_archives import is_empty, write_archive
from agentq.worker.merges import unsolved
from agentq.worker.worktrees import shared_place

if TYPE_CHECKING:
    from agentq.worker.workspace_locks import WorkspaceLock
    from agentq.worker.workspace_records import Record
    from agentq.worker.workspaces import Workspaces


_LOCAL = "it is built on work that must stay on this machine, and stays here too"


class Workspace:
    """The workspace of a running attempt, and its lock."""

    def __init__(
        self,
        workspaces: Workspaces,
        record: Record,
        lock: WorkspaceLock,
        earlier_attempts: Collection[int] = (),
        told: str = "",
    ) -> None:
        self.path = workspaces.root / record.name
        self._workspaces = workspaces
        self.record = record
        self._lock = lock
        self._earlier_attempts = earlier_attempts
        #: What the agent is told about the work of earlier attempts; "" if there were none.
        self.told = told
        self._is_collected = False

    @property
    def lock(self) -> int:
        """The file that must stay open as long as any process works here."""
        return self._lock.file

    @property
    def began(self) -> str:
        """In a few words, from whose work the task began; "" if from nobody's."""
        return in_short(self.record.start)

    def can_resume(self, epoch: int) -> bool:
        """Whether a conversation of that attempt may go on: it was held here, about this work."""
        return epoch in self._earlier_attempts and epoch in self.record.holds

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
            self._workspaces.worktrees.hide_task_folder(self._workspaces.worktree(self.record))

    def commit(self, request: CommitRequest) -> Committed:
        """Commit what the agent left uncommitted in a worktree."""
        if self.record.kind != "git":
            return Committed()
        made = self._workspaces.worktree(self.record)
        with self._workspaces.aside(self.path.name) as folder:
            done = self._workspaces.worktrees.commit(made, folder, request)
            if self.record.start is not None and self.record.start.conflicts:
                files = self._workspaces.tree_files(self.record, self._lock, folder)
                done = replace(done, unsolved=unsolved(files.git, files.own()))
            return done

    def collect(self, patch_bytes: int = 0) -> list[EvidenceFile]:
        """The evidence that only the workspace has; a patch of at most so many bytes, 0: of any."""
        evidence: list[EvidenceFile] = []
        if self.record.kind == "git":
            made = self._workspaces.worktree(self.record)
            with self._workspaces.aside(self.path.name) as folder:
                evidence = self._workspaces.worktrees.collect(made, folder, patch_bytes)
        self._is_collected = True
        return evidence

    def push(self) -> str:
        """Push the branch if the role wants it; what went wrong, or "". Never fails the task."""
        if self.record.kind != "git" or not self.record.push:
            return ""
        if self._is_local:
            return f"Not pushed: {_LOCAL}"
        commit, problem = self._workspaces.worktrees.push(self._workspaces.worktree(self.record))
        if commit:
            self._write(replace(self.record, pushed=commit))
        return problem

    @property
    def _is_local(self) -> bool:
        return self.record.start is not None and self.record.start.is_local

    def _write(self, record: Record) -> None:
        self.record = record
        self._workspaces.records.write(record)

    # -- keeping the work ------------------------------------------------------------------------

    def keep(self) -> WorkSnapshot | None:
        """Keep a worktree as it is now that the agent is gone. None for a folder: that stays."""
        if self.record.kind != "git":
            return None
        is_collected = self.record.is_collected or self._is_collected
        self.record = replace(self.record, is_collected=is_collected)
        snapshot = self._workspaces.take_snapshot(self.record, self._lock)
        self._write(replace(self.record, snapshot=snapshot, is_over=True))
        return snapshot

    @property
    def has_work(self) -> bool:
        """Whether the attempts here have left anything."""
        if self.record.kind != "git":
            return not is_empty(self.path)
        snapshot = self.record.snapshot
        return snapshot is not None and bool(snapshot.ref or snapshot.left_out)

    def publish(
        self, secrets: Collection[bytes], folder: Path
    ) -> tuple[WorkSnapshot, Path | None, str]:
        """Bring what was kept to where an attempt on another machine finds it.

        Returns the snapshot, a file that is to be stored as its artifact, and what went wrong.
        """
        if self.record.kind != "git":
            return self._pack(secrets, folder)
        snapshot = self.record.snapshot
        assert snapshot is not None
        if not snapshot.ref:
            return snapshot, None, ""
        git = self._workspaces.worktrees.git
        shared = shared_place(Path(self.record.common))
        if self._is_local:
            return snapshot, None, _LOCAL
        if snapshots.holds_secret(git, shared, snapshot, secrets):
            problem = "the work holds a secret that the agent was given: it stays on this machine"
            return snapshot, None, problem
        if self.record.push:
            refspec = f"+{snapshot.commit}:{snapshot.ref}"
            problem = remotes.push_to(
                git, shared, self.record.push, self.record.push_sha256, refspec,
                remotes.SNAPSHOT_SECONDS,
            )  # fmt: skip
            if not problem:
                return self._noted(replace(snapshot, is_pushed=True)), None, ""
        bundle = folder / "bundle"
        reason = remotes.write_bundle(git, shared, snapshot, bundle, self.record.snapshot_bytes)
        if reason:
            return snapshot, None, f"the work stays on this machine: {reason}"
        return self._noted(replace(snapshot, artifact=BUNDLE)), bundle, ""

    def _pack(
        self, secrets: Collection[bytes], folder: Path
    ) -> tuple[WorkSnapshot, Path | None, str]:
        record = self.record
        holds = tuple(sorted({*record.holds, record.epoch}))
        snapshot = WorkSnapshot(
            record.epoch, "folder", holds=holds, submitted_at=record.submitted_at
        )
        archive = folder / "archive"
        count, left_out = write_archive(self.path, archive, record.snapshot_bytes, secrets)
        named = snapshots.named(left_out)
        snapshot = replace(snapshot, left_out=named, left_out_more=len(left_out) - len(named))
        if not count:
            return snapshot, None, ""
        return replace(snapshot, artifact=ARCHIVE), archive, ""

    def _noted(self, snapshot: WorkSnapshot) -> WorkSnapshot:
        self._write(replace(self.record, snapshot=snapshot))
        return snapshot

    # -- the end ---------------------------------------------------------------------------------

    def finish(self, task_state: State | None = None) -> str:
        """The attempt is over: remove the workspace if it may go. Why it is still there, or ""."""
        try:
            if self.record.kind == "git" and not self.record.is_over:
                self.keep()
        except (AgentqError, OSError) as error:
            self.close()
            return f"it could not be kept in a snapshot: {error}"
        is_collected = self.record.is_collected or self._is_collected
        self._write(replace(self.record, is_over=True, is_collected=is_collected))
        kept = self._workspaces.kept(self.path.name)
        try:
            if kept is None:
                return ""
            return self._workspaces.remove_locked(
                kept, task_state, self._lock, is_held=False, is_kept=True
            )
        except AgentqError as refused:
            return refused.cause
        finally:
            self.close()

    def close(self) -> None:
        """Let the lock go; whoever else has its file holds it on."""
        self._lock.close()
