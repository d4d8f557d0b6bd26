"""Keeps what an attempt left in its workspace, and brings it to where the next attempt finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.core.errors import AgentqError
from agentq.repository.snapshot_refs import SNAPSHOT, write_record
from agentq.worker.redaction import as_written

if TYPE_CHECKING:
    from agentq.worker.attempt import Attempt
    from agentq.worker.workspace import Workspace


_SECRET_BYTES_MIN = 8


def keep_work(attempt: Attempt, workspace: Workspace, *, publish: bool) -> None:
    """Take the snapshot, however the attempt ended. With `publish` others get it too.

    A failure here fails nothing: the report names it, and the workspace stays as it is.
    """
    evidence = attempt.evidence
    try:
        workspace.keep()
        # Also of a worktree without changes: a task that starts from this one begins where it did.
        if not publish or not (workspace.has_work or workspace.record.kind == "git"):
            return
        # The short lines of a longer secret are found in every file.
        secrets = {each for each in as_written(attempt.secrets) if len(each) >= _SECRET_BYTES_MIN}
        with attempt.shared.workspaces.aside(workspace.path.name) as folder:
            snapshot, file, problem = workspace.publish(secrets, folder)
            if file is not None:
                with file.open("rb") as content:
                    evidence.keep(snapshot.artifact, content)
            evidence.store((SNAPSHOT, write_record(snapshot)))
    except (AgentqError, OSError) as error:
        evidence.leave_out("the workspace", f"it could not be kept: {error}")
        return
    if problem:
        evidence.leave_out("the workspace for other machines", problem)
    for line in snapshot.left_out:
        name, _, why = line.rpartition(" (")
        evidence.leave_out(name, why.removesuffix(")"))
    if snapshot.left_out_more:
        evidence.leave_out("the workspace", f"{snapshot.left_out_more} more files are not kept")
