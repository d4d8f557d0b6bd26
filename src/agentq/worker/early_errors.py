"""What an error comes to that ends an attempt before, or without, an agent's own result."""

from __future__ import annotations

from agentq.contracts.agent import UNFIT_WORKSPACE, AttemptOutcome, AttemptResult
from agentq.core.errors import AgentqError, Invalid

#: Steps before the agent runs: what goes wrong in them concerns most likely every task of the role.
_BEFORE = ("workspace", "context", "spawn")


def result_of(error: AgentqError | OSError, step: str) -> AttemptResult:
    """The result of an error: before the agent ran, the surroundings are suspected.

    A workspace that keeps a tool from being started is known to be this task's own. That all
    workspaces of the role are like that, a check of the role finds before anything is claimed.
    """
    words = str(error) if isinstance(error, AgentqError) else f"{type(error).__name__}: {error}"
    kind = AttemptOutcome.INVALID if isinstance(error, Invalid) else AttemptOutcome.TRANSIENT
    is_suspected = step in _BEFORE and getattr(error, "code", "") != UNFIT_WORKSPACE
    if is_suspected:
        return AttemptResult(AttemptOutcome.SURROUNDINGS, words, otherwise=kind)
    return AttemptResult(kind, words)
