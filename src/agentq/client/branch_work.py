"""The part of `Queue` that brings what tasks changed into a branch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agentq.client.references import id_of

if TYPE_CHECKING:
    from agentq.client.applying import AppliedTask
    from agentq.client.client import Client
    from agentq.client.task_fields import TaskRef


class BranchWork:
    """Shows what tasks changed, and applies it."""

    _client: Client

    def diff(
        self,
        task: TaskRef,
        into: BinaryIO | None = None,
        *,
        repo: str | os.PathLike[str] = ".",
        stat: bool = False,
        name_only: bool = False,
    ) -> bytes:
        """Return what a task changed as a patch; `into`, an open file, receives it instead, piece
        by piece. The repository is that of the folder `repo`, else that of the task's role."""
        from agentq.client.diffs import diff

        return diff(self._client, id_of(task), Path(repo), into, stat=stat, names=name_only)

    def apply(
        self,
        task: TaskRef,
        by: str = "",
        *,
        repo: str | os.PathLike[str] = ".",
        how: str = "squash",
        message: str = "",
        force: bool = False,
        verify: bool = True,
    ) -> AppliedTask:
        """Bring what a task changed into the branch that is checked out at `repo`: as one commit
        (`squash`), a `merge`, or each commit once more (`cherry-pick`).

        `Refused` says what stands in the way, and nothing is changed then. After conflicts, or a
        check that fails, `continue_apply` goes on and `abort_apply` gives it up.
        """
        from agentq.client.applying import ApplyOptions, TaskApplier

        options = ApplyOptions(how, message, force, verify)
        return TaskApplier(self._client, Path(repo), by).apply(id_of(task), options)

    def continue_apply(
        self, by: str = "", *, repo: str | os.PathLike[str] = ".", verify: bool = True
    ) -> AppliedTask:
        """Go on with the `apply` that has stopped here, with what was solved since."""
        from agentq.client.applying import TaskApplier

        return TaskApplier(self._client, Path(repo), by).continue_(verify=verify)

    def abort_apply(self, *, repo: str | os.PathLike[str] = ".") -> str:
        """Give up the `apply` that has stopped in this checkout; returns the id of its task."""
        from agentq.client.applying import TaskApplier

        return TaskApplier(self._client, Path(repo), "").abort()
