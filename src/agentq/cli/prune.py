"""`agentq prune`: let go of what ended long ago."""

from __future__ import annotations

import sys

import click

from agentq.cli.options import Duration, command
from agentq.cli.screen import emit_json, say
from agentq.cli.session import Session, pass_session
from agentq.core.durations import format_duration


@command()
@click.option("--older-than", type=Duration(True), required=True, help="Ended longer ago.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def prune(session: Session, older_than: int, yes: bool) -> None:
    """Delete tasks that ended long ago, with their files.

    What a task that is not over refers to stays: the tasks it comes after, its parent, the root of
    its tree, and what it names as next.

    Their ids and idempotency keys stay known for 30 days after submission, so nothing that was
    sent twice is done twice.
    """
    queue = session.client()
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "This deletes tasks and their files; --yes says that it is meant.",
                click.get_current_context(),
            )
        span = format_duration(older_than, exact=True)
        question = f"Delete every task that ended more than {span} ago, with its files?"
        if not click.confirm(question, err=True):
            say("nothing was deleted")
            return
    count = queue.prune(older_than)
    if session.json:
        emit_json({"pruned": count})
    else:
        say(f"{count} tasks deleted")
