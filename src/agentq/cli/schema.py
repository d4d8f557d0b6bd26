"""`agentq schema`: the shapes of envelopes, for programs in any language."""

from __future__ import annotations

import click

from agentq.cli.options import command
from agentq.cli.screen import emit_json, show_table
from agentq.cli.session import Session, pass_session


@command()
@click.argument("name", metavar="[NAME]", required=False)
@pass_session
def schema(session: Session, name: str | None) -> None:
    """Print the JSON Schema of an envelope.

    Without a name: which there are. Nothing needs to be installed or running for it.
    """
    from agentq.client.schemas import SCHEMAS
    from agentq.client.schemas import schema as schema_of

    if name is not None:
        emit_json(schema_of(name))
    elif session.json:
        emit_json({each: schema_of(each) for each in SCHEMAS})
    else:
        show_table(("name", "the shape of"), list(SCHEMAS.items()))
