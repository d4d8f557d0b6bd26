"""The agents by the names that settings use; an adapter is imported when it is first asked for."""

from __future__ import annotations

import difflib
from importlib import import_module

from agentq.contracts.agent import Agent
from agentq.core.errors import Invalid

_HOMES = {
    "acp": "agentq.agents.acp:Acp",
    "claude": "agentq.agents.claude:Claude",
    "codex": "agentq.agents.codex:Codex",
    "command": "agentq.agents.command:Command",
    "gemini": "agentq.agents.gemini:Gemini",
    "opencode": "agentq.agents.opencode:Opencode",
    "python": "agentq.agents.python:Python",
    "warm": "agentq.agents.warm:Warm",
}


def names() -> tuple[str, ...]:
    """All agents there are, in alphabetical order."""
    return tuple(_HOMES)


def agent_named(name: str) -> Agent:
    """The adapter of this name; `Invalid` if there is none, naming what may have been meant."""
    home = _HOMES.get(name)
    if home is None:
        near = difflib.get_close_matches(name[:60].lower(), _HOMES, 1)
        hint = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(_HOMES)}."
        raise Invalid(f"There is no agent called {name[:60]!r}.", hint)
    module, _, kind = home.partition(":")
    agent: Agent = getattr(import_module(module), kind)()
    return agent
