"""`agentq roles`: how the workers of each role run their agents, and what those may do."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from agentq.cli.options import Role, group
from agentq.cli.roles_check import check
from agentq.cli.screen import clean, emit_json, paint, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.settings.profiles import all_roles

if TYPE_CHECKING:
    from agentq.settings.roles import RoleSettings
    from agentq.worker.role_explanation import RoleExplanation


@group()
@click.pass_context
@pass_session
def roles(session: Session, ctx: click.Context) -> None:
    """Show how agents of roles run, and if they can.

    Alone it lists the roles of agentq.toml and those of agents.
    """
    if ctx.invoked_subcommand is not None:
        return
    known = all_roles(session.settings())
    if session.json:
        emit_json({"roles": {name: _as_json(name, role) for name, role in sorted(known.items())}})
        return
    show_table(
        ("role", "agent", "permissions", "workspace", "sandbox", ">slots"),
        [
            (
                name,
                role.shown_agent,
                _word(name, role),
                role.workspace,
                role.sandbox,
                str(role.slots),
            )
            for name, role in sorted(known.items())
        ],
        "no roles: [roles.NAME] in agentq.toml says how one works",
    )


roles.add_command(check)


@roles.command("explain")
@click.argument("role", type=Role())
@pass_session
def explain_role(session: Session, role: str) -> None:
    """Say what the agents of a role may do, and how they are started.

    In plain words: what the role's permissions mean for its tool, who holds the tool to them, the
    sandbox; and the exact command line. WORKSPACE stands for the folder of a task.
    Nothing is started.
    """
    from agentq.core.errors import NotFound
    from agentq.worker.role_explanation import explain_role as explained

    known = all_roles(session.settings())
    if role not in known:
        names = ", ".join(sorted(known)) or "none"
        raise NotFound(
            f"agentq.toml has no [roles.{role}]; it has {names}.", "Name one of those, or write it."
        )
    found = explained(role, known[role])
    if session.json:
        emit_json(asdict(found))
        return
    say(f"{paint(role, 'bold')}  {found.agent}")
    for title, lines in _shown(found):
        for place, line in enumerate(lines):
            say(f"  {title if not place else '':<12} {clean(line)}")
    for path, text in found.files.items():
        say(f"  {clean(path)} says")
        for line in text.splitlines():
            say(f"      {clean(line)}".rstrip())


def _shown(found: RoleExplanation) -> list[tuple[str, tuple[str, ...]]]:
    checked = f", tested with {found.agent} {found.checked_with}" if found.checked_with else ""
    if found.needs_release:
        checked += f"; needs {found.needs_release} or newer"
    mode = f"it must report the mode {found.reported_mode}, or it is stopped"
    return [
        ("permissions", (f"{found.permissions or 'its own'}: {found.because}",)),
        ("may", found.may),
        ("may not", found.may_not),
        ("held by", (f"{found.enforced_by}{checked}",) if found.enforced_by else ()),
        ("checked", (mode,) if found.reported_mode else ()),
        ("sandbox", found.sandbox),
        ("a report", found.gates),
        ("cannot start", (found.problem,) if found.problem else ()),
        ("command", (shlex.join(found.argv),) if found.argv else ()),
        ("variables", tuple(f"{name}={value}" for name, value in found.environment.items())),
    ]


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
