"""`agentq circuits`: the providers that are out of quota, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import Duration, by_option, command, group, reason_option
from agentq.cli.screen import emit_json, one_line, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.core.durations import format_duration

if TYPE_CHECKING:
    from agentq.contracts.service_values import Circuit


@group()
@click.pass_context
@pass_session
def circuits(session: Session, ctx: click.Context) -> None:
    """Show, open or close the circuits of providers.

    While a provider's circuit is open, workers that use it claim nothing. It opens by itself when
    an agent hits its quota, and closes by itself when the quota is said to be reset.
    """
    if ctx.invoked_subcommand is not None:
        return
    queue = session.reader()
    rows = queue.circuits()
    if session.json:
        emit_json({"circuits": [circuit_json(row) for row in rows]})
        return
    now = queue.now() if rows else 0
    show_table(
        ("provider", "closes in", "opened by", "reason"),
        [(row.provider, _left(row, now), row.opened_by, one_line(row.reason, 80)) for row in rows],
        "no circuit is open",
    )


@command("open")
@click.argument("provider")
@click.option("--for", "duration", type=Duration(), required=True, help="How long from now.")
@reason_option()
@by_option
@pass_session
def open_circuit(session: Session, provider: str, duration: int, reason: str, by: str) -> None:
    """Let nobody claim for a provider for a while.

    A circuit that is open for longer already stays so.
    """
    queue = session.writer()
    row = queue.open_circuit(provider, queue.now() + duration * 1000, reason, by)
    if session.json:
        emit_json(circuit_json(row))
    else:
        say(f"{provider} is closed to claims for {_left(row, queue.now())}")


@command("close")
@click.argument("provider")
@by_option
@pass_session
def close_circuit(session: Session, provider: str, by: str) -> None:
    """Let claims for a provider begin again at once."""
    closed = session.writer().close_circuit(provider, by)
    if session.json:
        emit_json({"provider": provider, "closed": closed})
    elif closed:
        say(f"the circuit of {provider} is closed: its workers claim again")
    else:
        say(f"the circuit of {provider} was not open")


def circuit_json(row: Circuit) -> dict[str, object]:
    from agentq.protocol.envelope import iso

    return {
        "provider": row.provider,
        "open_until": iso(row.open_until),
        "reason": row.reason or None,
        "opened_at": iso(row.opened_at),
        "opened_by": row.opened_by,
    }


def _left(row: Circuit, now: int) -> str:
    return format_duration(max((row.open_until - now + 999) // 1000, 0))


for each in (open_circuit, close_circuit):
    circuits.add_command(each)
