"""`agentq webhooks`: who is told of what happens to tasks, and whether they took it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentq.cli.hooks import (
    before_option,
    delivery_json,
    limit_option,
    show_deliveries,
    state_option,
)
from agentq.cli.options import group
from agentq.cli.screen import Cell, Styled, ago, answer, emit_json, iso_time, one_line, show_table
from agentq.cli.session import Session, pass_session
from agentq.contracts.hook_values import WebhookTarget

if TYPE_CHECKING:
    from agentq.settings.webhooks import WebhookSettings

_HEALTH = {"ok": "green", "retrying": "yellow", "disabled": "red", "removed": "bright_black",
           "new": ""}  # fmt: skip


@group()
@click.pass_context
@pass_session
def webhooks(session: Session, ctx: click.Context) -> None:
    """List who is told of what happens to tasks, and how.

    Targets are [webhooks.NAME] in agentq.toml; `agentq up` sends to them.
    """
    if ctx.invoked_subcommand is not None:
        return
    client = session.client()
    standings = {each.name: each for each in client.service.webhook_targets(client.who)}
    settings = client.installation.settings.webhooks
    rows = [
        (name, settings.get(name), standings.get(name))
        for name in sorted(settings.keys() | standings.keys())
    ]
    if session.json:
        emit_json({"webhooks": [_plain(*row) for row in rows]})
        return
    now = client.now()
    show_table(
        ("webhook", "url", ">sent", ">failures", "last", "health"),
        [_row(*row, now) for row in rows],
        "no [webhooks.NAME] in agentq.toml",
    )


def _health(target: WebhookSettings | None, standing: WebhookTarget | None) -> str:
    if target is None:
        return "removed"
    if standing is None:
        return "new"
    if standing.disabled_at:
        return "disabled"
    return "retrying" if standing.failures else "ok"


def _row(
    name: str, target: WebhookSettings | None, standing: WebhookTarget | None, now: int
) -> tuple[Cell, ...]:
    found = standing or WebhookTarget(name, 0)
    health = _health(target, standing)
    said = f"{health}: {one_line(found.error, 120)}" if found.error else health
    return (
        name, target.url if target else "", str(found.sent), str(found.failures),
        ago(found.last_at, now) if found.last_at else "never", Styled(said, _HEALTH[health]),
    )  # fmt: skip


def _plain(
    name: str, target: WebhookSettings | None, standing: WebhookTarget | None
) -> dict[str, Any]:
    found = standing or WebhookTarget(name, 0)
    return {
        "name": name,
        "url": target.url if target else None,
        "events": list(target.events) if target else [],
        "roles": list(target.roles) if target else [],
        "states": list(target.states) if target else [],
        **_standing_json(found),
        "health": _health(target, standing),
    }


def _standing_json(found: WebhookTarget) -> dict[str, Any]:
    return {
        "position": found.position,
        "sent": found.sent,
        "failures": found.failures,
        "last_sent_at": iso_time(found.last_at) if found.last_at else None,
        "next_try_at": iso_time(found.due_at) if found.due_at else None,
        "disabled_at": iso_time(found.disabled_at) if found.disabled_at else None,
        "error": found.error or None,
    }


@webhooks.command()
@click.argument("name", metavar="WEBHOOK")
@state_option
@before_option
@limit_option
@pass_session
def log(session: Session, name: str, state: str | None, before: int | None, limit: int) -> None:
    """Show what was sent to a target, the newest first."""
    client = session.client()
    found = client.service.hook_deliveries(
        client.who, name, "", state or "", before or 0, limit, out=True
    )
    if session.json:
        listed = [{**delivery_json(e), "type": e.headers.get("type", "")} for e in found]
        emit_json({"webhook": name, "deliveries": listed})
        return
    show_deliveries(found, client.now(), f"nothing was sent to {name}", "task")


@webhooks.command()
@click.argument("name", metavar="WEBHOOK")
@click.option("--skip", is_flag=True, help="Leave out the event that it did not take.")
@pass_session
def enable(session: Session, name: str, skip: bool) -> None:
    """Tell a target again that has failed, at once, from where it stopped."""
    client = session.client()
    found = client.service.enable_webhook(client.who, name, skip=skip)
    plain = {"name": name, **_standing_json(found)}
    answer(session, plain, f"enabled {name}: it is told from position {found.position} on")
