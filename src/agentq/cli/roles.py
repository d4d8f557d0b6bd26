"""`agentq roles`: how the workers of each role run their agents, and what those may do.

`roles check` has a module of its own, `cli/roles_check.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import group
from agentq.cli.screen import emit_json, show_table
from agentq.cli.session import Session, pass_session

if TYPE_CHECKING:
    from agentq.settings.roles import RoleSettings


@group()
@click.pass_context
@pass_session
def roles(session: Session, ctx: click.Context) -> None:
    """Show how the agents of roles are run, and what they may do.

    Alone it lists the roles of agentq.toml.
    """
    if ctx.invoked_subcommand is not None:
        return
    known = session.settings().workers
    if session.json:
        emit_json({"roles": {name: _as_json(name, role) for name, role in sorted(known.items())}})
        return
    show_table(
        ("role", "agent", "permissions", "workspace", "sandbox", ">slots"),
        [
            (
                name,
                role.agent_name,
                _word(name, role),
                role.workspace,
                role.sandbox,
                str(role.slots),
            )
            for name, role in sorted(known.items())
        ],
        "no roles: [roles.NAME] in agentq.toml says how one works",
    )


def _word(name: str, role: RoleSettings) -> str:
    from agentq.settings.roles import permissions_of

    return str(permissions_of(role, name) or "its own")


def _as_json(name: str, role: RoleSettings) -> dict[str, object]:
    from agentq.settings.roles import permissions_of

    return {
        "agent": role.agent_name,
        "permissions": permissions_of(role, name),
        "workspace": role.workspace,
        "sandbox": role.sandbox,
        "slots": role.slots,
    }
