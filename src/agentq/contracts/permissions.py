"""What an agent may do with its own tools: all that settings need to know of adapters."""

from __future__ import annotations

from enum import StrEnum


class Permissions(StrEnum):
    """What an agent may do with its own tools: the word of `permissions` in a role's settings.

    Each holds what those before it hold. `agents/permissions.py` says how tools are told.
    """

    READ = "read"  # look at the workspace, and write below .agentq-task/ alone
    EDIT = "edit"  # change the files of the workspace as well
    RUN = "run"  # run the commands that the role names as well
    FULL = "full"  # whatever the tool can do, unasked
