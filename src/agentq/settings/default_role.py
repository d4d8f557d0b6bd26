"""The role that a task goes to when nobody names one."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from agentq.core.errors import Invalid

if TYPE_CHECKING:
    from agentq.settings import Settings

#: The role that takes tasks which name none, where there are several and none is the default.
USUAL_ROLE = "implementation-worker"


def default_role(settings: Settings) -> str:
    """Return the role marked as default, else the only one, else `implementation-worker`; raises
    `Invalid`, naming the roles, where that leaves it open."""
    roles = list(settings.workers)
    marked = [name for name in roles if settings.workers[name].default]
    if len(marked) > 1:
        raise Invalid(
            f"{_listed(marked)} say both that they are the default role, so nobody knows where this"
            " task should go. Nothing was submitted.",
            "Leave default = true in one of them in agentq.toml, or name the role: -t ROLE.",
        )
    if marked or len(roles) == 1:
        return (marked or roles)[0]
    if USUAL_ROLE in roles:
        return USUAL_ROLE
    if not roles:
        raise Invalid(
            "A task needs a role to go to, and no role is set up here that could be meant. Nothing"
            " was submitted.",
            "Say which with --to ROLE (-t), or `to:` in the task file.",
        )
    raise Invalid(
        f"A task needs a role to go to, and there are several here: {', '.join(roles)}. Nothing was"
        " submitted.",
        f"Say which with -t ROLE, or write default = true under [roles.{roles[0]}] in agentq.toml.",
    )


def meant_role(settings: Settings, role: str) -> str:
    """Return the role of the settings that a name which is none of theirs looks like, else ""."""
    if role in settings.workers:
        return ""
    return next(iter(difflib.get_close_matches(role, settings.workers, 1, 0.8)), "")


def _listed(names: list[str]) -> str:
    return " and ".join(f"[roles.{name}]" for name in names)
