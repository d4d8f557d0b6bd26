"""What the environment says about how commands show what they show."""

from __future__ import annotations

import os


def wants_debug() -> bool:
    """Whether the command shows tracebacks of errors that nobody expected."""
    return os.environ.get("AGENTQ_DEBUG", "") not in ("", "0")


def wants_quiet() -> bool:
    """Whether commands leave out what usually comes next."""
    return os.environ.get("AGENTQ_QUIET", "") not in ("", "0")


def wants_color() -> bool:
    """Whether a terminal may be written to in colour (see no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def agent_from_environment() -> str:
    """The agent tool for roles that `agentq init` writes; "" leaves it to what is installed."""
    return os.environ.get("AGENTQ_AGENT", "")
