"""`agentq db` and `prune`: look after the ledger.

`db` works on a ledger whose schema other commands refuse.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from agentq.cli.options import Duration, command, group
from agentq.cli.screen import (
    Styled,
    answer,
    emit_json,
    say,
    show_fields,
)
from agentq.cli.session import Session, pass_session
from agentq.core.access import Action
from agentq.core.counting import counted
from agentq.core.durations import format_duration
from agentq.core.errors import AgentqError

if TYPE_CHECKING:
    from agentq.settings import Settings
    from agentq.wiring import Database


@group()
@click.pass_context
def db(ctx: click.Context) -> None:
    """Look after the database: status, migrate, backup."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def open_unchecked(settings: Settings) -> Database:
    """The database whatever its schema; closed when the command ends."""
    from agentq.wiring import open_database

    database = open_database(settings)
    click.get_current_context().find_root().call_on_close(database.close)
    return database


@db.command("status")
@pass_session
def db_status(session: Session) -> None:
    """Show the schema's version and how the database is set up."""
    settings = session.settings()
    database = open_unchecked(settings)
    version, facts = database.schema_version(), database.facts()
    state, remedy = schema_state(settings, version)
    if session.json:
        emit_json({"schema": version, "state": state, "facts": facts})
        return
    words = f"{version}, {state}" + (f": {remedy}" if remedy else "")
    show_fields(
        [
            ("schema", Styled(words, "green" if state == "current" else "yellow")),
            *((name.replace("_", " "), value) for name, value in facts.items()),
        ],
        indent="",
    )


def schema_state(settings: Settings, version: int) -> tuple[str, str]:
    """Whether this agentq can work with that schema, and what to do if not."""
    if version == 0:
        return "empty", "there is no ledger in it; `agentq init` creates one"
    from agentq.wiring import open_installation

    try:
        open_installation(settings).close()
    except AgentqError as error:
        if error.code in ("older_schema", "newer_schema"):
            return error.code.removesuffix("_schema"), error.remedy
        raise
    return "current", ""


@db.command("migrate")
@pass_session
def db_migrate(session: Session) -> None:
    """Bring the schema up to date.

    All steps happen in one transaction under the write lock: all or none.
    """
    from agentq.wiring import open_installation

    session.check_may(Action.OPERATE)
    database = open_unchecked(session.settings())
    before = database.schema_version()
    if before == 0:
        open_installation(session.settings())  # says what is there instead of a ledger
    applied = database.migrate()
    after = database.schema_version()
    changed = f"schema {before} → {after}: {', '.join(applied)}"
    plain = {"before": before, "schema": after, "applied": applied}
    answer(session, plain, changed if applied else f"schema {before} is current")


@db.command("backup")
@click.argument("target", metavar="FILE")
@pass_session
def db_backup(session: Session, target: str) -> None:
    """Copy the whole ledger to a file while others go on working.

    Artifacts are files of their own: copy their folder after the ledger, and every file that the
    copy of the ledger names is there.
    """
    session.check_may(Action.OPERATE)
    settings = session.settings()
    open_unchecked(settings).backup(target)
    root = settings.artifacts_root
    plain = {"backup": target, "artifacts_root": root}
    answer(session, plain, f"{target} holds the ledger; its artifacts are in {root}")


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
                "This deletes tasks and their files; --yes says that it is meant."
            )
        span = format_duration(older_than, exact=True)
        question = f"Delete every task that ended more than {span} ago, with its files?"
        if not click.confirm(question, err=True):
            say("nothing was deleted")
            return
    count = queue.prune(older_than)
    answer(session, {"pruned": count}, f"{counted(count, 'task')} deleted")
