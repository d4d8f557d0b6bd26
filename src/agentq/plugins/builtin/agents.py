"""The agents of agentq itself, by the hook that others use for theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentq.agents.registry import AGENT_NAMES, agent_named
from agentq.plugins.hooks import hookimpl

if TYPE_CHECKING:
    from agentq.contracts.agent import Agent


@hookimpl
def agent(name: str) -> Agent | None:
    return agent_named(name) if name in AGENT_NAMES else None
