"""`agentq roles check`: can the agents of a role work here? Part of `agentq doctor` as well."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentq.cli.options import Role, command
from agentq.cli.screen import clean, emit_json, paint, say
from agentq.cli.session import Session, pass_session
from agentq.core.counting import counted
from agentq.core.errors import AgentqError, NotFound, Unavailable

if TYPE_CHECKING:
    from agentq.settings import Settings
    from agentq.settings.roles import RoleSettings
    from agentq.worker.preflight import RoleCheck

_AT_ONCE = 8
_MARKS = {"ok": ("✓", "green"), "unknown": ("?", "yellow"), "failed": ("✗", "red")}


@command()
@click.argument("role", type=Role(), required=False)
@click.option("--live", is_flag=True, help="Also let a model answer one tiny question.")
@pass_session
def check(session: Session, role: str | None, live: bool) -> None:
    """Check whether the agents of a role, or of all, can work here.

    Looks for the program and its version, a login or key, the repository and its base, a place to
    write, the sandbox, and the program of the check. Nothing of that asks a model; --live does,
    with the role's own command. Workers check the same before they claim. Exits with 7 if a check
    failed.
    """
    settings = session.settings()
    found = checks_of_all(settings, _chosen(settings, role), live=live)
    failed = [name for name, checks in found.items() if any_failed(checks)]
    if session.json:
        emit_json(
            {
                "ok": not failed,
                "roles": {
                    name: {
                        "ok": name not in failed,
                        "checks": [each._asdict() for each in checks],
                    }
                    for name, checks in found.items()
                },
            }
        )
    else:
        for name, checks in found.items():
            show_checks(name, checks)
    click.get_current_context().exit(Unavailable.exit_status if failed else 0)


def _chosen(settings: Settings, role: str | None) -> dict[str, RoleSettings]:
    """The role that was named, or all that say how their agents are run."""
    known = working_roles(settings)
    if role is None:
        if not known:
            raise NotFound(
                "No role says how its agents are run: there is nothing to check.",
                "[roles.NAME] with `agent` or `command` in agentq.toml says it.",
            )
        return known
    if role not in known:
        raise NotFound(
            f"The settings do not say how agents of {role} are run.",
            f"Known are: {', '.join(sorted(known)) or 'none'}. [roles.{role}] in agentq.toml says"
            " it.",
        )
    return {role: known[role]}


def working_roles(settings: Settings) -> dict[str, RoleSettings]:
    """The roles whose settings say how their agents are run."""
    from agentq.settings.profiles import all_roles

    return {name: role for name, role in all_roles(settings).items() if role.agent or role.command}


def checks_of_all(
    settings: Settings, roles: dict[str, RoleSettings], *, live: bool = False
) -> dict[str, list[RoleCheck]]:
    """Check roles side by side: some tools take seconds to say their version."""
    from concurrent.futures import ThreadPoolExecutor

    names = sorted(roles)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        checks = pool.map(lambda name: _checks_of(settings, name, roles[name], live=live), names)
        return dict(zip(names, checks, strict=True))


def _checks_of(
    settings: Settings, role: str, chosen: RoleSettings, *, live: bool
) -> list[RoleCheck]:
    """Check one role as its worker does."""
    from agentq.settings import environment
    from agentq.wiring import WiredInstallation
    from agentq.worker.preflight import (
        RoleCheck,
        Surroundings,
        failures,
        has_live_check,
        live_check,
        local_checks,
        shown_live,
        with_release,
    )
    from agentq.worker.processes import Supervisor

    try:
        agent = WiredInstallation.agent(chosen.agent_name)
    except AgentqError as error:  # no such tool, or a plugin that does not load: the others go on
        return [RoleCheck("program", "failed", error.cause, error.remedy)]
    root = Path(settings.workspaces_root)
    where = with_release(Surroundings(role, chosen, agent, environment(), root))
    checks = [*local_checks(where), *_reviewer_check(settings, chosen)]
    if not live or failures(checks):
        return checks
    if not has_live_check(agent):
        return [*checks, RoleCheck("live", "unknown", f"{agent.name} has no model that we know")]
    with ExitStack() as stack:
        supervisor = stack.enter_context(Supervisor())
        return [*checks, shown_live(live_check(where, supervisor))]


def _reviewer_check(settings: Settings, chosen: RoleSettings) -> list[RoleCheck]:
    """Whether somebody here does what the role asks of its reviewer."""
    from agentq.worker.preflight import RoleCheck

    reviewer = chosen.reviewer
    if not reviewer:
        return []
    if reviewer in working_roles(settings):
        return [RoleCheck("reviewer", "ok", f"{reviewer} judges its reports")]
    return [
        RoleCheck(
            "reviewer", "unknown", f"no agents of {reviewer} are configured here",
            f"[roles.{reviewer}] says how its agents run, unless its workers are elsewhere.",
        )
    ]  # fmt: skip


def any_failed(checks: list[RoleCheck]) -> bool:
    return any(check.status == "failed" for check in checks)


def show_checks(role: str, checks: list[RoleCheck]) -> None:
    """Show what was found of one role."""
    failed = sum(check.status == "failed" for check in checks)
    outcome = f"cannot work: {counted(failed, 'check')} failed" if failed else "can work"
    say(f"{role} {paint(outcome, 'red' if failed else 'green')}")
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, style = _MARKS[check.status]
        say(f"  {paint(mark, style)} {check.name.ljust(width)}  {clean(check.detail)}")
        if check.remedy:
            say(f"    {' ' * width}  {paint('→', 'cyan')} {clean(check.remedy)}")
