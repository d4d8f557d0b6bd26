"""Agents by name: those of agentq, and those that plugins bring.

Unlike the other hooks this one runs in the worker itself: an adapter is part of how its role's
attempts are run, and harms nobody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from agentq.agents.registry import AGENT_NAMES, agent_named
from agentq.core.errors import Invalid, NotFound
from agentq.plugins.registry import hooks_of, load_plugin

if TYPE_CHECKING:
    from agentq.contracts.agent import Agent


def agent_of(name: str) -> Agent:
    """The adapter of this name; `Invalid` if neither agentq nor a plugin of that name has one."""
    if name in AGENT_NAMES:  # most starts of a worker: nothing of plugins is imported
        return agent_named(name)
    try:
        manager = load_plugin(name)
    except NotFound:
        return agent_named(name)  # which names those that there are
    if "agent" not in hooks_of(manager):
        raise Invalid(
            f"The plugin {name} brings no agent.", f"Its hooks: {', '.join(hooks_of(manager))}."
        )
    found = manager.hook.agent(name=name)
    if found is None:
        raise Invalid(f"The plugin {name} knows no agent of that name.")
    return cast("Agent", found)
