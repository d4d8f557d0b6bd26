"""`agentq limits`: what a role may have at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from agentq.cli.options import Role, command
from agentq.cli.screen import Styled, emit_json, show_table
from agentq.cli.session import Session, pass_session

if TYPE_CHECKING:
    from agentq.core.limits import RoleLimits

_COUNT = click.IntRange(0, 1_000_000)


@command()
@click.argument("role", type=Role(), required=False)
@click.option("--running", type=_COUNT, metavar="N", help="Tasks in progress at once; 0: any.")
@click.option("--review", type=_COUNT, metavar="N", help="Stop claiming while N wait for review.")
@click.option("--pause/--resume", "paused", default=None, help="Hand out no tasks / again.")
@pass_session
def limits(
    session: Session, role: str | None, running: int | None, review: int | None, paused: bool | None
) -> None:
    """Show or set what a role may have at once.

    Limits hold at every claim from the moment they are set. Those in agentq.toml ([roles.NAME])
    are applied by `agentq init`.
    """
    from agentq.core.limits import NO_LIMITS

    queue = session.queue()
    known = queue.limits()
    changes: dict[str, Any] = {
        name: value
        for name, value in (
            ("max_running", running),
            ("max_review", review),
            ("paused", paused),
        )
        if value is not None
    }
    if changes and role is None:
        raise click.UsageError("Of which role? Name it.", click.get_current_context())
    if changes and role is not None:
        queue.set_limits(role, replace(known.get(role, NO_LIMITS), **changes))
        known = queue.limits()
    shown = {role: known.get(role, NO_LIMITS)} if role is not None else known
    if session.json:
        emit_json({"roles": {name: limits_json(each) for name, each in sorted(shown.items())}})
        return
    show_table(
        ("role", ">running", ">review", "claims"),
        [
            (
                name,
                str(each.max_running or "any"),
                str(each.max_review or "any"),
                Styled("paused", "yellow") if each.paused else "open",
            )
            for name, each in sorted(shown.items())
        ],
        "no roles yet: a role is known once a task is submitted to it",
    )


def limits_json(limits: RoleLimits) -> dict[str, object]:
    return {
        "max_running": limits.max_running,
        "max_review": limits.max_review,
        "paused": limits.paused,
    }
