"""`agentq plugins` and `agentq notify`: what is installed and used, and a message to try it."""

from __future__ import annotations

import click

from agentq.cli.options import command, group
from agentq.cli.screen import emit_json, iso_time, one_line, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.core.errors import Invalid, NotFound, Unavailable

_WIDTH = 80


@command()
@click.option("--no-load", is_flag=True, help="Do not load them to ask which hooks they have.")
@pass_session
def plugins(session: Session, no_load: bool) -> None:
    """List plugins, and how those in use are doing.

    A plugin is a Python package with an entry point in the group `agentq`. Each is loaded in a
    process of its own, which is killed if it hangs. The second table has what agentq.toml uses:
    what waits for each in its lane of the outbox, whether its breaker is open, and its last error.
    """
    from agentq.client.plugins import list_carriers, list_plugins, plain_carrier

    settings = session.settings()
    found = list_plugins(describe=not no_load)
    used = list_carriers(settings, session.reader().stats().outbox)
    if session.json:
        emit_json({
            "plugins": [
                {"name": each.name, "package": each.package, "version": each.version,
                 "module": each.module, "hooks": list(each.hooks), "error": each.error or None}
                for each in found
            ],
            "in_use": [
                {**plain_carrier(each), "failed_at": iso_time(each.health.failed_at),
                 "worked_at": iso_time(each.health.worked_at),
                 "open_until": iso_time(each.health.open_until)}
                for each in used
            ],
        })  # fmt: skip
        return
    rows = [
        (each.name, ", ".join(each.hooks), each.version, each.package, one_line(each.error, _WIDTH))
        for each in found
    ]
    show_table(("plugin", "hooks", "version", "package", "error"), rows, "no plugins")
    say()
    rows = [
        (each.lane, each.plugin, str(each.backlog), each.breaker,
         one_line(each.problem or each.health.last_error, _WIDTH))
        for each in used
    ]  # fmt: skip
    columns = ("lane", "plugin", ">waiting", "breaker", "last error")
    show_table(columns, rows, f"{settings.source} uses none of them")


@group()
@click.pass_context
@pass_session
def notify(session: Session, ctx: click.Context) -> None:
    """Show who is told of what; send a message to try it."""
    if ctx.invoked_subcommand is not None:
        return
    from agentq.settings.notify import read_notify

    found = read_notify(session.settings().source)
    if session.json:
        emit_json({
            "targets": [
                {"name": each.name, "plugin": each.settings.plugin,
                 "events": list(each.rules.events), "roles": list(each.rules.roles),
                 "severity": each.rules.severity, "digest_seconds": each.rules.digest,
                 "rate": str(each.rules.rate), "error": each.settings.problem or None}
                for each in found.targets
            ],
            "error": found.problem or None,
        })  # fmt: skip
        return
    if found.problem:
        say(found.problem, err=True)
    rows = [
        (each.name, each.settings.plugin, ", ".join(each.rules.events) or "all",
         ", ".join(each.rules.roles) or "all", each.rules.severity,
         one_line(each.settings.problem, _WIDTH))
        for each in found.targets
    ]  # fmt: skip
    columns = ("target", "plugin", "events", "roles", "from", "error")
    show_table(columns, rows, "agentq.toml names no targets in [notify.targets]")


@notify.command()
@click.argument("names", metavar="[TARGET]...", nargs=-1)
@click.option("--text", default="Sent by `agentq notify test`.", help="What it says.")
@pass_session
def test(session: Session, names: tuple[str, ...], text: str) -> None:
    """Send a message to targets now, whatever their rules say; to all unless you name some.

    Exits with 7 if one of them did not take it.
    """
    from agentq.client.plugins import send_test
    from agentq.settings.notify import read_notify

    found = read_notify(session.settings().source)
    targets = {each.name: each for each in found.targets}
    for name in names:
        if name not in targets:
            raise NotFound(
                f"agentq.toml has no target {name[:60]!r}.",
                f"It has: {', '.join(targets) or 'none'}.",
            )
    if not targets:
        raise Invalid(
            found.problem or "agentq.toml names no targets.",
            'As in [notify.targets], with a line ops = "env:OPS_URL".',
        )
    at = iso_time(session.reader().now()) or ""
    results = {name: send_test(targets[name], text, at) for name in names or targets}
    if session.json:
        emit_json({name: {"sent": not error, "error": error or None}
                   for name, error in results.items()})  # fmt: skip
    else:
        show_table(
            ("target", "sent", "error"),
            [(name, "no" if error else "yes", error) for name, error in results.items()],
        )
    if failed := [name for name, error in results.items() if error]:
        raise Unavailable(f"Not sent to {', '.join(failed)}: see above.")
