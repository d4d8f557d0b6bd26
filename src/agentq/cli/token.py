"""`agentq token`: what people and programs elsewhere show to say who they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentq.cli.options import Duration, group
from agentq.cli.screen import ago, emit_json, note, say, show_table
from agentq.cli.session import Session, pass_session
from agentq.core.durations import format_duration

if TYPE_CHECKING:
    from agentq.contracts.service_values import TokenInfo


@group()
@click.pass_context
def token(ctx: click.Context) -> None:
    """Make, list and revoke tokens for those who ask from elsewhere.

    A token says who asks and what they may. Its secret is shown once, when it is made; the ledger
    keeps only a digest of it.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@token.command("create")
@click.option("--name", required=True, metavar="NAME", help="Who will show it; the log says so.")
@click.option(
    "--scope", "scopes", multiple=True, required=True, metavar="SCOPE",
    help="read, submit[:role], work[:role], approve or admin; several add up.",
)  # fmt: skip
@click.option(
    "--expires", "lifetime", type=Duration(), help="How long it is good.  [default: no end]"
)
@pass_session
def create(session: Session, name: str, scopes: tuple[str, ...], lifetime: int | None) -> None:
    """Make a token and print its secret, this once.

    What each scope allows: docs/reference/access.md. Give a program the narrowest that does.
    """
    queue = session.client()
    made, secret = queue.create_token(name, scopes, lifetime)
    if session.json:
        emit_json({**token_json(made, made.created_at), "secret": secret})
        return
    say(secret)
    end = f"expires in {format_duration(lifetime)}" if lifetime else "has no end"
    note(
        f"{made.id} is for {made.name} ({', '.join(made.scopes)}) and {end}. Keep the secret now:"
        " it is not shown again."
    )


@token.command("list")
@pass_session
def list_tokens(session: Session) -> None:
    """List tokens, the oldest first, without their secrets."""
    queue = session.client()
    rows, now = queue.tokens(), queue.now()
    if session.json:
        emit_json({"tokens": [token_json(row, now) for row in rows]})
        return
    show_table(
        ("token", "name", "scopes", "state", "created", "by"),
        [
            (row.id, row.name, " ".join(row.scopes), _state(row, now), ago(row.created_at, now),
             row.created_by)
            for row in rows
        ],
        "no tokens",
    )  # fmt: skip


@token.command("revoke")
@click.argument("ref", metavar="TOKEN")
@pass_session
def revoke(session: Session, ref: str) -> None:
    """End a token at once: whoever shows it is nobody from now on.

    TOKEN is its id, the beginning of one, or the name that one good token alone has.
    """
    queue = session.client()
    row = queue.revoke_token(ref)
    if session.json:
        emit_json(token_json(row, queue.now()))
    else:
        say(f"{row.id} of {row.name} is revoked (by {row.revoked_by})")


def token_json(row: TokenInfo, now: int) -> dict[str, object]:
    from agentq.protocol.envelope import iso

    return {
        "id": row.id,
        "name": row.name,
        "scopes": list(row.scopes),
        "good": row.is_good(now),
        "created_at": iso(row.created_at),
        "created_by": row.created_by,
        "expires_at": iso(row.expires_at) if row.expires_at else None,
        "revoked_at": iso(row.revoked_at) if row.revoked_at else None,
        "revoked_by": row.revoked_by or None,
    }


def _state(row: TokenInfo, now: int) -> str:
    if row.revoked_at:
        return f"revoked by {row.revoked_by}"
    if not row.is_good(now):
        return "expired"
    if row.expires_at:
        return f"good for {format_duration((row.expires_at - now + 999) // 1000)}"
    return "good"
