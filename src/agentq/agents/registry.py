"""The agents by the names that settings use; an adapter is imported when it is first asked for."""

from __future__ import annotations

import difflib
from importlib import import_module

from agentq.contracts.agent import Agent
from agentq.core.errors import Invalid

#: Each is the module of the class with its name: `claude.Claude`.
AGENT_NAMES = ("acp", "claude", "codex", "command", "gemini", "opencode", "python", "warm")


def agent_named(name: str) -> Agent:
    """The adapter of this name; `Invalid` if there is none, naming what may have been meant."""
    if name not in AGENT_NAMES:
        near = difflib.get_close_matches(name[:60].lower(), AGENT_NAMES, 1)
        hint = f"Did you mean {near[0]}?" if near else f"Known are: {', '.join(AGENT_NAMES)}."
        raise Invalid(f"There is no agent called {name[:60]!r}.", hint)
    agent: Agent = getattr(import_module(f"agentq.agents.{name}"), name.capitalize())()
    return agent
